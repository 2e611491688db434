// Ledger: the one table of how much RAM each user, and within a user each job, is entitled to. Admission, growth,
// leases, hand-over and refusals ask this table and no other. Engine thread only.
//
// Of one job, in bytes:
//   promised   its explicit guarantee, or its equal part of what is not guaranteed. It gets as much when it asks.
//   allowed    its limit, its part of its user's quota, and at most the arena.
//   firm       what no other job is promised, within its limit. Pieces that cannot leave RAM may lie here.
//   unpacked   windows beyond the firm bytes, of the part that is promised to no job: room lost between slots that no
//              move packs closer, so that a job whose tensors fit its promise is not refused for lack of it.
//   held       its windows, ready or being made.
//   leased     RAM that no write and no eviction brings back: leased, being created, torn. What is leased beyond the
//              explicit guarantee of each job fits, over all jobs, what is guaranteed to none (MayLease).
//   claimed    memory that it asked for below its promise and did not get: it is owed this until the claim expires.
//   served     memory that it needs beyond its promise; only one job is served at a time, never with memory within the
//              explicit guarantee of another job.
//   wished     memory that it needs beyond its promise, and that idle jobs have. It is taken from these while no job is
//              owed anything; they get it back as what they are owed. One job at a time wishes.
//   kept       windows that were taken from it without an answer and that its processes still have: they may have
//              pinned some of that memory. They count as held where the job asks for more; others do not wait for them.
//   returning  windows that its clients were asked to return; overdue: the part of these kept beyond the deadline.
//
// A part of the arena is promised to no job, so that a new job can start. The arena less that part and less the
// explicit guarantees is divided equally among the users that have jobs with sessions and without a guarantee, then
// among these jobs of each user: N jobs of one user are one share. A job without sessions is promised its explicit
// guarantee only. What a job leases beyond its promise is a surplus; it does not raise the promise.
//
// A user's quota of RAM is divided among its jobs: each has its explicit guarantee, and the jobs with sessions have
// equal parts of the rest; where none has sessions, all have. So what one of them may hold does not depend on what
// others hold just now. But a job may have more than its part, from before the part became smaller: then the others
// grow only as far as all windows of the user's jobs, with those that are on their way back, fit these parts together
// (QuotaTaken). They claim no more than that: memory is never taken from other users for a job that its own user's
// other jobs keep from growing. It comes from those of the user's jobs that hold more than their parts (BeyondQuota).
// A guarantee that was given before the quota was lowered stays.
//
// The arena that is divided is the configured one: promises do not move with the free memory of the host. A shortage of
// the host is a debt (SetHost). While there is one no job grows, and hand-over asks back the debt in addition to what
// jobs are owed: what jobs have beyond their promises first, then beyond their guarantees, then the rest (DebtDepth).
//
// All figures are bytes. Windows have several sizes; what a job is owed, and what is left over for others, is counted
// in the smallest slot windows. Whole blocks may lie in them too, so a job gets its promise to within one of these,
// however large the windows of others are. SSD space is counted in storage_ledger.h.
//
// Invariants: Σ promised + PartForNobody() <= arena. promised <= allowed, where a guarantee is at most the limit.
// Σ allowed of a user <= its quota, or its guarantees. No job grows that takes its user beyond Σ allowed, each part in
// whole windows. leased_beyond() is the sum over all jobs. claimed != 0 only while held < promised. overdue <=
// returning. Promises change only in Open, Set, SetQuota, SetLive and End. Every query is O(1), except AdmitGuarantee
// and the lists, which are O(jobs).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/entitlement.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::tiering {

// How long a job is owed the memory that it asked for once. A job that still needs it asks again with its next request,
// and one whose requests wait for room renews its claim in each turn.
inline constexpr base::Duration kClaimLifetime = std::chrono::milliseconds(100);
inline constexpr uint64_t kPartForNobodyDivisor = 16;  // Of the arena.
inline constexpr uint64_t kUnpackedDivisor = 64;       // Of a promise: with all others, a quarter of that part.

class Ledger {
 public:
  Ledger(uint64_t arena_bytes, SmallestWindows windows);

  // May a job of this user have this guarantee? `job`: the one that is changed, or kNoEntitlement for a new one. The
  // other guarantees and PartForNobody stay, and each job with sessions and without a guarantee keeps what it would
  // have if all users, and all jobs of its user, had equal parts, and never less than it leases now. All guarantees of
  // the user fit its quota; one that is not raised takes nothing of that. NO_MEMORY with figures.
  Status AdmitGuarantee(uint32_t uid, EntitlementIndex job, uint64_t bytes, const UserQuota& quota) const;
  // The quota is its user's from now on. REQUIRES (also for Set): AdmitGuarantee allowed it.
  EntitlementIndex Open(JobId id, uint32_t uid, Terms terms, const UserQuota& quota);
  // Without effect for a user without jobs. Guarantees stay as they are. True: it was another quota.
  bool SetQuota(uint32_t uid, const UserQuota& quota);
  void Set(EntitlementIndex job, Terms terms);
  void SetLive(EntitlementIndex job, bool live);  // Its first session came, or its last one went.
  void End(EntitlementIndex job);                 // It loses its entitlement. What it holds comes back by itself.
  void Remove(EntitlementIndex job);              // REQUIRES: ended; it leases nothing.

