// The ledger of SSD space against a model that adds everything up each time: no job gets what others are guaranteed,
// and what is given fits the capacity.
#include "daemon/tiering/tables/storage_ledger.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace tier::tiering {
namespace {

constexpr uint64_t kCapacity = 1 * kGiB;
constexpr uint32_t kUids = 4;  // Users are 1 to 3.

struct Model {
  struct Job {
    uint32_t uid = 0;
    Terms terms;
    uint64_t used = 0;
    uint64_t claim() const { return std::max(used, terms.guarantee_bytes); }
  };
  std::map<uint32_t, Job> jobs;

  uint64_t Others(uint32_t job) const {
    uint64_t sum = 0;
    for (const auto& [id, other] : jobs) sum += id == job ? 0 : other.claim();
    return sum;
  }
  uint64_t OfUser(uint32_t uid, uint32_t except) const {
    uint64_t sum = 0;
    for (const auto& [id, other] : jobs) sum += id != except && other.uid == uid ? other.claim() : 0;
    return sum;
  }
  uint64_t used() const {
    uint64_t sum = 0;
    for (const auto& [id, job] : jobs) sum += job.used;
    return sum;
  }
};

enum class Quotas : uint8_t { kStay, kChange };

void Run(uint64_t quota, Quotas quotas = Quotas::kStay) {
  StorageLedger ledger;
  std::map<uint32_t, QuotaLimit> limits;
  for (uint32_t uid = 1; uid < kUids; ++uid) limits[uid] = {.most = quota};
  Model model;
  uint32_t next = 0;
  for (int step = 0; step < 60; ++step) {
    const auto what = *rc::gen::inRange(0, quotas == Quotas::kChange ? 11 : 10);
    if (what < 2 || model.jobs.empty()) {
      const Model::Job job{.uid = *rc::gen::inRange(1u, kUids),
                           .terms = {.guarantee_bytes = *rc::gen::inRange<uint64_t>(0, kCapacity / 3)}};
      const QuotaLimit& limit = limits[job.uid];
      if (!ledger.AdmitGuarantee(job.uid, kNoEntitlement, job.terms.guarantee_bytes, {kCapacity, 0}, limit)) continue;
      ledger.Open(EntitlementIndex{next}, job.uid, job.terms, limit);
      model.jobs.emplace(next++, job);
      continue;
    }
    auto at = model.jobs.begin();
    std::advance(at, *rc::gen::inRange<size_t>(0, model.jobs.size()));
    const EntitlementIndex index{at->first};
    Model::Job& job = at->second;
    if (what == 2) {
      ledger.SubtractUsed(index, job.used);
      ledger.End(index);
      ledger.Remove(index);
      model.jobs.erase(at);
    } else if (what == 3) {
      const uint64_t less = *rc::gen::inRange<uint64_t>(0, job.used + 1);
      ledger.SubtractUsed(index, less);
      job.used -= less;
    } else if (what == 4) {
      const Terms terms{.guarantee_bytes = *rc::gen::inRange<uint64_t>(0, kCapacity / 3)};
      if (!ledger.AdmitGuarantee(job.uid, index, terms.guarantee_bytes, {kCapacity, 0}, limits[job.uid])) continue;
      ledger.Set(index, terms);
      job.terms = terms;
    } else if (what == 10) {
      const bool none = *rc::gen::inRange(0, 4) == 0;
      limits[job.uid].most = none ? kUnlimited : *rc::gen::inRange<uint64_t>(0, kCapacity);
      ledger.SetQuota(job.uid, limits[job.uid]);
    } else {
      const uint64_t allowed = ledger.RoomOf(index, {kCapacity, 0}).allowed;
      const uint64_t others = model.Others(at->first);
      RC_ASSERT(others + std::max(allowed, job.claim()) <= kCapacity);
      // No one was admitted into it; a quota that was lowered may reach into it.
      RC_ASSERT(allowed >= job.terms.guarantee_bytes || quotas == Quotas::kChange);
      const uint64_t of_user = model.OfUser(job.uid, at->first);
      const uint64_t left = kCapacity - (others - of_user);
      const uint64_t for_user = left - left / 32;
      RC_ASSERT(allowed <= std::max(job.terms.guarantee_bytes, for_user - std::min(for_user, of_user)));
      RC_ASSERT(allowed == 0 || of_user + allowed <= limits[job.uid].most);
      RC_ASSERT(of_user + job.claim() <= limits[job.uid].most || quotas == Quotas::kChange);
      const uint64_t asked = *rc::gen::inRange<uint64_t>(0, kCapacity / 4);
      if (job.used + asked > allowed) continue;
      ledger.AddUsed(index, asked);
      job.used += asked;
    }
    RC_ASSERT(model.used() <= kCapacity);
    ledger.CheckInvariants();
  }
}

RC_GTEST_PROP(StorageLedgerProperty, NobodyGetsWhatOthersAreGuaranteed, ()) { Run(kUnlimited); }
RC_GTEST_PROP(StorageLedgerProperty, NobodyGetsBeyondTheQuotaOfItsUser, ()) { Run(kCapacity / 2); }
RC_GTEST_PROP(StorageLedgerProperty, NobodyGetsBeyondAQuotaThatChanges, ()) { Run(kUnlimited, Quotas::kChange); }

}  // namespace
}  // namespace tier::tiering
