// See refusals.h.
#include "daemon/tiering/requests/refusals.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/counted.h"
#include "daemon/base/format_bytes.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/memory/quota_parts.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/requests/scans.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

constexpr size_t kNamedMax = 8;

// "session 3 holds 64 MiB in 2 leases, ..." for the sessions of a job that hold most.
std::string Holders(const JobState& job) {
  std::vector<const SessionState*> holders;
  for (const SessionState* session : job.sessions) {
    if (session->record.lease_count != 0) holders.push_back(session);
  }
  if (holders.empty()) return "nothing is leased";
  const size_t named = std::min(holders.size(), kNamedMax);
  const auto last = holders.begin() + static_cast<ptrdiff_t>(named);
  std::partial_sort(holders.begin(), last, holders.end(), [](const SessionState* a, const SessionState* b) {
    return a->record.leased_bytes > b->record.leased_bytes;
  });
  std::string text;
  for (size_t i = 0; i < named; ++i) {
    text += fmt::format("{}session {} leases {} in {}", i == 0 ? "" : ", ", static_cast<uint64_t>(holders[i]->id),
                        FormatBytes(holders[i]->record.leased_bytes),
                        base::Counted(holders[i]->record.lease_count, "range"));
  }
  if (holders.size() > kNamedMax) text += fmt::format(" and {} more", holders.size() - kNamedMax);
  return text;
}

// What keeps the arena below its configured maximum.
std::string HostShortage(const Tables& tables) {
  const uint64_t reachable = tables.ports.windows.arena_max_bytes();
  if (reachable >= tables.ledger.arena_bytes()) return {};
  return fmt::format(", the host has memory for {} of it now", FormatBytes(reachable));
}

// Since when the job has been owed memory, and what comes of it.
std::string OwedSince(const Tables& tables, const JobState& job) {
  const std::vector<OwedJob>& owed = tables.forced_returns.jobs();
  const auto entry = std::ranges::find(owed, job.id, &OwedJob::id);
  if (entry == owed.end()) return {};
  return fmt::format(
      "; this job has been owed memory for {:.1f} s: while it asks, sessions that lease what it is promised are ended "
      "after {:.1f} s (jobs.reclaim_deadline)",
      std::chrono::duration<double>(tables.turn.now() - entry->since).count(),
      std::chrono::duration<double>(tables.options.reclaim_deadline).count());
}

// What of the job's own promise its processes keep.
std::string KeptByIt(const Tables& tables, const JobState& job) {
  const uint64_t kept = tables.ledger.KeptBy(job.entitlement);
  if (kept == 0) return {};
  return fmt::format(
      "; processes of this job still have {} of windows that were taken from it, which count as held: unmap them, or "
      "end these processes",
      FormatBytes(kept));
}

// Why the job's free RAM does not serve, where it is enough. Empty: it is not.
std::string ScatteredNote(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  const uint64_t pages = PagesFor(requested_bytes);
  if (pages == 0 || job.pool.free_pages() < pages || !WithinLimit(tables, job, pages)) return {};
  const uint64_t bound = job.pool.bound_free_pages() * kPageSize;
  std::string text = fmt::format(
      "; that is enough, but it lies in {} free blocks of 2 MiB and in gaps of {} at most between other tensors",
      job.pool.free_block_count(), FormatBytes(job.pool.longest_hole() * kPageSize));
  if (bound != 0) {
    text += fmt::format(", {} of it beside leased tensors, where only what is smaller than 2 MiB can lie",
                        FormatBytes(bound));
  }
  return text + ", and what lies between could not be moved: it is leased, being created, or on its way to a device";
}

// The quota of its user, where that keeps the job from so many bytes.
std::string QuotaNote(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  const Ledger& ledger = tables.ledger;
  const uint64_t allowed = ledger.AllowedTo(job.entitlement);
  const EntitledUser& user = ledger.UserOf(job.entitlement);
  std::string by_others;
  if (QuotaTaken(tables, job)) {
    by_others = fmt::format("; they have windows of {}, some of them more than their parts", FormatBytes(user.taken));
  } else if (!ledger.BoundByQuota(job.entitlement) || ledger.HeldBy(job.entitlement) + requested_bytes <= allowed) {
    return {};
  }
  return fmt::format(
      "; user {} may have {} of RAM ({}): its jobs are guaranteed {} of that and share the rest, this job may have {}, "
      "with {} of the user that {} sessions{}",
      job.record.uid, FormatBytes(user.quota.ram.most), DescribeOrigin(user.quota.ram.origin, "jobs"),
      FormatBytes(user.guaranteed), FormatBytes(allowed), base::Counted(user.live, "job"),
      user.live == 1 ? "has" : "have", by_others);
}

