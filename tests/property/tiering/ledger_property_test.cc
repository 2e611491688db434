// The ledger of entitlement against a model that adds everything up for each question.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kWindow = 2 * kMiB;

struct ModelJob {
  EntitlementSlot slot{};
  uint32_t uid = 0;
  Terms terms;
  bool live = false;
  uint64_t windows = 0;
  uint64_t leased = 0;
  bool equal_part() const { return live && terms.guarantee_bytes == 0; }
};

class Model {
 public:
  explicit Model(uint64_t arena) : arena_(arena), ledger_(arena, kWindow) {}

  // One step of the program: `what` chooses it, the others its job and figures.
  void Step(uint8_t what, uint8_t who, uint16_t amount) {
    const Terms terms{.guarantee_bytes = amount % 3 == 0 ? 0 : amount * kPageSize,
                      .limit_bytes = amount % 5 == 0 ? std::max<uint64_t>(amount, 1) * 2 * kPageSize : 0};
    if (what % 8 == 0 || jobs_.empty()) return Open(who % 5, terms);
    auto job = std::next(jobs_.begin(), who % jobs_.size());
    ModelJob& entry = job->second;
    switch (what % 8) {
      case 1: return Close(job);
      case 2: return Set(entry, terms);
      case 3: return SetLive(entry, amount % 2 == 0);
      case 4: return Lease(entry, amount);
      case 5: return Grow(entry);
      case 6: return Shrink(entry);
      default: return ledger_.Claim(entry.slot, amount * kPageSize, now_);
    }
  }

  void Check() {
    ledger_.CheckInvariants();
    uint64_t promised = 0;
    for (const auto& [id, job] : jobs_) promised += PromisedTo(job);
    RC_ASSERT(promised + PartForNobody() <= arena_);
    bool anybody_owed = false;
    for (const auto& [id, job] : jobs_) {
      const uint64_t mine = PromisedTo(job);
      const uint64_t held = job.windows * kWindow;
      RC_ASSERT(ledger_.PromisedTo(job.slot) == mine);
      RC_ASSERT(ledger_.AllowedTo(job.slot) == AllowedTo(job));
      const uint64_t firm = std::max(arena_ - PartForNobody() - (promised - mine), kWindow);
      RC_ASSERT(ledger_.FirmBytes(job.slot) == std::min(AllowedTo(job), firm));
      RC_ASSERT(ledger_.Deficit(job.slot) == (mine > held ? mine - held : 0));
      RC_ASSERT(ledger_.Surplus(job.slot) == (held > mine ? held - mine : 0));
      RC_ASSERT(ledger_.HeldBy(job.slot) == held && ledger_.LeasedBy(job.slot) == job.leased);
      const uint64_t others = Guaranteed() - job.terms.guarantee_bytes;
      RC_ASSERT(ledger_.MayLease(job.slot, kPageSize) == (others == 0 || job.leased + kPageSize <= arena_ - others));
      RC_ASSERT(held < mine || ledger_.MayGrow(job.slot) == !ledger_.anybody_owed());
      anybody_owed |= held < mine;
    }
    RC_ASSERT(!ledger_.anybody_owed() || anybody_owed);
  }

 private:
  uint64_t PartForNobody() const { return std::min(std::max(kWindow, arena_ / 16), arena_ / 2); }
  uint64_t AllowedTo(const ModelJob& job) const {
    return job.terms.limit_bytes == 0 ? arena_ : std::min(job.terms.limit_bytes, arena_);
  }
  uint64_t Guaranteed() const {
    uint64_t sum = 0;
    for (const auto& [id, job] : jobs_) sum += job.terms.guarantee_bytes;
    return sum;
  }
  uint64_t PromisedTo(const ModelJob& job) const {
    if (!job.equal_part()) return job.terms.guarantee_bytes;
    std::set<uint32_t> users;
    uint64_t siblings = 0;
    for (const auto& [id, other] : jobs_) {
      if (!other.equal_part()) continue;
      users.insert(other.uid);
      siblings += other.uid == job.uid ? 1 : 0;
    }
    const uint64_t part = (arena_ - PartForNobody() - Guaranteed()) / users.size() / siblings;
    return std::min(AllowedTo(job), part / kPageSize * kPageSize);
  }

  static bool Sound(const Terms& terms) { return terms.limit_bytes == 0 || terms.guarantee_bytes <= terms.limit_bytes; }
  void Open(uint32_t uid, const Terms& terms) {
    if (!Sound(terms) || !ledger_.AdmitGuarantee(uid, kNoEntitlement, terms.guarantee_bytes)) return;
    const uint64_t id = next_id_++;
    jobs_[id] = {.slot = ledger_.Open(JobId{id}, uid, terms), .uid = uid, .terms = terms};
  }
  void Close(std::map<uint64_t, ModelJob>::iterator job) {
    ledger_.End(job->second.slot);
    ledger_.SubtractLeased(job->second.slot, job->second.leased);
    ledger_.Remove(job->second.slot);
    jobs_.erase(job);
  }
  void Set(ModelJob& job, const Terms& terms) {
    if (!Sound(terms) || !ledger_.AdmitGuarantee(job.uid, job.slot, terms.guarantee_bytes)) return;
    ledger_.Set(job.slot, terms);
    job.terms = terms;
  }
  void SetLive(ModelJob& job, bool live) {
    ledger_.SetLive(job.slot, live);
    job.live = live;
  }
  void Lease(ModelJob& job, uint64_t pages) {
    ledger_.SubtractLeased(job.slot, job.leased);
    job.leased = pages * kPageSize;
    ledger_.AddLeased(job.slot, job.leased);
  }
  void Grow(ModelJob& job) {
    ++job.windows;
    ledger_.AddHeld(job.slot, kWindow);
  }
  void Shrink(ModelJob& job) {
    if (job.windows == 0) return;
    --job.windows;
    ledger_.SubtractHeld(job.slot, kWindow);
  }

  uint64_t arena_;
  Ledger ledger_;
  std::map<uint64_t, ModelJob> jobs_;
  uint64_t next_id_ = 1;
  base::TimePoint now_;
};

RC_GTEST_PROP(LedgerProperty, AnswersAsIfItAddedUpEachTime,
              (const std::vector<std::tuple<uint8_t, uint8_t, uint16_t>>& steps, uint8_t windows)) {
  Model model((windows % 64 + 1) * kWindow);
  for (const auto& [what, who, amount] : steps) {
    model.Step(what, who, amount);
    model.Check();
  }
}

}  // namespace
}  // namespace tier::tiering
