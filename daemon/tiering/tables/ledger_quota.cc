// Quotas of users in the ledger: how one is divided among jobs, and what guarantees it allows. See ledger.h.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {

using base::FormatBytes;

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

uint64_t Ledger::LimitOf(EntitlementIndex job) const { return Limit(At(job)); }

bool Ledger::BoundByQuota(EntitlementIndex job) const {
  const Entitlement& entry = At(job);
  const uint64_t part = PartOfQuota(entry);
  return part < arena_ && (entry.terms.limit_bytes == 0 || part < entry.terms.limit_bytes);
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

bool Ledger::SetQuota(uint32_t uid, const UserQuota& quota) {
  const auto found = user_by_uid_.find(uid);
  if (found == user_by_uid_.end() || users_[found->second].quota == quota) return false;
  users_[found->second].quota = quota;
  Recompute();
  return true;
}

// What the jobs of each user may hold together fits its quota, or is what they are guaranteed.
void Ledger::CheckQuotas() const {
  std::vector<EntitledUser> users(users_.size());
  std::vector<uint64_t> allowed(users_.size());
  for (const Entitlement& job : jobs_) {
    if (!job.used || job.ended) continue;
    EntitledUser& user = users[job.user];
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
    TIER_CHECK(allowed[i] <= std::max(user.quota.ram.most, user.guaranteed), "user {} is allowed {} of {}", user.uid,
               allowed[i], user.quota.ram.most);
  }
}

}  // namespace tier::tiering
