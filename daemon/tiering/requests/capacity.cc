// See capacity.h.
#include "daemon/tiering/requests/capacity.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/tiering/requests/holders.h"
#include "daemon/tiering/tables/storage_capacity.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

// What the tensors of a job may take in all.
struct Capacity {
  uint64_t bytes = 0;
  uint64_t ssd = 0;     // That the devices can hold, of all jobs.
  uint64_t space = 0;   // Of which `room` is a part: `ssd`, or of RAM what is promised to jobs.
  bool in_ram = false;  // What the job may always have in RAM bounds it: the devices hold less, or are none.
  StorageLedger::Room room;
};

// Of what RAM holds: what the job is promised, as far as others leave it that. Where they leave less, it has a part of
// what is promised to no job, so that a new job can start: a quarter of that is for what no move packs closer.
uint64_t OwnPart(const Tables& tables, const JobState& job) {
  const uint64_t for_next = tables.ledger.PartForNobody();
  const uint64_t ram = tables.ledger.arena_bytes() - for_next;
  const uint64_t kept = KeptBy(tables, job.record.uid);
  const StorageLedger::Room room = tables.storage.RoomOf(job.entitlement, {ram + for_next - for_next / 4, kept});
  return std::min(tables.ledger.PromisedTo(job.entitlement), std::max(ram - std::min(ram, room.others), room.allowed));
}

Capacity CapacityOf(const Tables& tables, const JobState& job) {
  Capacity capacity{.ssd = StorageCapacity(tables)};
  capacity.space = capacity.ssd;
  const uint64_t kept = KeptBy(tables, job.record.uid);
  capacity.room = tables.storage.RoomOf(job.entitlement, {capacity.ssd, kept});
  capacity.bytes = capacity.room.allowed;
  const uint64_t ram = tables.ledger.arena_bytes() - tables.ledger.PartForNobody();
  if (capacity.ssd >= ram) return capacity;
  // RAM holds more: what no other job has or is guaranteed, there as on SSD.
  const StorageLedger::Room room = tables.storage.RoomOf(job.entitlement, {ram, kept});
  const uint64_t unguaranteed = std::min(tables.ledger.LeasableBy(job.entitlement), tables.ledger.arena_bytes());
  const uint64_t own = unguaranteed - std::min(unguaranteed, tables.ledger.PartForNobody());
  const uint64_t allowed = room.by_limit || room.by_quota ? room.allowed : std::max(room.allowed, OwnPart(tables, job));
  // It grows no further where SSD devices have no room for what it would have to give back, and by whole windows.
  const uint64_t window = tables.windows.grain();
  const uint64_t reach = tables.ledger.FirmBytes(job.entitlement) / window * window;
  // What it is guaranteed in RAM can be had there whatever others have, be it only for the reason that no device takes
  // anything more.
  const bool bounded = room.by_limit || room.by_quota;
  const uint64_t guaranteed = tables.ledger.GuaranteeOf(job.entitlement);
  const uint64_t promised = std::max(std::min(tables.storage.GuaranteeOf(job.entitlement), allowed),
                                     bounded ? std::min(guaranteed, allowed) : guaranteed);
  const uint64_t firm = std::max(std::min({reach, own, allowed}), promised);
  if (firm <= capacity.bytes) return capacity;
  capacity.room = room;
  capacity.space = ram;
  capacity.bytes = firm;
  capacity.in_ram = firm < allowed || !(room.by_limit || room.by_quota);
  return capacity;
}

// What enlarges the tier. The restart ends all jobs: it is named last.
constexpr char kLargerTier[] =
    "restart tierd, which ends all jobs, with a larger ssd.file_size or one more device in ssd.devices (a private "
    "daemon: tierd.connect(ssd=...))";

uint64_t LeftByOthers(const Capacity& capacity) {
  return capacity.space - std::min(capacity.space, capacity.room.others);
}

// What may be taken from the job's user: only what there is.
std::string OwnRemedies(const Tables& tables, const JobState& job, const Capacity& capacity) {
  const uint64_t kept = KeptBy(tables, job.record.uid);
  std::string remedies = "free tensors of this job";
  if (capacity.room.of_user > kept) remedies += ", or of that user's other jobs";
  if (kept != 0)
    remedies += ", or give up what that user persisted: persist again, or tierctl job remove --purge of closed jobs";
  return remedies;
}

