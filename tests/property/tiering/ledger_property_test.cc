// The ledger of entitlement against a model that adds everything up for each question.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kSlotWindow = 2 * kMiB;

struct ModelJob {
  EntitlementIndex index{};
  uint32_t uid = 0;
  Terms terms;
  bool live = false;
  std::vector<uint64_t> windows;  // Their sizes, in the order in which they came.
  uint64_t claimed = 0;
  std::vector<uint64_t> returning;
  size_t overdue = 0;  // Of them, the first ones.
  uint64_t leased = 0;
  bool idle = false;
  uint64_t kept = 0;
  uint64_t counted() const { return held() + kept; }
  uint64_t held() const { return std::accumulate(windows.begin(), windows.end(), uint64_t{0}); }
  bool equal_part() const { return live && terms.guarantee_bytes == 0; }
};

class Model {
 public:
  // Block windows of `ratio` slot windows.
  Model(uint64_t arena, uint64_t ratio)
      : arena_(arena),
        block_window_(ratio * kSlotWindow),
        reachable_(arena),
        ledger_(arena, {.block = block_window_, .slot = kSlotWindow}) {}

  // One step of the program: `what` chooses it, the others its job and figures.
  void Step(uint8_t what, uint8_t who, uint16_t amount) {
    const Terms terms{.guarantee_bytes = amount % 3 == 0 ? 0 : amount * kPageSize,
                      .limit_bytes = amount % 5 == 0 ? std::max<uint64_t>(amount, 1) * 2 * kPageSize : 0};
    if (what % 14 == 0 || jobs_.empty()) return Open(who % 5, terms);
    auto job = std::next(jobs_.begin(), who % jobs_.size());
    ModelJob& entry = job->second;
    switch (what % 14) {
      case 1: return Close(job);
      case 2: return Set(entry, terms);
      case 3: return SetLive(entry, amount % 2 == 0);
      case 4: return Lease(entry, amount);
      case 5: return Grow(job->first, amount % 2 == 0 ? block_window_ : kSlotWindow);
      case 6: return amount % 2 == 0 ? Shrink(entry) : AskBack(entry);
      case 7: return amount % 2 == 0 ? Return(entry) : MissDeadline(entry);
      case 8: return SetHost(who * kSlotWindow, amount * kPageSize);
      case 9: return Wish(job->first, amount * kPageSize);
      case 10: return SetIdle(entry, amount % 2 == 0);
      case 11: return SetKept(entry, amount % 32 * kSlotWindow);
      case 12: return SetQuota(who % 5, amount);
      default: return Claim(entry, amount * kPageSize);
    }
  }