proto::ErrorRecord Figures(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  return {.requested = requested_bytes,
          .available = job.pool.free_pages() * kPageSize,
          .limit = tables.ledger.LeaseMax(job.entitlement)};
}

// Who leases the piece, or any, as far as a look at some sessions' newest leases tells.
std::string HoldersOf(const Tables& tables, const JobState& job, TensorIndex tensor, std::optional<uint32_t> piece) {
  constexpr uint32_t kScannedMax = 256;     // Of one session.
  constexpr uint32_t kScannedInAll = 1024;  // And of all.
  std::string text;
  size_t named = 0;
  uint32_t scanned_in_all = 0;
  for (const SessionState* session : job.sessions) {
    uint32_t scanned = 0;
    LeaseIndex index = session->record.leases;
    for (; index != kNoLease && scanned < kScannedMax; index = tables.leases[index].next, ++scanned) {
      const Lease& lease = tables.leases[index];
      if (lease.tensor == tensor && (!piece || *piece - lease.first_piece < lease.piece_count)) break;
    }
    scanned_in_all += scanned + 1;
    if (named == kNamedMax || scanned_in_all > kScannedInAll) break;
    if (index == kNoLease || scanned == kScannedMax) continue;
    text += fmt::format("{}session {} ({})", named++ == 0 ? "" : ", ", static_cast<uint64_t>(session->id),
                        tables.leases[index].exclusive() ? "writing" : "reading");
  }
  return text.empty() ? "another request" : text;
}

// What would make room for so many bytes: that depends on whose leases hold it.
const char* Advice(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  const bool by_quota = tables.ledger.BoundByQuota(job.entitlement);
  if (by_quota && requested_bytes > tables.ledger.UserOf(job.entitlement).quota.ram.most)
    return "have an administrator raise the quota (tierctl quota set)";
  if (by_quota && requested_bytes > tables.ledger.AllowedTo(job.entitlement)) {
    return "close other jobs of this user, or have an administrator raise the quota (tierctl quota set)";
  }
  if (requested_bytes > tables.ledger.LeaseMax(job.entitlement)) return "raise the job's limit or the arena";
  if (QuotaTaken(tables, job)) {
    return "release leases of the user's other jobs, or have an administrator raise the quota (tierctl quota set)";
  }
  if (tables.ledger.HeldBy(job.entitlement) + requested_bytes <= tables.ledger.AllowedTo(job.entitlement)) {
    return tables.ledger.LeasedBy(job.entitlement) == 0
               ? "wait until the other jobs release leases, guarantee more to this job, or raise the arena"
               : "release leases of this job or of the others, guarantee more to this job, or raise the arena";
  }
  if (by_quota) return "release leases, or have an administrator raise the user's quota (tierctl quota set)";
  return "release leases, or raise the job's limit or the arena";
}

// Why so many bytes cannot be had, in the order in which an operator would look.
RefusalReason MemoryReason(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  if (requested_bytes > tables.ledger.LeaseMax(job.entitlement)) return RefusalReason::kLimit;
  if (QuotaTaken(tables, job)) return RefusalReason::kLimit;
  if (tables.ledger.returning_bytes() != 0) return RefusalReason::kNotReturned;
  const uint64_t reachable = tables.ports.windows.arena_max_bytes();
  const bool short_of_host = reachable < tables.ledger.arena_bytes() && tables.ports.windows.arena_bytes() >= reachable;
  return short_of_host ? RefusalReason::kHostMemory : RefusalReason::kArena;
}

// Other jobs lease so much beyond their guarantees that these leases would reach into what is guaranteed.
Refusal OtherLeasesRefusal(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  Refusal refusal{.code = Code::kNoMemory, .detail = {}, .reason = RefusalReason::kOtherLeases};
  refusal.record = Figures(tables, job, requested_bytes);
  const uint64_t most = tables.ledger.NotGuaranteed();
  refusal.record.available = most - std::min(most, tables.ledger.leased_beyond());
  refusal.detail = fmt::format(
      "{} asked for; the job leases {} of {} guaranteed to it, and of {} that no job is guaranteed, jobs lease {}: {}; "
      "wait for their leases to end, or guarantee more to this job",
      FormatBytes(requested_bytes), FormatBytes(tables.ledger.LeasedBy(job.entitlement)),
      FormatBytes(job.record.guarantee_bytes), FormatBytes(most), FormatBytes(tables.ledger.leased_beyond()),
      OtherHolders(tables, job));
  return refusal;
}

}  // namespace