// The remedy that lifts one bound, where the next one, what other jobs leave, does not refuse the same.
std::string UnlessOthersLeaveLess(const Capacity& capacity, uint64_t needed, const std::string& remedy) {
  const uint64_t left = LeftByOthers(capacity);
  if (needed <= left) return ", or " + remedy;
  return fmt::format(
      "; no more than {} could be had otherwise, as there is room for {} and other jobs have or are "
      "guaranteed {}",
      FormatBytes(left), FormatBytes(capacity.space), FormatBytes(capacity.room.others));
}

// Who has the RAM that the job lacks: what SSD has no room for comes back only as they free tensors, or return windows.
std::string HeldByOthers(Tables& tables, const JobState& job) {
  tables.work.Charge(kRefusalCost);
  const std::string others = OtherHolders(tables, job);
  const std::string arena = FormatBytes(tables.ledger.arena_bytes());
  return (others.empty() ? "" : fmt::format("; of the arena of {} {}", arena, others)) + GuaranteesNote(tables, job) +
         Debtors(tables);
}

std::string BoundByRam(Tables& tables, const JobState& job, const Capacity& capacity, uint64_t needed) {
  // A guarantee is memory that others do not have.
  const char* const guarantee =
      needed <= LeftByOthers(capacity)
          ? ", raise the job's guarantee as far as other jobs leave it (tierctl job set --guarantee)"
          : "";
  const std::string held = HeldByOthers(tables, job);
  if (tables.ports.extents.device_count() == 0) {
    return fmt::format(
        "the job may always hold {} in RAM, and this daemon has no SSD tier{}; free tensors{}, or restart tierd, which "
        "ends all jobs, with an SSD tier (ssd.devices, ssd.file_size; a private daemon: tierd.connect(ssd=...)) or a "
        "larger arena.maximum",
        FormatBytes(capacity.bytes), held, guarantee);
  }
  return fmt::format(
      "the job may always hold {} in RAM, and SSD devices can hold less, {} of all jobs{}{}; free tensors{}, or {}, or "
      "a larger arena.maximum",
      FormatBytes(capacity.bytes), FormatBytes(capacity.ssd), tables.ports.extents.UnusableNote(), held, guarantee,
      kLargerTier);
}

std::string BoundByQuota(const Tables& tables, const JobState& job, const Capacity& capacity, uint64_t needed) {
  const QuotaLimit& quota = tables.storage.QuotaOf(job.entitlement);
  return fmt::format(
      "user {} may have {} on SSD ({}), of which {} are left to this job; {}{}", job.record.uid,
      FormatBytes(quota.most), DescribeOrigin(quota.origin, "jobs.max_ssd_per_uid"), FormatBytes(capacity.bytes),
      OwnRemedies(tables, job, capacity),
      UnlessOthersLeaveLess(capacity, needed, "have an administrator raise the quota (tierctl quota set)"));
}

// The limit is the job's own: it can always be raised, and then gives no more than the user's quota does.
std::string BoundByLimit(const Tables& tables, const JobState& job, const Capacity& capacity, uint64_t needed) {
  const QuotaLimit& quota = tables.storage.QuotaOf(job.entitlement);
  const uint64_t most = quota.any() ? quota.most - std::min(quota.most, capacity.room.of_user) : UINT64_MAX;
  const std::string bound =
      fmt::format("the job may have {} on SSD by its own limit; free tensors of this job", FormatBytes(capacity.bytes));
  if (needed <= most) {
    return bound + UnlessOthersLeaveLess(capacity, needed, "raise the limit (tierctl job set --ssd-limit)");
  }
  return fmt::format("{}; a higher limit gives no more than {}, which the quota of user {} leaves to this job ({})",
                     bound, FormatBytes(most), job.record.uid, DescribeOrigin(quota.origin, "jobs.max_ssd_per_uid"));
}