  void AddHeld(EntitlementIndex job, uint64_t bytes);
  void SubtractHeld(EntitlementIndex job, uint64_t bytes);
  void AddLeased(EntitlementIndex job, uint64_t bytes) {
    Entitlement& entry = At(job);
    leased_beyond_ -= entry.Beyond(entry.leased);
    entry.leased += bytes;
    leased_beyond_ += entry.Beyond(entry.leased);
  }
  bool SubtractLeased(EntitlementIndex job, uint64_t bytes) {  // True: other jobs may lease more now.
    Entitlement& entry = At(job);
    TIER_CHECK(entry.leased >= bytes, "job {} leases {} of {}", static_cast<uint64_t>(entry.id), entry.leased, bytes);
    const uint64_t beyond = entry.Beyond(entry.leased);
    entry.leased -= bytes;
    const uint64_t less = beyond - entry.Beyond(entry.leased);
    leased_beyond_ -= less;
    return less != 0;
  }
  void AskBack(EntitlementIndex job, uint64_t bytes, base::TimePoint now);  // From held to returning.
  void MissDeadline(EntitlementIndex job, uint64_t bytes);                  // From returning to overdue.
  void TakeBack(EntitlementIndex job, uint64_t bytes, bool overdue);        // The clients returned them.
  void SetKept(EntitlementIndex job, uint64_t bytes);
  // The bytes that all windows take now, and the most that they could take with the host's present free memory.
  void SetHost(uint64_t owned_bytes, uint64_t reachable_bytes);
  void SetDebtDepth(DebtDepth depth) { debt_depth_ = depth; }  // Of BytesToGive and ListHolders, until the next call.
  // Windows of no job whose memory the devices still hold.
  void AddClosing(uint64_t bytes) { closing_ += bytes; }
  void SubtractClosing(uint64_t bytes) {
    TIER_CHECK(closing_ >= bytes, "{} of {} bytes closing", bytes, closing_);
    closing_ -= bytes;
  }

  // The job could not get so many bytes of windows. Below its promise they are owed to it; else nothing happens.
  void Claim(EntitlementIndex job, uint64_t bytes, base::TimePoint now);
  void RenewClaim(EntitlementIndex job, base::TimePoint now);
  // No request waits for what it claims. The claim stands until it expires: the next one finds what came meanwhile.
  void LeaveClaim(EntitlementIndex job) { At(job).claim_left = true; }
  bool ClaimLeft(EntitlementIndex job) const { return At(job).claim_left; }
  void DropClaim(EntitlementIndex job);
  bool ExpireClaims(base::TimePoint now);  // True: some have expired.
  // One job at a time may be served beyond its promise, since its request could never be granted otherwise: it needs so
  // many more bytes of windows (memory/stalled). Until EndServing, all other jobs are asked for windows beyond their
  // explicit guarantees, and this one alone may grow. REQUIRES: no guarantee is owed.
  void Serve(EntitlementIndex job, uint64_t bytes);
  void EndServing();
  bool Serves(EntitlementIndex job) const { return served_ == job; }
  bool serving() const { return served_ != kNoEntitlement; }
  // The job could use so many bytes of windows beyond its promise. True: its wish stands, for kClaimLifetime. False:
  // that of another one does, or none is heard yet.
  bool Wish(EntitlementIndex job, uint64_t bytes, base::TimePoint now);
  void RefuseWishes(base::TimePoint until);  // No job has memory to lend.
  bool ExpireWish(base::TimePoint now);      // True: none stands any more.
  bool wishes() const { return wished_ != 0; }
  // Idle jobs are asked for their memory now: a job wishes for some, and nothing comes before that.
  bool lends() const { return wishes() && claims_.empty() && !serving() && host_debt_ == 0; }
  void SetIdle(EntitlementIndex job, bool idle) { At(job).idle = idle; }
  // So many bytes of the job are to go: the SSD devices have no room for them beyond its firm ones, or its user's other
  // jobs wait for them (BeyondQuota). Holds until the next call.
  void SetUnbacked(EntitlementIndex job, uint64_t bytes);
  void SetAllBacked();