Refusal HeldBackRefusal(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  Refusal refusal{.code = Code::kNoMemory, .detail = {}, .reason = RefusalReason::kOtherLeases};
  refusal.record = Figures(tables, job, requested_bytes);
  refusal.detail = fmt::format(
      "{} asked for; the job leases {} of {} that it is promised, and gets no leases beyond that while other jobs wait "
      "for memory; end leases, or guarantee more to this job",
      FormatBytes(requested_bytes), FormatBytes(tables.ledger.LeasedBy(job.entitlement)),
      FormatBytes(tables.ledger.PromisedTo(job.entitlement)));
  return refusal;
}

namespace {

std::string UnfinishedSwapOf(const SessionState& session) {
  return fmt::format("under an unfinished swap_out of session {}", static_cast<uint64_t>(session.id));
}

bool Flushes(const Waiter& waiter) { return waiter.op == proto::Op::kFlush || waiter.op == proto::Op::kPersist; }

// "writes to SSD device 0 are not finishing, the last one ended 3.9 s ago; " for devices that hang. Empty: none does.
std::string Unfinished(const Tables& tables, storage::Direction direction) {
  constexpr base::Duration kTold = std::chrono::seconds(1);
  const char* const what = direction == storage::Direction::kWrite ? "writes to" : "reads from";
  std::string text;
  for (uint16_t device = 0; device < tables.devices.count(); ++device) {
    const base::Duration silence = tables.devices[device].health.SilenceOf(direction, tables.turn.now());
    if (silence < kTold) continue;
    text += fmt::format("{} SSD device {} are not finishing: nothing has come back for {:.1f} s; ", what, device,
                        std::chrono::duration<double>(silence).count());
  }
  return text;
}

Refusal FlushRefusal(const Tables& tables, const Waiter& waiter) {
  const JobState& job = *waiter.job;
  if (waiter.committing()) {
    return {Code::kTimeout,
            "the index had not answered at the deadline: an SSD device, or the disk of daemon.data_directory, is slow; "
            "the manifest may be committed yet; persist again to be sure",
            {}};
  }
  if (job.failures.in_a_row() != 0) return WriteFailureRefusal(tables, waiter);
  Refusal refusal{.code = Code::kTimeout};
  std::string next;
  const uint32_t at = waiter.flush().written.item;
  if (at < waiter.items.size() && tables.Alive(waiter.items[at].tensor)) {
    const TensorIndex index = waiter.items[at].tensor.index;
    refusal.record.tensor = tables.tensors[index].id;
    const SessionState* swapper = SwapperOf(tables, index, {0, tables.tensors[index].piece_count}, nullptr);
    next = fmt::format(", tensor {:#x} was {}", refusal.record.tensor,
                       swapper == nullptr ? "not" : UnfinishedSwapOf(*swapper));
  }
  const std::string unfinished = Unfinished(tables, storage::Direction::kWrite);
  refusal.detail = fmt::format(
      "{} of {} tensors were on SSD at the deadline{}; {} of the job wait to be written and {}; {}{}ask again for the "
      "rest",
      at, waiter.items.size(), next, FormatBytes(job.pages.dirty() * kPageSize), Holders(job), unfinished,
      unfinished.empty() ? "end write leases, and " : "see 'tierctl device list', and ");
  return refusal;
}

}  // namespace

Refusal OwnLeasesRefusal(const Tables& tables, const SessionState& session, uint64_t tensor) {
  std::string list;
  uint32_t named = 0;
  for (LeaseIndex index = session.record.leases; index != kNoLease && named < kNamedMax;
       index = tables.leases[index].next, ++named) {
    const Lease& lease = tables.leases[index];
    list += fmt::format("{}{} of tensor {:#x} bytes {} + {}", named == 0 ? "" : ", ",
                        lease.exclusive() ? "writing" : "reading", tables.tensors[lease.tensor].id, lease.offset,
                        lease.length);
  }
  Refusal refusal{.code = Code::kWouldDeadlock};
  refusal.record = Figures(tables, *session.job, 0);
  refusal.record.tensor = tensor;
  if (session.record.lease_count == 0) {
    refusal.detail =
        "only what this session has begun itself stands in the way, a tensor that it has not filled or a swap that has "
        "not ended: end that first";
    return refusal;
  }
  refusal.detail =
      fmt::format("only leases of this session stand in the way ({} ranges, {}): {}{}{}; release some first",
                  session.record.lease_count, FormatBytes(session.record.leased_bytes), list,
                  named < session.record.lease_count ? ", ..." : "",
                  tensor == 0 ? GuaranteesNote(tables, *session.job) : std::string());
  return refusal;
}

