// See ledger.h.
#include "daemon/tiering/tables/ledger.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {
namespace {

// One block window at least, and of a small arena half.
uint64_t PartForNobodyOf(uint64_t arena, uint64_t window) {
  return std::min(std::max(window, arena / kPartForNobodyDivisor), arena / 2);
}

uint64_t AlignDown(uint64_t bytes, uint64_t unit) { return bytes / unit * unit; }

}  // namespace

Ledger::Ledger(uint64_t arena_bytes, SmallestWindows windows)
    : arena_(arena_bytes),
      windows_(windows),
      divisible_(arena_bytes - PartForNobodyOf(arena_bytes, windows.block)),
      host_spare_(arena_bytes) {
  TIER_CHECK(windows_.slot != 0 && windows_.block != 0 && windows_.block % windows_.slot == 0,
             "arena {}, windows of {} and {}", arena_, windows_.block, windows_.slot);
}

uint64_t Ledger::PartOfQuota(const Entitlement& job) const {
  const EntitledUser& user = users_[job.user];
  if (!user.quota.ram.any()) return kUnlimited;
  const uint64_t rest = user.quota.ram.most - std::min(user.quota.ram.most, user.guaranteed);
  const bool shares = !job.ended && (job.live || user.live == 0);
  if (!shares) return job.guarantee();
  const uint64_t sharers = user.live == 0 ? user.open : user.live;
  TIER_CHECK(sharers != 0, "user {} has jobs and shares its quota among none", user.uid);
  return job.guarantee() + rest / sharers / kPageSize * kPageSize;
}

uint64_t Ledger::Limit(const Entitlement& job) const {
  return std::min(job.terms.limit_bytes == 0 ? kUnlimited : job.terms.limit_bytes, PartOfQuota(job));
}

// A limit is kept page by page where pages are taken; the last window of each kind may reach beyond it.
uint64_t Ledger::MostInWindows(uint64_t bytes) const {
  const uint64_t beyond = windows_.block == windows_.slot ? 0 : windows_.slot;
  return bytes >= arena_ ? arena_ : std::min(AlignUp(bytes, windows_.block) + beyond, arena_);
}

uint64_t Ledger::QuotaRoom(const Entitlement& job) const {
  const EntitledUser& user = users_[job.user];
  if (!user.quota.ram.any()) return kUnlimited;
  return AlignDown(user.most - std::min(user.most, user.taken), windows_.slot);
}

bool Ledger::QuotaTaken(EntitlementIndex job, uint64_t window_bytes) const {
  const Entitlement& entry = At(job);
  const uint64_t most = MostInWindows(Limit(entry));
  const uint64_t own = AlignDown(most - std::min(most, entry.counted()), windows_.slot);
  return QuotaRoom(entry) < std::min(own, window_bytes);
}

uint64_t Ledger::BeyondQuota(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  if (entry.ended || !users_[entry.user].quota.ram.any()) return 0;
  const uint64_t most = MostInWindows(PartOfQuota(entry));
  return std::min(entry.held, entry.counted() - std::min(entry.counted(), most));
}

uint64_t Ledger::Allowed(const Entitlement& job) const { return std::min(Limit(job), arena_); }

uint64_t Ledger::EqualPart(const Entitlement& job, uint64_t unpromised) const {
  const uint64_t part = unpromised / users_with_parts_ / users_[job.user].equal_parts;
  return std::min(Allowed(job), AlignDown(part, kPageSize));
}

uint32_t Ledger::MakeUser(uint32_t uid) {
  const auto found = user_by_uid_.find(uid);
  if (found != user_by_uid_.end()) return found->second;
  auto index = static_cast<uint32_t>(users_.size());
  if (free_users_.empty()) {
    users_.emplace_back();
  } else {
    index = free_users_.back();
    free_users_.pop_back();
  }
  users_[index] = {.uid = uid};
  user_by_uid_.emplace(uid, index);
  return index;
}

