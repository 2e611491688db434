// Quotas of users, which change while their jobs run. See simulation.h.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "tests/sim/simulation.h"

namespace tier::tiering::sim {
namespace {

constexpr uint32_t kUids = 3;  // Of jobs, as PlanJob draws them.

// Often none; sometimes nothing at all.
QuotaLimit DrawLimit(Chance* chance, uint64_t all) {
  if (chance->OneIn(3)) return {};
  return {.most = chance->OneIn(6) ? 0 : chance->Between(1, all),
          .origin = {.level = QuotaLevel::kUser, .at_run_time = true}};
}

}  // namespace

void Simulation::QuotaMishap() {
  if (plan_.quota_one_in == 0 || !chance_.OneIn(plan_.quota_one_in)) return;
  const uint64_t devices = uint64_t{plan_.devices} * plan_.device_blocks * kBlockSize;
  const auto uid = static_cast<uint32_t>(chance_.Below(kUids));
  UserQuota quota;
  quota.ram = DrawLimit(&chance_, plan_.arena_max_bytes);
  quota.ssd = DrawLimit(&chance_, devices);
  quota.guarantee = DrawLimit(&chance_, plan_.arena_max_bytes);
  daemon_.ChangeQuota(uid, quota);
  ++outcome_.quota_changes;
  CheckQuota(uid, quota.ram);
}

// All jobs of the user together may hold the quota, or what they were guaranteed before.
void Simulation::CheckQuota(uint32_t uid, const QuotaLimit& ram) {
  if (!ram.any()) return;
  uint64_t allowed = 0;
  uint64_t guaranteed = 0;
  for (const JobView& view : engine_->Snapshot().jobs) {
    for (const Job& job : jobs_) {
      if (!job.open || job.uid != uid || job.id != static_cast<uint64_t>(view.id)) continue;
      allowed += view.counters.share_bytes;
      guaranteed += view.counters.own_guarantee_bytes;
    }
  }
  if (allowed <= std::max(ram.most, guaranteed)) return;
  Fail(fmt::format("jobs of user {} may hold {} together, by a quota of {} and guarantees of {}", uid, allowed,
                   ram.most, guaranteed));
}

void Simulation::CountQuotaRefusal(const Reply& reply) {
  const bool by_quota = reply.detail.find("at run time)") != std::string_view::npos;
  if ((reply.code == Code::kNoMemory || reply.code == Code::kNoSpace) && by_quota) ++outcome_.quota_refusals;
}

}  // namespace tier::tiering::sim