  uint64_t arena_bytes() const { return arena_; }
  uint64_t PartForNobody() const { return arena_ - divisible_; }
  uint64_t PromisedTo(EntitlementIndex job) const { return At(job).promised; }
  uint64_t AllowedTo(EntitlementIndex job) const;
  uint64_t LimitOf(EntitlementIndex job) const;  // As AllowedTo, but kUnlimited without limit and quota.
  // The user's quota of RAM keeps the job from more, and not its own limit.
  bool BoundByQuota(EntitlementIndex job) const;
  const EntitledUser& UserOf(EntitlementIndex job) const { return users_[At(job).user]; }
  // Its own part leaves room for such a window, its user's quota of RAM does not: others have more than their parts.
  bool QuotaTaken(EntitlementIndex job, uint64_t window_bytes) const;
  // What it holds beyond its part of its user's quota of RAM.
  uint64_t BeyondQuota(EntitlementIndex job) const;
  uint64_t FirmBytes(EntitlementIndex job) const;
  // The same with what may be unpacked.
  uint64_t OwnBytes(EntitlementIndex job) const;
  uint64_t HeldBy(EntitlementIndex job) const { return At(job).held; }
  uint64_t KeptBy(EntitlementIndex job) const { return At(job).kept; }
  uint64_t LeasedBy(EntitlementIndex job) const { return At(job).leased; }
  uint64_t ReturningBy(EntitlementIndex job) const { return At(job).returning; }
  uint64_t OwedTo(EntitlementIndex job) const { return At(job).claimed; }
  uint64_t Deficit(EntitlementIndex job) const;
  uint64_t Surplus(EntitlementIndex job) const;
  // All that the job may ever lease: what no other job is guaranteed. UINT64_MAX: no other job has a guarantee.
  uint64_t LeasableBy(EntitlementIndex job) const;
  uint64_t LeaseMax(EntitlementIndex job) const;  // The same, at most its limit.
  // May it lease so many more bytes, while leases of `ending_bytes` end, if no other job leased beyond its guarantee?
  bool MayLeaseAlone(EntitlementIndex job, uint64_t bytes, uint64_t ending_bytes = 0) const;
  // May it now? What all jobs lease beyond their guarantees must fit what no job is guaranteed: each guarantee is kept
  // against all other jobs together. Always within the own guarantee, and where no other job has one.
  bool MayLease(EntitlementIndex job, uint64_t bytes, uint64_t ending_bytes = 0) const;
  uint64_t leased_beyond() const { return leased_beyond_; }  // Of all jobs, beyond their explicit guarantees.
  uint64_t NotGuaranteed() const { return AlignUp(arena_ - guaranteed_, kPageSize); }
  // On which terms the job may come to hold one more window of so many bytes, now or later.
  Growth GrowthOf(EntitlementIndex job, uint64_t window_bytes) const;
  // The job is below its promise, but a part of such a window would be promised to others: a smaller one is better.
  bool Overshoots(EntitlementIndex job, uint64_t window_bytes) const;
  // May the job take a window now? Yes while the host has no debt and no job is owed memory. Else only jobs below their
  // promise may, the largest deficit first, and no job that overshoots while others are owed what it would take.
  bool MayGrow(EntitlementIndex job, uint64_t window_bytes) const;

  // Hand-over.
  bool anybody_owed() const { return !claims_.empty(); }                   // A job is owed memory within its promise.
  const std::vector<EntitlementIndex>& claims() const { return claims_; }  // Jobs that are owed memory.
  uint64_t GuaranteeOf(EntitlementIndex job) const { return At(job).guarantee(); }
  uint64_t ClaimedBy(EntitlementIndex job) const { return At(job).claimed; }
  uint64_t claimed_bytes() const { return claimed_; }
  JobId IdOf(EntitlementIndex job) const { return At(job).id; }
  // Below its promise by a slot window, or without any.
  bool LacksWindow(EntitlementIndex job) const { return Deficit(job) >= (At(job).counted() == 0 ? 1 : windows_.slot); }
  // A job is owed a whole window, or its first one, within its explicit guarantee.
  bool guarantee_owed() const { return guarantees_owed_ != 0; }
  uint64_t unbacked_bytes() const { return unbacked_; }
  uint64_t UnbackedBy(EntitlementIndex job) const { return At(job).unbacked; }
  uint64_t host_debt() const { return host_debt_; }
  uint64_t returning_bytes() const { return returning_; }
  uint64_t closing_bytes() const { return closing_; }
  uint64_t BytesToAskBack() const;  // Beyond what is coming and what the arena has free.
  // The most bytes of windows that the job is to lose: its surplus, while a job is owed memory; all that it holds,
  // while it is idle and a job wishes for memory; its unbacked bytes; what it holds beyond the depth of a debt. While
  // another job is served: what lies beyond its explicit guarantee, and the rest of that slot window.
  uint64_t BytesToGive(EntitlementIndex job) const;
  // Its surplus is less than a window of so many bytes: may the window be taken, which leaves the job below its
  // promise? Yes if its deficit is then the smaller one, or if the job that is owed memory has no window at all. Also
  // where another job of its user waits for what it has beyond its part of the quota: it may grow to its part again.
  bool MayGiveBelow(EntitlementIndex job, uint64_t window_bytes) const;
  // Jobs with a surplus, the largest first. While the host has a debt, those that hold something beyond its depth.
  void ListHolders(std::vector<JobId>* holders) const;
  struct Debtor {
    JobId id{};
    uint64_t returning = 0;
    base::TimePoint since;
  };
  // Jobs whose clients still have windows that were asked back, the most first; at most `max`.
  std::vector<Debtor> ListDebtors(size_t max) const;

