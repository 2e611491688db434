// Which guarantees the ledger admits, beside others and within the quota of a user. See ledger.h.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

constexpr size_t kUsersNamedMax = 3;

// Of what users have, the most first: "user 7 has 40 MiB of it, user 9 has 2 MiB".
std::string MostOf(std::vector<std::pair<uint64_t, uint32_t>> users) {
  std::erase_if(users, [](const auto& user) { return user.first == 0; });
  std::sort(users.begin(), users.end(),
            [](const auto& a, const auto& b) { return std::pair(b.first, a.second) < std::pair(a.first, b.second); });
  std::string text;
  for (size_t i = 0; i < std::min(users.size(), kUsersNamedMax); ++i) {
    text += fmt::format("{}user {} has {}", i == 0 ? "; " : ", ", users[i].second, FormatBytes(users[i].first));
  }
  return text;
}

}  // namespace

uint64_t Ledger::LimitOf(EntitlementIndex job) const { return Limit(At(job)); }

bool Ledger::BoundByQuota(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  const uint64_t part = PartOfQuota(entry);
  return part < arena_ && (entry.terms.limit_bytes == 0 || part < entry.terms.limit_bytes);
}

Status Ledger::AdmitGuarantee(uint32_t uid, EntitlementIndex job, uint64_t bytes, const UserQuota& quota) const {
  if (bytes == 0) return {};
  const Entitlement* changed = job == kNoEntitlement ? nullptr : &At(job);
  if (Status within = AdmitWithinQuota(uid, changed, bytes, quota); !within) return within;
  const auto found = user_by_uid_.find(uid);
  const uint32_t own = found == user_by_uid_.end() ? UINT32_MAX : found->second;
  const bool own_counts = own != UINT32_MAX && users_[own].entitled != 0;
  uint64_t users = own_counts ? 0 : 1;
  for (const EntitledUser& user : users_) users += user.entitled != 0 ? 1 : 0;
  const uint64_t user_part = divisible_ / users;
  uint64_t guaranteed = 0;
  uint64_t kept = 0;
  std::vector<std::pair<uint64_t, uint32_t>> by_user(users_.size());
  for (size_t i = 0; i < users_.size(); ++i) by_user[i].second = users_[i].uid;
  for (const Entitlement& other : jobs_) {
    if (!other.used || other.ended || &other == changed) continue;
    uint64_t keeps = other.terms.guarantee_bytes;
    guaranteed += keeps;
    if (keeps == 0) {
      // The job that asks is one of its user's.
      const bool one_more = other.user == own && (changed == nullptr || !changed->entitled());
      const uint64_t jobs = users_[other.user].entitled + (one_more ? 1 : 0);
      keeps = std::max(other.live ? std::min(user_part / jobs, Allowed(other)) : 0, other.leased);
      kept += keeps;
    }
    by_user[other.user].first += keeps;
  }
  const uint64_t left = divisible_ - std::min(divisible_, guaranteed + kept);
  if (bytes <= left) return {};
  return Fail(Code::kNoMemory,
              fmt::format("a guarantee of {} cannot be given: the arena has {}, other jobs are guaranteed {}, those "
                          "without a guarantee keep {}, {} are promised to no job, {} are left{}",
                          FormatBytes(bytes), FormatBytes(arena_), FormatBytes(guaranteed), FormatBytes(kept),
                          FormatBytes(PartForNobody()), FormatBytes(left), MostOf(std::move(by_user))));
}

Status Ledger::AdmitWithinQuota(uint32_t uid, const Entitlement* changed, uint64_t bytes,
                                const UserQuota& quota) const {
  const uint64_t own = changed == nullptr ? 0 : changed->guarantee();
  if (bytes <= own) return {};
  const auto found = user_by_uid_.find(uid);
  const uint64_t others = found == user_by_uid_.end() ? 0 : users_[found->second].guaranteed - own;
  const bool by_ram = quota.ram.most < quota.guarantee.most;
  const QuotaLimit& limit = by_ram ? quota.ram : quota.guarantee;
  if (bytes <= limit.most - std::min(limit.most, others)) return {};
  return Fail(Code::kNoMemory,
              fmt::format("a guarantee of {} cannot be given: user {} may {} {} ({}), of which its other jobs are "
                          "guaranteed {}; ask for less, or have an administrator raise the quota (tierctl quota set)",
                          FormatBytes(bytes), uid, by_ram ? "have RAM of" : "be guaranteed", FormatBytes(limit.most),
                          DescribeOrigin(limit.origin, "jobs"), FormatBytes(others)));
}

// What the jobs of each user may hold together fits its quota, or is what they are guaranteed.
void Ledger::CheckQuotas() const {
  std::vector<EntitledUser> users(users_.size());
  std::vector<uint64_t> allowed(users_.size());
  for (const Entitlement& job : jobs_) {
    if (!job.used) continue;
    EntitledUser& user = users[job.user];
    user.taken += job.counted() + job.returning;
    if (job.ended) continue;
    user.most += MostInWindows(PartOfQuota(job));
    ++user.open;
    user.live += job.live ? 1 : 0;
    user.guaranteed += job.guarantee();
    allowed[job.user] += users_[job.user].quota.ram.any() ? Limit(job) : 0;
  }
  for (size_t i = 0; i < users_.size(); ++i) {
    const EntitledUser& user = users_[i];
    TIER_CHECK(user.open == users[i].open && user.live == users[i].live && user.guaranteed == users[i].guaranteed,
               "user {}: {} of {} jobs live, not {} of {}; {} guaranteed, not {}", user.uid, user.live, user.open,
               users[i].live, users[i].open, user.guaranteed, users[i].guaranteed);
    TIER_CHECK(user.taken == users[i].taken && user.most == users[i].most,
               "user {}: windows of {}, not {}; {} at most, not {}", user.uid, user.taken, users[i].taken, user.most,
               users[i].most);
    TIER_CHECK(allowed[i] <= std::max(user.quota.ram.most, user.guaranteed), "user {} is allowed {} of {}", user.uid,
               allowed[i], user.quota.ram.most);
  }
}

}  // namespace tier::tiering
