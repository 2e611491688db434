// See quota_use.h.
#include "daemon/session/quota_use.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"

namespace tier::session {

using tiering::QuotaLevel;

std::vector<QuotaUse> UsesFor(const Caller& caller, JobService& jobs, const QuotaBook& book) {
  std::map<uint32_t, QuotaUse> uses;
  if (caller.uid != kUnknownUid) uses[caller.uid] = {};
  for (const auto& [id, job] : jobs.registry().jobs()) {
    if (!caller.admin && job.uid != caller.uid) continue;
    const tiering::JobCounters has = jobs.engine().Counters(id);
    QuotaUse& use = uses[job.uid];
    use.ram.used += has.ram_bytes;
    use.guarantee.used += has.own_guarantee_bytes;
    ++use.jobs.used;
  }
  std::vector<QuotaUse> listed;
  for (auto& [uid, use] : uses) {
    TIER_CHECK(use.jobs.used == jobs.registry().CountOf(uid), "uid {} has {} jobs", uid, use.jobs.used);
    const ResolvedQuota quota = book.QuotaOf(uid);
    use.uid = uid;
    use.ssd.used = jobs.engine().StorageOf(uid);
    use.ram.limit = quota.bytes.ram;
    use.ssd.limit = quota.bytes.ssd;
    use.guarantee.limit = quota.bytes.guarantee;
    use.jobs.limit = quota.jobs;
    listed.push_back(use);
  }
  return listed;
}

std::string QuotaText(const QuotaTarget& target) {
  TIER_CHECK(target.level != QuotaLevel::kOption, "an option is no quota: {}", target.name);
  if (target.level == QuotaLevel::kDefault) return "every user by default";
  return (target.level == QuotaLevel::kUser ? "user " : "group ") + target.name;
}

std::string QuotaText(const QuotaFields& fields) {
  std::string text;
  const auto add = [&text](const char* name, const std::optional<uint64_t>& value, bool bytes) {
    if (!value) return;
    const std::string figure = bytes ? base::FormatBytes(*value) : std::to_string(*value);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                        *value == tiering::kUnlimited ? std::string("unlimited") : figure);
  };
  add("ram", fields.ram, true);
  add("ssd", fields.ssd, true);
  add("guarantee", fields.guarantee, true);
  add("jobs", fields.jobs, false);
  return text;
}

}  // namespace tier::session