  void Check() {
    ledger_.CheckInvariants();
    uint64_t promised = 0;
    for (const auto& [id, job] : jobs_) promised += PromisedTo(job);
    RC_ASSERT(promised + PartForNobody() <= arena_);
    CheckUsers();
    for (const auto& [id, job] : jobs_) CheckJob(id, job, promised);
    RC_ASSERT(ledger_.anybody_owed() == (Claimed() != 0) && ledger_.claimed_bytes() == Claimed());
    for (const EntitlementIndex claim : ledger_.claims()) {
      RC_ASSERT(jobs_.at(static_cast<uint64_t>(ledger_.IdOf(claim))).claimed != 0);
    }
    RC_ASSERT(ledger_.BytesToAskBack() == BytesToAskBack());
    const bool owed =
        std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return OwedOfGuarantee(job.second); });
    RC_ASSERT(ledger_.guarantee_owed() == owed);
    if (!owed && !jobs_.empty()) CheckServing(jobs_.begin()->second);
  }

 private:
  // While one job is served, it alone may grow, and the others give what they hold beyond their guarantees.
  void CheckServing(const ModelJob& served) {
    ledger_.Serve(served.index, kPageSize);
    for (const auto& [id, job] : jobs_) {
      const uint64_t gives = ledger_.BytesToGive(job.index);
      const uint64_t left = job.held() - gives;
      const uint64_t guarantee = job.terms.guarantee_bytes;
      const bool is_served = job.index == served.index;
      const bool has_room = kSlotWindow <= QuotaRoom(job);
      RC_ASSERT(ledger_.MayGrow(job.index, kSlotWindow) == (is_served && host_debt() == 0 && has_room));
      RC_ASSERT(!is_served || gives == 0);
      RC_ASSERT(is_served || left == 0 || left <= std::max(guarantee, kSlotWindow));
      RC_ASSERT(left + kSlotWindow > std::min(guarantee, job.held()));
      RC_ASSERT(left != 0 || guarantee == 0 || job.held() == 0);
    }
    ledger_.EndServing();
  }
  static bool OwedOfGuarantee(const ModelJob& job) {
    if (job.claimed == 0 || job.terms.guarantee_bytes == 0) return false;
    return job.counted() == 0 || job.counted() + kSlotWindow <= job.terms.guarantee_bytes;
  }
  void CheckJob(uint64_t id, const ModelJob& job, uint64_t promised) {
    const uint64_t mine = PromisedTo(job);
    const uint64_t held = job.held();
    const uint64_t deficit = Deficit(job);
    const uint64_t surplus = std::min(held, job.counted() > mine ? job.counted() - mine : 0);
    RC_ASSERT(ledger_.PromisedTo(job.index) == mine);
    RC_ASSERT(ledger_.AllowedTo(job.index) == AllowedTo(job));
    const uint64_t firm = std::max(arena_ - PartForNobody() - (promised - mine), kSlotWindow);
    RC_ASSERT(ledger_.FirmBytes(job.index) == std::min(AllowedTo(job), firm));
    const uint64_t unpacked = mine / 64 / kSlotWindow * kSlotWindow;
    RC_ASSERT(ledger_.OwnBytes(job.index) == std::min(AllowedTo(job), ledger_.FirmBytes(job.index) + unpacked));
    RC_ASSERT(ledger_.Deficit(job.index) == deficit && ledger_.Surplus(job.index) == surplus);
    RC_ASSERT(ledger_.HeldBy(job.index) == held && ledger_.LeasedBy(job.index) == job.leased);
    RC_ASSERT(ledger_.ReturningBy(job.index) == Sum(job.returning, job.returning.size()));
    RC_ASSERT(ledger_.ClaimedBy(job.index) == job.claimed);
    RC_ASSERT(ledger_.LacksWindow(job.index) ==
              (deficit != 0 && (job.counted() == 0 || job.counted() + kSlotWindow <= mine)));
    CheckLeases(job);
    CheckQuota(job);
    const uint64_t lent = lends() && job.idle && id != wisher_ ? held : 0;
    RC_ASSERT(ledger_.BytesToGive(job.index) == (Claimed() == 0 && host_debt() == 0 ? lent : surplus));
    CheckGrowth(job, block_window_);
    CheckGrowth(job, kSlotWindow);
    // A promise can be reached to within a slot window, whatever the size of block windows.
    if (deficit == 0) return;
    RC_ASSERT(ledger_.GrowthOf(job.index, kSlotWindow) == Growth::kOwn);
    RC_ASSERT(!ledger_.Overshoots(job.index, kSlotWindow));
  }

  // Windows of all jobs of a user fit their parts together, or none of them grows.
  void CheckQuota(const ModelJob& job) {
    const uint64_t part = PartOfQuota(job);
    const uint64_t beyond = part == kUnlimited ? 0 : job.counted() - std::min(job.counted(), InWindows(part));
    RC_ASSERT(ledger_.BeyondQuota(job.index) == std::min(job.held(), beyond));
    const uint64_t room = QuotaRoom(job);
    const uint64_t most = InWindows(LimitOf(job));
    const uint64_t own = (most - std::min(most, job.counted())) / kSlotWindow * kSlotWindow;
    for (const uint64_t size : {kSlotWindow, block_window_}) {
      RC_ASSERT(size <= room || !ledger_.MayGrow(job.index, size));
      RC_ASSERT(ledger_.QuotaTaken(job.index, size) == (room < std::min(own, size)));
    }
  }
  uint64_t InWindows(uint64_t bytes) const {
    if (bytes >= arena_) return arena_;
    const uint64_t beyond = block_window_ == kSlotWindow ? 0 : kSlotWindow;
    return std::min(AlignUp(bytes, block_window_) + beyond, arena_);
  }
  // What the windows of all jobs of its user leave of the parts of all of them.
  uint64_t QuotaRoom(const ModelJob& job) const {
    if (PartOfQuota(job) == kUnlimited) return kUnlimited;
    uint64_t most = 0;
    uint64_t taken = 0;
    for (const auto& [id, other] : jobs_) {
      if (other.uid != job.uid) continue;
      most += InWindows(PartOfQuota(other));
      taken += other.counted() + Sum(other.returning, other.returning.size());
    }
    return (most - std::min(most, taken)) / kSlotWindow * kSlotWindow;
  }

  // Each guarantee is kept against all other jobs together: what they lease beyond theirs fits the rest of the arena.
  void CheckLeases(const ModelJob& job) {
    const uint64_t others = Guaranteed() - job.terms.guarantee_bytes;
    uint64_t beyond = 0;
    for (const auto& [id, other] : jobs_) beyond += Beyond(other, other.leased);
    RC_ASSERT(ledger_.leased_beyond() == beyond);
    for (const uint64_t more : {kPageSize, kSlotWindow, arena_ / 2}) {
      const uint64_t after = job.leased + more;
      const bool alone = others == 0 || after <= arena_ - others;
      const bool together = beyond - Beyond(job, job.leased) + Beyond(job, after) <= arena_ - Guaranteed();
      RC_ASSERT(ledger_.MayLeaseAlone(job.index, more) == alone);
      const bool may = alone && (others == 0 || Beyond(job, after) == 0 || together);
      RC_ASSERT(ledger_.MayLease(job.index, more) == may);
    }
  }
  static uint64_t Beyond(const ModelJob& job, uint64_t leased) {
    return leased - std::min(leased, job.terms.guarantee_bytes);
  }

  void CheckGrowth(const ModelJob& job, uint64_t size) {
    const uint64_t mine = PromisedTo(job);
    const bool may = ledger_.MayGrow(job.index, size);
    if (size > QuotaRoom(job)) {
      RC_ASSERT(!may);
      return;
    }
    if (Claimed() == 0 || host_debt() != 0) {
      RC_ASSERT(may == (host_debt() == 0));
      return;
    }
    // Enough for all others who are owed, or its turn, and then not beyond its promise.
    const bool enough = host_spare() >= Claimed() - job.claimed + size;
    const bool first = std::all_of(jobs_.begin(), jobs_.end(), [&](const auto& other) {
      return other.second.claimed == 0 || Deficit(other.second) <= Deficit(job);
    });
    const bool within = job.counted() + size <= AlignUp(mine, kSlotWindow);
    RC_ASSERT(may == (job.counted() < mine && (enough || (first && within))));
  }

  uint64_t PartForNobody() const { return std::min(std::max(block_window_, arena_ / 16), arena_ / 2); }
  static uint64_t Sum(const std::vector<uint64_t>& sizes, size_t count) {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(count), uint64_t{0});
  }
  uint64_t Deficit(const ModelJob& job) const {
    const uint64_t mine = PromisedTo(job);
    return mine - std::min(mine, job.counted());
  }
  uint64_t Claimed() const {
    uint64_t sum = 0;
    for (const auto& [id, job] : jobs_) sum += job.claimed;
    return sum;
  }
  uint64_t host_debt() const { return owned_ > reachable_ ? owned_ - reachable_ : 0; }
  bool lends() const { return wished_ != 0 && Claimed() == 0 && host_debt() == 0; }
  uint64_t host_spare() const { return reachable_ > owned_ ? reachable_ - owned_ : 0; }
  uint64_t BytesToAskBack() const {
    uint64_t coming = closing_ + host_spare() / kSlotWindow * kSlotWindow;
    for (const auto& [id, job] : jobs_)
      coming += Sum(job.returning, job.returning.size()) - Sum(job.returning, job.overdue);
    const uint64_t wanted = Claimed() + host_debt() + (lends() ? wished_ : 0);
    return wanted - std::min(wanted, coming);
  }
  // The guarantee, and what the user's quota leaves beside all guarantees by equal parts for those with sessions; where
  // none has any, for all.
  uint64_t PartOfQuota(const ModelJob& job) const {
    const auto quota = quotas_.find(job.uid);
    if (quota == quotas_.end() || !quota->second.ram.any()) return kUnlimited;
    uint64_t guaranteed = 0;
    uint64_t live = 0;
    uint64_t all = 0;
    for (const auto& [id, other] : jobs_) {
      if (other.uid != job.uid) continue;
      guaranteed += other.terms.guarantee_bytes;
      live += other.live ? 1 : 0;
      ++all;
    }
    if (!job.live && live != 0) return job.terms.guarantee_bytes;
    const uint64_t rest = quota->second.ram.most - std::min(quota->second.ram.most, guaranteed);
    return job.terms.guarantee_bytes + rest / (live == 0 ? all : live) / kPageSize * kPageSize;
  }
  uint64_t LimitOf(const ModelJob& job) const {
    return std::min(job.terms.limit_bytes == 0 ? kUnlimited : job.terms.limit_bytes, PartOfQuota(job));
  }
  uint64_t AllowedTo(const ModelJob& job) const { return std::min(LimitOf(job), arena_); }
  // All jobs of a user together, whatever they hold now.
  void CheckUsers() {
    for (const auto& [uid, quota] : quotas_) {
      uint64_t guaranteed = 0;
      uint64_t allowed = 0;
      for (const auto& [id, job] : jobs_) {
        if (job.uid != uid) continue;
        guaranteed += job.terms.guarantee_bytes;
        allowed += ledger_.AllowedTo(job.index);
        RC_ASSERT(ledger_.LimitOf(job.index) == LimitOf(job));
        RC_ASSERT(ledger_.BoundByQuota(job.index) ==
                  (LimitOf(job) < arena_ && (job.terms.limit_bytes == 0 || LimitOf(job) < job.terms.limit_bytes)));
      }
      RC_ASSERT(!quota.ram.any() || allowed <= std::max(quota.ram.most, guaranteed));
    }
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
  // No guarantee that takes its user beyond the quota is given. One that is not raised takes nothing.
  bool Admitted(uint32_t uid, EntitlementIndex job, uint64_t bytes, uint64_t before) {
    uint64_t others = 0;
    for (const auto& [id, other] : jobs_) others += other.uid == uid ? other.terms.guarantee_bytes : 0;
    others -= before;
    const UserQuota& quota = quotas_[uid];
    const bool admitted = ledger_.AdmitGuarantee(uid, job, bytes, quota).has_value();
    RC_ASSERT(!admitted || bytes <= before || others + bytes <= std::min(quota.ram.most, quota.guarantee.most));
    return admitted;
  }
  void SetQuota(uint32_t uid, uint64_t amount) {
    UserQuota& quota = quotas_[uid];
    quota.ram.most = amount % 4 == 0 ? kUnlimited : amount * 2 * kPageSize;
    quota.guarantee.most = amount % 7 == 0 ? kUnlimited : amount * kPageSize;
    ledger_.SetQuota(uid, quota);
    LowerClaims();
  }
  void Open(uint32_t uid, const Terms& terms) {
    if (!Sound(terms) || !Admitted(uid, kNoEntitlement, terms.guarantee_bytes, 0)) return;
    const uint64_t id = next_id_++;
    jobs_[id].index = ledger_.Open(JobId{id}, uid, terms, quotas_[uid]);
    jobs_[id].uid = uid;
    jobs_[id].terms = terms;
    LowerClaims();
  }
  void Close(std::map<uint64_t, ModelJob>::iterator job) {
    while (!job->second.returning.empty()) Return(job->second);
    ledger_.End(job->second.index);
    (void)ledger_.SubtractLeased(job->second.index, job->second.leased);
    ledger_.Remove(job->second.index);
    if (wisher_ == job->first) wisher_ = wished_ = 0;
    jobs_.erase(job);
    LowerClaims();
  }
  void Set(ModelJob& job, const Terms& terms) {
    if (!Sound(terms) || !Admitted(job.uid, job.index, terms.guarantee_bytes, job.terms.guarantee_bytes)) return;
    ledger_.Set(job.index, terms);
    job.terms = terms;
    LowerClaims();
  }
  void SetLive(ModelJob& job, bool live) {
    ledger_.SetLive(job.index, live);
    job.live = live;
    LowerClaims();
  }
  void Lease(ModelJob& job, uint64_t pages) {
    RC_ASSERT(ledger_.SubtractLeased(job.index, job.leased) == (Beyond(job, job.leased) != 0));
    job.leased = pages * kPageSize;
    ledger_.AddLeased(job.index, job.leased);
  }
  void Grow(uint64_t id, uint64_t size) {
    ModelJob& job = jobs_.at(id);
    if (wisher_ == id) wished_ -= std::min(wished_, size);
    job.windows.push_back(size);
    job.claimed -= std::min(job.claimed, size);
    ledger_.AddHeld(job.index, size);
  }
  void Shrink(ModelJob& job) {
    if (job.windows.empty()) return;
    ledger_.SubtractHeld(job.index, job.windows.back());
    job.windows.pop_back();
  }
  void AskBack(ModelJob& job) {
    if (job.windows.empty()) return;
    ledger_.AskBack(job.index, job.windows.back(), now_);
    job.returning.push_back(job.windows.back());
    job.windows.pop_back();
  }
  void MissDeadline(ModelJob& job) {
    if (job.overdue < job.returning.size()) ledger_.MissDeadline(job.index, job.returning[job.overdue++]);
  }
  void Return(ModelJob& job) {  // The one that was asked for last.
    if (job.returning.empty()) return;
    const bool overdue = job.overdue == job.returning.size();
    ledger_.TakeBack(job.index, job.returning.back(), overdue);
    ledger_.AddClosing(job.returning.back());
    closing_ += job.returning.back();
    job.returning.pop_back();
    job.overdue = std::min(job.overdue, job.returning.size());
  }
  void SetHost(uint64_t owned, uint64_t reachable) {
    owned_ = owned;
    reachable_ = reachable;
    ledger_.SetHost(owned, reachable);
    ledger_.SubtractClosing(closing_);
    closing_ = 0;
  }
  void Claim(ModelJob& job, uint64_t bytes) {
    ledger_.Claim(job.index, bytes, now_);
    job.claimed = std::min(AlignUp(std::min(bytes, Deficit(job)), kSlotWindow), QuotaRoom(job));
  }
  // One wish at a time.
  void Wish(uint64_t id, uint64_t bytes) {
    const bool heard = wished_ == 0 || wisher_ == id;
    RC_ASSERT(ledger_.Wish(jobs_.at(id).index, bytes, now_) == (heard && bytes != 0));
    if (!heard) return;
    wisher_ = id;
    wished_ = AlignUp(bytes, kSlotWindow);
  }
  void SetKept(ModelJob& job, uint64_t bytes) {
    ledger_.SetKept(job.index, bytes);
    job.kept = bytes;
    LowerClaims();
  }
  void SetIdle(ModelJob& job, bool idle) {
    ledger_.SetIdle(job.index, idle);
    job.idle = idle;
  }
  // A claim is never more than what is missing: where promises fall, it falls with them.
  void LowerClaims() {
    for (auto& [id, job] : jobs_) job.claimed = std::min(job.claimed, AlignUp(Deficit(job), kSlotWindow));
  }

  uint64_t arena_;
  uint64_t block_window_;
  uint64_t owned_ = 0;
  uint64_t reachable_;
  uint64_t closing_ = 0;
  uint64_t wisher_ = 0;
  uint64_t wished_ = 0;
  Ledger ledger_;
  std::map<uint64_t, ModelJob> jobs_;
  std::map<uint32_t, UserQuota> quotas_;  // By uid.
  uint64_t next_id_ = 1;
  base::TimePoint now_;
};

RC_GTEST_PROP(LedgerProperty, AnswersAsIfItAddedUpEachTime,
              (const std::vector<std::tuple<uint8_t, uint8_t, uint16_t>>& steps, uint8_t windows, uint8_t kinds)) {
  const uint64_t ratio = uint64_t{1} << (kinds % 4);
  Model model((windows % 64 + 1) * ratio * kSlotWindow, ratio);
  for (const auto& [what, who, amount] : steps) {
    model.Step(what, who, amount);
    model.Check();
  }
}

}  // namespace
}  // namespace tier::tiering