Refusal BlockedRefusal(const Tables& tables, const Ask& ask, const ConflictCheck& at) {
  const WaitItem& item = ask.items[at.item];
  const Tensor& tensor = tables.tensors[item.tensor.index];
  Refusal refusal{.code = Code::kTimeout, .detail = {}, .reason = RefusalReason::kConflict};
  refusal.record = {.tensor = tensor.id, .requested = item.length, .limit = tensor.size};
  const char* what = ask.exclusive() ? "writing" : "reading";
  switch (at.cause) {
    case ConflictCause::kUnsealed:
      refusal.detail = fmt::format(
          "tensor {:#x} is still being created by session {}: not every range was sealed; ask again "
          "when it is",
          tensor.id, tensor.creator);
      break;
    case ConflictCause::kTransfer:
      refusal.detail =
          fmt::format("tensor {:#x} at byte {} is on its way to or from a device; {} it has to wait, ask again",
                      tensor.id, uint64_t{at.piece} * kBlockSize, what);
      break;
    case ConflictCause::kUpdate: {
      const PieceRange range{item.first_piece, item.piece_count};
      const SessionState* swapper = SwapperOf(tables, item.tensor.index, range, ask.session);
      refusal.detail = fmt::format("{} tensor {:#x} has to wait: it is {}; ask again when that has ended", what,
                                   tensor.id, swapper == nullptr ? "free now" : UnfinishedSwapOf(*swapper));
      break;
    }
    case ConflictCause::kAnyLease:
      refusal.detail = fmt::format("freeing tensor {:#x} has to wait for {}; ask again when that has ended", tensor.id,
                                   HoldersOf(tables, tables.JobOf(tensor), item.tensor.index, std::nullopt));
      break;
    case ConflictCause::kClaim:
    case ConflictCause::kLease:
    case ConflictCause::kNone:
      refusal.detail = fmt::format("{} tensor {:#x} at byte {} has to wait for {}; ask again when that has ended", what,
                                   tensor.id, uint64_t{at.piece} * kBlockSize,
                                   HoldersOf(tables, tables.JobOf(tensor), item.tensor.index, at.piece));
      break;
  }
  return refusal;
}

Refusal NoMemoryRefusal(const Tables& tables, const JobState& job, uint64_t requested_bytes) {
  Refusal refusal{.code = Code::kNoMemory, .detail = {}, .reason = MemoryReason(tables, job, requested_bytes)};
  refusal.record = Figures(tables, job, requested_bytes);
  const std::string others = OtherHolders(tables, job);
  refusal.detail = fmt::format(
      "{} of RAM asked for, {} free in the job's windows ({} held, share {}){}; {}{}; of the arena of {} all jobs hold "
      "{}{}{}{}{}; {}{}{}",
      FormatBytes(requested_bytes), FormatBytes(refusal.record.available),
      FormatBytes(tables.ledger.HeldBy(job.entitlement)), FormatBytes(refusal.record.limit),
      ScatteredNote(tables, job, requested_bytes), Holders(job), QuotaNote(tables, job, requested_bytes),
      FormatBytes(tables.ledger.arena_bytes()), FormatBytes(tables.ports.windows.arena_bytes()), HostShortage(tables),
      others.empty() ? "" : ": ", others, Debtors(tables), Advice(tables, job, requested_bytes), OwedSince(tables, job),
      KeptByIt(tables, job));
  return refusal;
}

// "the SSD device /a is missing since the start (tierctl device list)", where no device is here. Empty: one is, or none
// is configured.
std::string MissingSinceStart(const Tables& tables) {
  if (tables.ports.extents.device_count() != 0 || tables.ports.manifests == nullptr) return {};
  for (const storage::MissingDevice& device : tables.ports.manifests->missing_devices()) {
    if (device.is_configured)
      return fmt::format("the SSD device {} is missing since the start (tierctl device list)", device.path);
  }
  return {};
}