template <typename Apply>
void Ledger::Change(EntitlementIndex job, Apply change) {
  Entitlement& entry = At(job);
  EntitledUser& user = users_[entry.user];
  const auto count = [&](int32_t sign) {
    const bool alone = user.equal_parts == (sign > 0 ? 0u : 1u);
    if (entry.equal_part() && alone) users_with_parts_ += static_cast<uint32_t>(sign);
    if (entry.equal_part()) user.equal_parts += static_cast<uint32_t>(sign);
    if (entry.entitled()) user.entitled += static_cast<uint32_t>(sign);
    if (!entry.ended) user.open += static_cast<uint32_t>(sign);
    if (!entry.ended && entry.live) user.live += static_cast<uint32_t>(sign);
    user.guaranteed += static_cast<uint64_t>(sign) * entry.guarantee();
    guaranteed_ += static_cast<uint64_t>(sign) * entry.guarantee();
    leased_beyond_ += static_cast<uint64_t>(sign) * entry.Beyond(entry.leased);
  };
  count(-1);
  change(entry);
  entry.guarantee_in_pages = AlignUp(entry.guarantee(), kPageSize);
  count(1);
  Recompute();
}

void Ledger::Recompute() {
  TIER_CHECK(guaranteed_ <= divisible_, "guarantees of {} in {}", guaranteed_, divisible_);
  const uint64_t unpromised = divisible_ - guaranteed_;
  promised_ = 0;
  for (EntitledUser& user : users_) user.most = 0;
  for (Entitlement& job : jobs_) {
    job.promised = job.equal_part() ? EqualPart(job, unpromised) : job.guarantee();
    promised_ += job.promised;
    if (job.used && !job.ended) users_[job.user].most += MostInWindows(PartOfQuota(job));
  }
  LowerClaims();
}

void Ledger::LowerClaims() {
  std::vector<EntitlementIndex> claims = claims_;
  for (const EntitlementIndex job : claims) {
    Entitlement& entry = At(job);
    const uint64_t owed = std::min(entry.claimed, InSlotWindows(Deficit(job)));
    claimed_ -= entry.claimed - owed;
    entry.claimed = owed;
    if (owed == 0) RemoveClaim(job);
  }
  CountClaims();
}

EntitlementIndex Ledger::Open(JobId id, uint32_t uid, Terms terms, const UserQuota& quota) {
  if (free_jobs_.empty()) {
    free_jobs_.push_back(EntitlementIndex{static_cast<uint32_t>(jobs_.size())});
    jobs_.emplace_back();
  }
  const EntitlementIndex index = free_jobs_.back();
  free_jobs_.pop_back();
  const uint32_t user = MakeUser(uid);
  ++users_[user].jobs;
  ++users_[user].open;
  users_[user].quota = quota;
  jobs_[static_cast<uint32_t>(index)] = {.id = id, .user = user, .used = true};
  Set(index, terms);
  return index;
}

void Ledger::Set(EntitlementIndex job, Terms terms) {
  Change(job, [&](Entitlement& entry) { entry.terms = terms; });
}

bool Ledger::SetQuota(uint32_t uid, const UserQuota& quota) {
  const auto found = user_by_uid_.find(uid);
  if (found == user_by_uid_.end() || users_[found->second].quota == quota) return false;
  users_[found->second].quota = quota;
  Recompute();
  return true;
}

void Ledger::SetLive(EntitlementIndex job, bool live) {
  Change(job, [&](Entitlement& entry) { entry.live = live; });
}

void Ledger::End(EntitlementIndex job) {
  DropClaim(job);
  if (served_ == job) EndServing();
  if (wisher_ == job) DropWish();
  SetUnbacked(job, 0);
  TIER_CHECK(!At(job).ended, "job {} ended twice", static_cast<uint64_t>(At(job).id));
  ended_held_ += At(job).held;
  Change(job, [](Entitlement& entry) { entry.ended = true; });
}

void Ledger::Remove(EntitlementIndex job) {
  Entitlement& entry = At(job);
  TIER_CHECK(entry.ended && entry.leased == 0 && entry.returning == 0, "job {} leases {}, returns {}",
             static_cast<uint64_t>(entry.id), entry.leased, entry.returning);
  ended_held_ -= entry.held;  // Windows that are still being made for it.
  TakenBy(entry) -= entry.counted();
  EntitledUser& user = users_[entry.user];
  if (--user.jobs == 0) {
    user_by_uid_.erase(user.uid);
    free_users_.push_back(entry.user);
    user = {};
  }
  entry = {};
  free_jobs_.push_back(job);
}

