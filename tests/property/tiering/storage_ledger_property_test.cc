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

void Run(uint64_t quota) {
  StorageLedger ledger;
  const QuotaLimit limit{.most = quota};
  Model model;
  uint32_t next = 0;
  for (int step = 0; step < 60; ++step) {
    const auto what = *rc::gen::inRange(0, 10);
    if (what < 2 || model.jobs.empty()) {
      const Model::Job job{.uid = *rc::gen::inRange(1u, 4u),
                           .terms = {.guarantee_bytes = *rc::gen::inRange<uint64_t>(0, kCapacity / 3)}};
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
      if (!ledger.AdmitGuarantee(job.uid, index, terms.guarantee_bytes, {kCapacity, 0}, limit)) continue;
      ledger.Set(index, terms);
      job.terms = terms;
    } else {
      const uint64_t allowed = ledger.RoomOf(index, {kCapacity, 0}).allowed;
      const uint64_t others = model.Others(at->first);
      RC_ASSERT(others + std::max(allowed, job.claim()) <= kCapacity);
      RC_ASSERT(allowed >= job.terms.guarantee_bytes);  // No one was admitted into it.
      const uint64_t of_user = model.OfUser(job.uid, at->first);
      const uint64_t left = kCapacity - (others - of_user);
      const uint64_t for_user = left - left / 32;
      RC_ASSERT(allowed <= std::max(job.terms.guarantee_bytes, for_user - std::min(for_user, of_user)));
      RC_ASSERT(model.OfUser(job.uid, at->first) + std::max(allowed, job.claim()) <= quota);
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

}  // namespace
}  // namespace tier::tiering