// What bounds the job, which needs so much in all, and what would give it more. A guarantee of SSD never does: none is
// given beyond what the job may have without it.
std::string Bounds(Tables& tables, const JobState& job, const Capacity& capacity, uint64_t needed) {
  const StorageLedger::Room& room = capacity.room;
  if (capacity.in_ram) return BoundByRam(tables, job, capacity, needed);
  if (room.by_limit) return BoundByLimit(tables, job, capacity, needed);
  if (room.by_quota) return BoundByQuota(tables, job, capacity, needed);
  const std::string devices = fmt::format("SSD devices can hold {} of tensors{}", FormatBytes(capacity.ssd),
                                          tables.ports.extents.UnusableNote());
  if (room.by_user) {
    const uint64_t kept = KeptBy(tables, job.record.uid);
    const uint64_t of_user = room.of_user - kept;
    return fmt::format(
        "{}, other jobs of user {} have or are guaranteed {}{}, jobs of other users {}, and a thirty-second of what "
        "other users leave is for the next user; {}, or {}",
        devices, job.record.uid, FormatBytes(of_user),
        kept == 0 ? std::string() : fmt::format(" and what that user persisted takes {} beside it", FormatBytes(kept)),
        FormatBytes(room.others - of_user), OwnRemedies(tables, job, capacity), kLargerTier);
  }
  return fmt::format(
      "{}, other jobs have or are guaranteed {}, and a sixteenth of the rest is left for the next job; free tensors of "
      "this job{}, or {}",
      devices, FormatBytes(room.others), room.others == 0 ? "" : " or of others, or lower what others are guaranteed",
      kLargerTier);
}

// Of all jobs, with what this one is writing again just now.
uint64_t TakenBesideManifest(const Tables& tables, const JobState& job) {
  return tables.storage.claimed() + job.pages.rewriting() * kPageSize;
}

bool HasRoomBesideManifest(const Tables& tables, const JobState& job, uint64_t pages) {
  const uint64_t capacity = StorageCapacity(tables);
  if (pages * kPageSize <= capacity - std::min(capacity, TakenBesideManifest(tables, job))) return true;
  // None of it need ever leave RAM.
  return tables.storage.UsedBy(job.entitlement) <= tables.ledger.FirmBytes(job.entitlement);
}

}  // namespace

Refusal ExistsRefusal(const Tensor& present, uint64_t requested_bytes) {
  return {Code::kAlreadyExists,
          fmt::format("tensor {:#x} exists, of {} bytes{}; free it first, or acquire it for writing", present.id,
                      present.size, present.has(kVisible) ? "" : ", still being created"),
          {.tensor = present.id, .requested = requested_bytes, .limit = present.size}};
}

std::optional<Refusal> QueueRefusal(const Tables& tables, const JobState& job, const Wanted& wanted) {
  const uint64_t capacity = CapacityOf(tables, job).bytes;
  const uint64_t waiting = job.pages.unnamed() * kPageSize;
  if (waiting + AlignUp(wanted.size, kPageSize) <= capacity) return std::nullopt;
  return Refusal{Code::kTimeout,
                 fmt::format("tensors of {} wait to replace others of the job already, which may hold {} in all: try "
                             "again when some of them have",
                             FormatBytes(waiting), FormatBytes(capacity)),
                 {.tensor = wanted.tensor,
                  .requested = wanted.size,
                  .available = capacity - std::min(capacity, waiting),
                  .limit = capacity}};
}

std::optional<Refusal> CapacityRefusal(Tables& tables, const JobState& job, const Wanted& wanted, uint64_t pages_held) {
  if (wanted.replaced_pages != 0 && PagesOf(wanted.size) <= wanted.replaced_pages) return std::nullopt;
  const Capacity capacity = CapacityOf(tables, job);
  const uint64_t held = pages_held * kPageSize;
  if (wanted.size <= capacity.bytes && held + AlignUp(wanted.size, kPageSize) <= capacity.bytes) return std::nullopt;
  return Refusal{Code::kNoSpace,
                 fmt::format("tensor {:#x} of {} does not fit beside {} of the job's tensors: {}", wanted.tensor,
                             FormatBytes(wanted.size), FormatBytes(held),
                             Bounds(tables, job, capacity, held + AlignUp(wanted.size, kPageSize))),
                 {.tensor = wanted.tensor,
                  .requested = wanted.size,
                  .available = capacity.bytes - std::min(capacity.bytes, held),
                  .limit = capacity.bytes}};
}