void Ledger::AddHeld(EntitlementIndex job, uint64_t bytes) {
  Entitlement& entry = At(job);
  TIER_CHECK(!entry.ended, "job {} is closed", static_cast<uint64_t>(entry.id));
  entry.held += bytes;
  TakenBy(entry) += bytes;
  if (wisher_ == job) wished_ -= std::min(wished_, bytes);
  if (entry.claimed == 0) return;
  const uint64_t claimed = std::min(entry.claimed, bytes);
  entry.claimed -= claimed;
  claimed_ -= claimed;
  if (entry.claimed == 0 || Deficit(job) == 0) RemoveClaim(job);
  CountClaims();
}

void Ledger::SubtractHeld(EntitlementIndex job, uint64_t bytes) {
  Entitlement& entry = At(job);
  TIER_CHECK(entry.held >= bytes, "job {} holds {} of {}", static_cast<uint64_t>(entry.id), entry.held, bytes);
  entry.held -= bytes;
  TakenBy(entry) -= bytes;
  if (entry.ended) ended_held_ -= bytes;
  if (entry.claimed != 0) CountClaims();
}

void Ledger::SetKept(EntitlementIndex job, uint64_t bytes) {
  Entitlement& entry = At(job);
  if (entry.kept == bytes) return;
  TakenBy(entry) = TakenBy(entry) - entry.kept + bytes;
  entry.kept = bytes;
  if (entry.claimed != 0) LowerClaims();
}

void Ledger::AskBack(EntitlementIndex job, uint64_t bytes, base::TimePoint now) {
  SubtractHeld(job, bytes);
  Entitlement& entry = At(job);
  if (entry.returning == 0) entry.returning_since = now;
  entry.returning += bytes;
  TakenBy(entry) += bytes;
  returning_ += bytes;
}

void Ledger::MissDeadline(EntitlementIndex job, uint64_t bytes) {
  Entitlement& entry = At(job);
  entry.overdue += bytes;
  overdue_ += bytes;
  TIER_CHECK(entry.overdue <= entry.returning, "overdue {} of {}", entry.overdue, entry.returning);
}

void Ledger::TakeBack(EntitlementIndex job, uint64_t bytes, bool overdue) {
  Entitlement& entry = At(job);
  TIER_CHECK(entry.returning >= bytes && (!overdue || entry.overdue >= bytes), "{} of {}, {} overdue", bytes,
             entry.returning, entry.overdue);
  entry.returning -= bytes;
  TakenBy(entry) -= bytes;
  returning_ -= bytes;
  if (!overdue) return;
  entry.overdue -= bytes;
  overdue_ -= bytes;
}

void Ledger::SetHost(uint64_t owned_bytes, uint64_t reachable_bytes) {
  host_debt_ = owned_bytes > reachable_bytes ? owned_bytes - reachable_bytes : 0;
  host_spare_ = reachable_bytes > owned_bytes ? reachable_bytes - owned_bytes : 0;
}

void Ledger::Claim(EntitlementIndex job, uint64_t bytes, base::TimePoint now) {
  Entitlement& entry = At(job);
  entry.claim_left = false;
  const uint64_t owed = entry.ended ? 0 : std::min(InSlotWindows(std::min(bytes, Deficit(job))), QuotaRoom(entry));
  if (owed == 0) return DropClaim(job);
  if (entry.claimed == 0) claims_.push_back(job);
  claimed_ = claimed_ - entry.claimed + owed;
  entry.claimed = owed;
  entry.claim_expires = now + kClaimLifetime;
  CountClaims();
}

void Ledger::RenewClaim(EntitlementIndex job, base::TimePoint now) {
  Entitlement& entry = At(job);
  entry.claim_left = false;
  if (entry.claimed != 0) entry.claim_expires = now + kClaimLifetime;
}

void Ledger::DropClaim(EntitlementIndex job) {
  const auto found = std::find(claims_.begin(), claims_.end(), job);
  if (found == claims_.end()) return;
  RemoveClaim(job);
  CountClaims();
}