Refusal WriteFailureRefusal(const Tables& tables, const Waiter& waiter) {
  const WriteFailure& last = waiter.job->failures.last();
  Refusal refusal{.code = last.code == Code::kOk ? Code::kNoSpace : last.code};
  const storage::DeviceSpace space = tables.ports.extents.usable();
  refusal.record = {
      .tensor = last.tensor, .requested = waiter.requested_bytes, .available = space.free, .limit = space.capacity};
  const std::string missing = MissingSinceStart(tables);
  const std::string& why = missing.empty() ? last.message : missing;
  const std::string room = fmt::format("SSD ({} free of {})", FormatBytes(space.free), FormatBytes(space.capacity));
  refusal.detail =
      Flushes(waiter)
          ? fmt::format(
                "not all of it could be written to {}: {}; nothing of it is lost while the daemon runs: ask "
                "again when 'tierctl device list' shows a device that takes writes",
                room, why)
          : fmt::format("{} of RAM can only be had by writing to {}, and that fails: {}",
                        FormatBytes(waiter.requested_bytes), room, why);
  const std::string scattered = ScatteredNote(tables, *waiter.job, waiter.requested_bytes);
  if (!Flushes(waiter) && !scattered.empty()) {
    refusal.detail += fmt::format("; of the job's own RAM {} are free{}",
                                  FormatBytes(waiter.job->pool.free_pages() * kPageSize), scattered);
  }
  return refusal;
}

Refusal DeadlineRefusal(const Tables& tables, const Waiter& waiter) {
  if (Flushes(waiter)) return FlushRefusal(tables, waiter);
  if (const ScanWait* scan = std::get_if<ScanWait>(&waiter.kind)) {
    const uint64_t gone = scan->scan.item;
    return {Code::kTimeout,
            fmt::format("{} of {} tensors were gone through at the deadline; ask again for the rest", gone,
                        waiter.items.size()),
            {.requested = waiter.items.size(), .available = gone}};
  }
  const Ask ask = AskOf(tables, waiter);
  const JobState& job = *waiter.job;
  ConflictCheck found;
  const Conflict& last = *ConflictOf(waiter.kind);
  if (last.blocked) found = CheckConflictAt(tables, ask, last.at.item, last.at.piece);
  if (found.outcome != ConflictOutcome::kBlocked) found = CheckConflicts(tables, ask);
  if (found.outcome == ConflictOutcome::kRefused) return RefusalOf(tables, ask, found);
  if (found.outcome == ConflictOutcome::kBlocked) {
    const bool own = OwnLeasesBlock(tables, *ask.session, found, ask);
    const uint64_t tensor = tables.tensors[ask.items[found.item].tensor.index].id;
    return own ? OwnLeasesRefusal(tables, *ask.session, tensor) : BlockedRefusal(tables, ask, found);
  }
  if (std::holds_alternative<FreeWait>(waiter.kind)) {
    return {
        Code::kTimeout, "nothing stands in its way any more, but its turn had not come at the deadline; ask again", {}};
  }
  const LeaseFit fit = FitOfLeases(tables, ask);
  if (fit == LeaseFit::kHeldBack) return HeldBackRefusal(tables, job, waiter.requested_bytes);
  if (fit == LeaseFit::kOtherLeases) return OtherLeasesRefusal(tables, job, waiter.requested_bytes);
  const bool beyond = fit == LeaseFit::kOwnLeases && OnlyOwnLeases(*ask.session);
  if (beyond || OwnLeasesHoldRoom(tables, *ask.session)) return OwnLeasesRefusal(tables, *ask.session, 0);
  if (job.failures.in_a_row() >= kWriteFailuresBeforeRefusal) return WriteFailureRefusal(tables, waiter);
  Refusal refusal = NoMemoryRefusal(tables, job, waiter.requested_bytes);
  const LeaseWait* lease = std::get_if<LeaseWait>(&waiter.kind);
  if (lease != nullptr && lease->starved) {
    // The rest of the sentence would have it that leases are in the way.
    const std::string unfinished = Unfinished(tables, storage::Direction::kWrite);
    if (!unfinished.empty() && job.transfers.writing_pages() != 0) {
      refusal.detail = fmt::format(
          "{} of RAM can only be had by writing to SSD, but {}see 'tierctl device list', and "
          "ask again",
          FormatBytes(waiter.requested_bytes), unfinished);
    }
    return refusal;
  }
  refusal.code = Code::kTimeout;
  refusal.reason = RefusalReason::kDeadline;
  const std::string unfinished = Unfinished(tables, storage::Direction::kRead);
  refusal.detail = "its bytes were still being read when the deadline passed; " +
                   (unfinished.empty() ? refusal.detail : unfinished + "see 'tierctl device list', and ask again");
  return refusal;
}

}  // namespace tier::tiering
