// StorageLedger: the one table of how much of the SSD devices each user, and within a user each job, may fill.
// Admission of tensors and of guarantees asks this table and no other. Engine thread only.
//
// Space on SSD cannot be asked back as RAM can: who has a tensor keeps it. So a job is bounded when it creates one. The
// tensors of all jobs must fit the capacity, each piece in whole pages: RAM that a job borrowed goes to others, and
// tensors that RAM and SSD hold only together could not be exchanged (docs/decisions/0020).
//
// Of one job, in bytes:
//   used       its tensors, wherever they lie
//   guarantee  what it may always have; 0: none
//   limit      what it may have at most; 0: no limit. Not below the guarantee
//   claim      the greater one of used and guarantee: other jobs may not have that
//
// A job may have its guarantee or, where that is more, all but a sixteenth of what the claims of the other jobs leave.
// Beyond their guarantees the jobs of a user have together all but a thirty-second of what the claims of other users
// leave. So a job without limit leaves something for the next one, and N jobs of one user for the next user. A user's
// jobs claim at most its quota together. What manifests of the user's jobs keep beside pieces, also of jobs that are
// closed, counts as the user's too (`kept`).
//
// The capacity comes with each question: it changes with the state of the devices, and with what manifests hold. Where
// it falls below the claims, nothing is taken away, and no job gets more. Every query is O(1). Invariants: claimed() =
// Σ claims = Σ over users; used() = Σ used. An ended job claims what it still uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/ledger.h"
#include "proto/result.h"

namespace tier::tiering {

class StorageLedger {
 public:
  // What the devices can hold of tensors now, and what manifests of the user of the job in question keep beside that.
  struct Space {
    uint64_t capacity = 0;
    uint64_t kept = 0;
  };
  // May a job of this user be guaranteed so much? `job`: the one that is changed, or kNoEntitlement for a new one.
  // NO_SPACE with figures.
  Status AdmitGuarantee(uint32_t uid, EntitlementIndex job, uint64_t bytes, Space space, const QuotaLimit& quota) const;
  // It has the index that Ledger::Open gave it. The quota is its user's from now on. REQUIRES (also for Set):
  // AdmitGuarantee allowed it.
  void Open(EntitlementIndex job, uint32_t uid, Terms terms, const QuotaLimit& quota);
  // Without effect for a user without jobs. What its jobs have stays.
  void SetQuota(uint32_t uid, const QuotaLimit& quota);
  void Set(EntitlementIndex job, Terms terms);
  void End(EntitlementIndex job);     // It is guaranteed nothing more.
  void Remove(EntitlementIndex job);  // REQUIRES: ended; it uses nothing.

  void AddUsed(EntitlementIndex job, uint64_t bytes);
  void SubtractUsed(EntitlementIndex job, uint64_t bytes);

  struct Room {
    uint64_t allowed = 0;   // What it may have in all. It may have more already, where the capacity fell.
    uint64_t others = 0;    // Claims of other jobs.
    uint64_t of_user = 0;   // Of these, the claims of its user's; and what manifests of the user keep.
    bool by_limit = false;  // Its limit keeps it from more.
    bool by_quota = false;  // Or its user's quota.
    bool by_user = false;   // Or the part that its user leaves for the next user.
  };
  Room RoomOf(EntitlementIndex job, Space space) const;
  uint64_t UsedBy(EntitlementIndex job) const { return At(job).used; }
  uint64_t GuaranteeOf(EntitlementIndex job) const { return At(job).guarantee(); }
  uint64_t LimitOf(EntitlementIndex job) const { return At(job).terms.limit_bytes; }
  uint64_t ClaimedBy(uint32_t uid) const;
  uint64_t claimed() const { return claimed_; }
  uint64_t used() const { return used_; }  // By all jobs.
  const QuotaLimit& QuotaOf(EntitlementIndex job) const { return users_.at(At(job).uid).quota; }

  void CheckInvariants() const;  // O(jobs).

 private:
  struct Entry {
    Terms terms;
    uint64_t used = 0;
    uint32_t uid = 0;
    bool ended = false;
    bool open = false;

    uint64_t guarantee() const { return ended ? 0 : terms.guarantee_bytes; }
    uint64_t claim() const { return open ? std::max(used, guarantee()) : 0; }
  };
  struct User {
    uint64_t claimed = 0;
    uint32_t jobs = 0;
    QuotaLimit quota;
  };
  const Entry& At(EntitlementIndex job) const {
    const auto index = static_cast<uint32_t>(job);
    TIER_CHECK(index < jobs_.size() && jobs_[index].open, "SSD entitlement {} of {}", index, jobs_.size());
    return jobs_[index];
  }
  // Makes a change of the job that may alter its claim.
  template <typename Apply>
  void Change(EntitlementIndex job, Apply change);

  std::vector<Entry> jobs_;  // By EntitlementIndex.
  std::unordered_map<uint32_t, User> users_;
  uint64_t claimed_ = 0;
  uint64_t used_ = 0;
};

}  // namespace tier::tiering