void Ledger::RemoveClaim(EntitlementIndex job) {
  std::erase(claims_, job);
  Entitlement& entry = At(job);
  claimed_ -= entry.claimed;
  entry.claimed = 0;
}

bool Ledger::ExpireClaims(base::TimePoint now) {
  bool expired = false;
  for (size_t i = 0; i < claims_.size();) {
    if (At(claims_[i]).claim_expires > now) {
      ++i;
      continue;
    }
    RemoveClaim(claims_[i]);
    expired = true;
  }
  if (expired) CountClaims();
  return expired;
}

bool Ledger::OwedOfGuarantee(const Entitlement& job) const {
  const uint64_t counted = job.counted();
  return job.claimed != 0 && (counted == 0 ? job.guarantee() != 0 : counted + windows_.slot <= job.guarantee());
}

void Ledger::CountClaims() {
  top_claim_ = kNoEntitlement;
  guarantees_owed_ = 0;
  for (const EntitlementIndex job : claims_) {
    if (OwedOfGuarantee(At(job))) ++guarantees_owed_;
    if (top_claim_ == kNoEntitlement || Deficit(job) > Deficit(top_claim_)) top_claim_ = job;
  }
}

void Ledger::Serve(EntitlementIndex job, uint64_t bytes) {
  TIER_CHECK(!At(job).ended && bytes != 0 && !guarantee_owed(), "job {} is served {}, {} guarantees are owed",
             static_cast<uint64_t>(At(job).id), bytes, guarantees_owed_);
  served_ = job;
  served_bytes_ = InSlotWindows(bytes);
}

void Ledger::EndServing() {
  served_ = kNoEntitlement;
  served_bytes_ = 0;
}

bool Ledger::Wish(EntitlementIndex job, uint64_t bytes, base::TimePoint now) {
  if (At(job).ended || now < wishes_from_ || (wishes() && wisher_ != job && now < wish_expires_)) return false;
  wisher_ = job;
  wished_ = InSlotWindows(bytes);
  wish_expires_ = now + kClaimLifetime;
  return wishes();
}

void Ledger::DropWish() {
  wisher_ = kNoEntitlement;
  wished_ = 0;
}

void Ledger::RefuseWishes(base::TimePoint until) {
  DropWish();
  wishes_from_ = until;
}

bool Ledger::ExpireWish(base::TimePoint now) {
  if (wishes() && now >= wish_expires_) DropWish();
  return !wishes();
}

void Ledger::SetUnbacked(EntitlementIndex job, uint64_t bytes) {
  Entitlement& entry = At(job);
  unbacked_ = unbacked_ - entry.unbacked + bytes;
  entry.unbacked = bytes;
}

void Ledger::SetAllBacked() {
  if (unbacked_ == 0) return;
  for (Entitlement& job : jobs_) job.unbacked = 0;
  unbacked_ = 0;
}

uint64_t Ledger::AllowedTo(EntitlementIndex job) const { return Allowed(At(job)); }

uint64_t Ledger::FirmBytes(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  // At least one window: a smaller part cannot be given to another job.
  return std::min(Allowed(entry), std::max(divisible_ - (promised_ - entry.promised), windows_.slot));
}

uint64_t Ledger::OwnBytes(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  return std::min(Allowed(entry), FirmBytes(job) + AlignDown(entry.promised / kUnpackedDivisor, windows_.slot));
}

uint64_t Ledger::Deficit(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  return entry.promised - std::min(entry.promised, entry.counted());
}

uint64_t Ledger::Surplus(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  return entry.ended ? 0 : std::min(entry.held, entry.counted() - std::min(entry.promised, entry.counted()));
}

uint64_t Ledger::LeasableBy(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  const uint64_t others = guaranteed_ - entry.guarantee();
  return others == 0 ? UINT64_MAX : AlignUp(arena_ - others, kPageSize);
}

uint64_t Ledger::LeaseMax(EntitlementIndex job) const { return std::min(Allowed(At(job)), LeasableBy(job)); }