  struct Holder {
    JobId id{};
    uint64_t held = 0;
    uint64_t leased = 0;
  };
  // The other jobs that hold most that this one cannot get: those that lease most beyond their guarantees first, then
  // those that hold most; at most `max`.
  std::vector<Holder> ListOthers(EntitlementIndex job, size_t max) const;

  void CheckInvariants() const;  // O(jobs).

 private:
  const Entitlement& At(EntitlementIndex job) const {
    const auto index = static_cast<uint32_t>(job);
    TIER_CHECK(index < jobs_.size() && jobs_[index].used, "entitlement {} of {}", index, jobs_.size());
    return jobs_[index];
  }
  Entitlement& At(EntitlementIndex job) { return const_cast<Entitlement&>(std::as_const(*this).At(job)); }
  uint64_t Limit(const Entitlement& job) const;
  uint64_t PartOfQuota(const Entitlement& job) const;
  uint64_t QuotaRoom(const Entitlement& job) const;  // For more windows of its user.
  uint64_t MostInWindows(uint64_t bytes) const;
  uint64_t Allowed(const Entitlement& job) const;
  Status AdmitWithinQuota(uint32_t uid, const Entitlement* changed, uint64_t bytes, const UserQuota& quota) const;
  uint64_t EqualPart(const Entitlement& job, uint64_t unpromised) const;
  uint64_t BeyondDepth(const Entitlement& job) const;
  uint64_t Lendable(EntitlementIndex job) const;
  uint64_t InSlotWindows(uint64_t bytes) const { return AlignUp(bytes, windows_.slot); }
  uint64_t& TakenBy(const Entitlement& job) { return users_[job.user].taken; }
  uint32_t MakeUser(uint32_t uid);
  // Makes a change that may alter the promises.
  template <typename Apply>
  void Change(EntitlementIndex job, Apply change);
  void Recompute();
  bool OwedOfGuarantee(const Entitlement& job) const;
  void CountClaims();  // Finds the top claim, and how many are of guarantees.
  void LowerClaims();  // To what is lacking.
  void CheckQuotas() const;
  void DropWish();
  void RemoveClaim(EntitlementIndex job);

  uint64_t arena_;
  SmallestWindows windows_;
  uint64_t divisible_;  // The arena without PartForNobody.
  std::vector<Entitlement> jobs_;
  std::vector<EntitlementIndex> free_jobs_;
  std::vector<EntitledUser> users_;
  std::unordered_map<uint32_t, uint32_t> user_by_uid_;
  std::vector<uint32_t> free_users_;

  // Sums over the records, kept as they change.
  uint64_t guaranteed_ = 0;
  uint64_t promised_ = 0;
  uint64_t claimed_ = 0;
  uint64_t returning_ = 0;
  uint64_t overdue_ = 0;
  uint64_t closing_ = 0;
  uint64_t unbacked_ = 0;
  uint64_t ended_held_ = 0;
  uint64_t leased_beyond_ = 0;
  uint32_t users_with_parts_ = 0;
  uint64_t host_debt_ = 0;
  uint64_t host_spare_ = 0;
  DebtDepth debt_depth_ = DebtDepth::kSurplus;
  std::vector<EntitlementIndex> claims_;
  EntitlementIndex top_claim_ = kNoEntitlement;  // The claim of the largest deficit.
  size_t guarantees_owed_ = 0;                   // Claims of OwedOfGuarantee.
  EntitlementIndex served_ = kNoEntitlement;     // The job served beyond its promise.
  uint64_t served_bytes_ = 0;
  EntitlementIndex wisher_ = kNoEntitlement;
  uint64_t wished_ = 0;
  base::TimePoint wish_expires_;
  base::TimePoint wishes_from_;  // None is heard before.
};

}  // namespace tier::tiering