std::optional<Refusal> SecondGenerationRefusal(const Tables& tables, const JobState& job, uint64_t tensor,
                                               uint64_t pages) {
  if (pages == 0 || HasRoomBesideManifest(tables, job, pages)) return std::nullopt;
  const uint64_t capacity = StorageCapacity(tables);
  const uint64_t bytes = pages * kPageSize;
  const uint64_t taken = TakenBesideManifest(tables, job);
  return Refusal{
      Code::kNoSpace,
      fmt::format(
          "writing tensor {:#x} needs {} more on SSD, for what the job persisted last stays there until it "
          "persists again: SSD devices can hold {} of tensors beside that{}, jobs have or are guaranteed {}; "
          "persist now, which gives back what was written since, free tensors, or restart tierd, which ends all "
          "jobs, with a larger device in ssd.devices",
          tensor, FormatBytes(bytes), FormatBytes(capacity), tables.ports.extents.UnusableNote(), FormatBytes(taken)),
      {.tensor = tensor, .requested = bytes, .available = capacity - std::min(capacity, taken), .limit = capacity}};
}

std::optional<Refusal> RewriteRefusal(Tables& tables, const JobState& job, std::span<const WaitItem> items) {
  if (job.manifest.empty()) return std::nullopt;
  if (HasRoomBesideManifest(tables, job, job.manifest.size() * kPagesPerBlock)) return std::nullopt;  // For any of it.
  uint64_t pages = 0;
  for (const WaitItem& item : items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    tables.work.Charge(std::min(item.piece_count, tables.work.left()));
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      const Piece& piece = tables.PieceOf(tensor, k);
      if (piece.ssd_run && job.manifest.Names(piece.extent())) pages += piece.ssd_run.pages;
    }
  }
  return SecondGenerationRefusal(tables, job, items.front().id, pages);
}

Status AdmitBesideTensors(const Tables& tables, EntitlementIndex job, uint64_t guarantee_bytes) {
  const uint64_t own = job == kNoEntitlement ? 0 : tables.storage.UsedBy(job);
  TIER_CHECK(own <= tables.storage.used(), "a job uses {} of {}", own, tables.storage.used());
  const uint64_t others = tables.storage.used() - own;
  const uint64_t staying = others - std::min(others, StorageCapacity(tables));
  if (staying == 0) return {};
  uint64_t unfilled = 0;  // Of guarantees of other jobs.
  for (const JobState* const other : tables.jobs.open()) {
    const uint64_t guaranteed = other->record.guarantee_bytes;
    if (other->entitlement == job) {
      if (guarantee_bytes <= guaranteed) return {};  // It takes nothing from others.
    } else {
      unfilled += guaranteed - std::min(guaranteed, tables.storage.UsedBy(other->entitlement));
    }
  }
  const uint64_t divisible = tables.ledger.arena_bytes() - tables.ledger.PartForNobody();
  const uint64_t left = divisible - std::min(divisible, AlignUp(staying, tables.windows.grain()) + unfilled);
  if (guarantee_bytes <= left) return {};
  return Fail(
      Code::kNoMemory,
      fmt::format(
          "a guarantee of {} cannot be given: tensors of other jobs take {}, SSD devices can hold {} of them, "
          "other jobs are guaranteed {} beyond theirs, the arena has {}, of which {} are promised to no job; {} "
          "are left: have those jobs free tensors, or restart tierd, which ends all jobs, with a larger device "
          "in ssd.devices",
          FormatBytes(guarantee_bytes), FormatBytes(others), FormatBytes(StorageCapacity(tables)),
          FormatBytes(unfilled), FormatBytes(tables.ledger.arena_bytes()), FormatBytes(tables.ledger.PartForNobody()),
          FormatBytes(left)));
}

}  // namespace tier::tiering