bool Ledger::MayLeaseAlone(EntitlementIndex job, uint64_t bytes, uint64_t ending_bytes) const {
  const uint64_t leasable = LeasableBy(job);
  if (leasable == UINT64_MAX) return true;
  const uint64_t leased = At(job).leased;
  return leased - std::min(leased, ending_bytes) + bytes <= leasable;
}

bool Ledger::MayLease(EntitlementIndex job, uint64_t bytes, uint64_t ending_bytes) const {
  if (!MayLeaseAlone(job, bytes, ending_bytes)) return false;
  const Entitlement& entry = At(job);
  const uint64_t beyond = entry.Beyond(entry.leased - std::min(entry.leased, ending_bytes) + bytes);
  if (beyond == 0 || guaranteed_ == entry.guarantee()) return true;
  return leased_beyond_ - entry.Beyond(entry.leased) + beyond <= NotGuaranteed();
}

Growth Ledger::GrowthOf(EntitlementIndex job, uint64_t window_bytes) const {
  const Entitlement& entry = At(job);
  const uint64_t next = entry.counted() + window_bytes;
  if (entry.ended || next > MostInWindows(Limit(entry))) return Growth::kNone;
  return entry.counted() < entry.promised || next <= FirmBytes(job) ? Growth::kOwn : Growth::kBorrowed;
}

bool Ledger::Overshoots(EntitlementIndex job, uint64_t window_bytes) const {
  const Entitlement& entry = At(job);
  const uint64_t own = std::max(InSlotWindows(entry.promised), FirmBytes(job));
  return entry.counted() < entry.promised && entry.counted() + window_bytes > own;
}

bool Ledger::MayGrow(EntitlementIndex job, uint64_t window_bytes) const {
  const Entitlement& entry = At(job);
  if (entry.ended || host_debt_ != 0 || window_bytes > QuotaRoom(entry)) return false;
  if (serving()) return served_ == job;
  if (claims_.empty()) return true;
  if (entry.counted() >= entry.promised) return false;
  const uint64_t next = entry.counted() + window_bytes;
  if (Deficit(job) >= Deficit(top_claim_) && next <= InSlotWindows(entry.promised)) return true;
  return host_spare_ >= claimed_ - entry.claimed + window_bytes;  // Enough for the others as well.
}

uint64_t Ledger::BytesToAskBack() const {
  const uint64_t wanted = (serving() ? served_bytes_ : lends() ? wished_ : claimed_) + host_debt_;
  const uint64_t coming = returning_ - overdue_ + closing_ + ended_held_ + AlignDown(host_spare_, windows_.slot);
  return wanted > coming ? wanted - coming : 0;
}

uint64_t Ledger::BeyondDepth(const Entitlement& job) const {
  if (host_debt_ == 0 || job.ended) return 0;
  const uint64_t stays = debt_depth_ == DebtDepth::kSurplus   ? job.promised
                         : debt_depth_ == DebtDepth::kPromise ? std::min(job.guarantee(), job.promised)
                                                              : 0;
  return std::min(job.held, job.counted() - std::min(job.counted(), stays));
}

uint64_t Ledger::Lendable(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  return lends() && entry.idle && !entry.ended && wisher_ != job ? entry.held : 0;
}

uint64_t Ledger::BytesToGive(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  const uint64_t owed = claims_.empty() ? Lendable(job) : Surplus(job);
  if (!serving()) return std::max({owed, entry.unbacked, BeyondDepth(entry)});
  if (served_ == job) return 0;
  if (entry.guarantee() == 0) return entry.held;
  // A guarantee is kept to within a slot window, as it is owed, but the last one of all stays.
  const uint64_t beyond = entry.held - std::min(entry.guarantee(), entry.held);
  return std::min(InSlotWindows(beyond), entry.held - std::min(entry.held, windows_.slot));
}

bool Ledger::MayGiveBelow(EntitlementIndex job, uint64_t window_bytes) const {
  const uint64_t surplus = Surplus(job);
  if (!serving() && At(job).unbacked != 0 && BeyondQuota(job) != 0) return true;
  if (serving() || claims_.empty() || surplus == 0 || surplus >= window_bytes) return false;
  return window_bytes - surplus < Deficit(top_claim_) || At(top_claim_).held == 0;
}

}  // namespace tier::tiering
