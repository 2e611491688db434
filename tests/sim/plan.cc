// See plan.h.
#include "tests/sim/plan.h"

#include <algorithm>

#include "proto/units.h"

namespace tier::tiering::sim {
namespace {

void DrawStops(Chance* chance, Plan* plan) {
  plan->turns = 3000;  // Clients have two seconds to return windows.
  plan->stop_one_in = static_cast<uint32_t>(chance->Between(50, 300));
  plan->reclaim_deadline_ms = static_cast<uint32_t>(chance->Between(10, 2500));
}

}  // namespace

Plan DrawPlan(uint64_t seed) {
  Chance chance(seed);
  Plan plan{.seed = seed, .by_readings = seed % 4 == 3};
  plan.jobs = static_cast<uint32_t>(chance.Between(1, 3));
  plan.clients = static_cast<uint32_t>(chance.Between(plan.jobs, 6));
  plan.window_size = kBlockSize << chance.Below(3);
  plan.arena_max_bytes = plan.window_size * chance.Between(2, 8);
  plan.window_delay_turns = chance.OneIn(2) ? 0 : static_cast<uint32_t>(chance.Below(12));
  plan.devices = static_cast<uint16_t>(chance.Between(1, 2));
  plan.device_blocks = static_cast<uint32_t>(chance.OneIn(4) ? chance.Between(2, 6) : chance.Between(16, 64));
  plan.inflight_max = static_cast<uint32_t>(chance.OneIn(3) ? chance.Between(2, 4) : 64);
  plan.delay_turns_max = static_cast<uint32_t>(chance.Below(10));
  if (chance.OneIn(3)) plan.write_errors = static_cast<uint32_t>(chance.Below(200'000));
  if (chance.OneIn(4)) plan.read_errors = static_cast<uint32_t>(chance.Below(100'000));
  if (chance.OneIn(5)) plan.no_space = static_cast<uint32_t>(chance.Below(200'000));
  if (chance.OneIn(4)) plan.corruptions = static_cast<uint32_t>(chance.Below(50'000));
  if (chance.OneIn(2)) plan.kill_one_in = static_cast<uint32_t>(chance.Between(20, 200));
  if (chance.OneIn(10)) plan.punch_one_in = static_cast<uint32_t>(chance.Between(100, 400));
  if (chance.OneIn(3)) plan.hostile_one_in = static_cast<uint32_t>(chance.Between(3, 30));
  plan.leases_max = static_cast<uint32_t>(chance.OneIn(2) ? chance.Between(1, 2) : chance.Between(3, 12));
  plan.tensor_max_bytes = chance.OneIn(2) ? 64 * kKiB : 5 * kMiB;
  plan.manifests = chance.OneIn(3);
  plan.guarantees = chance.OneIn(3);
  if (chance.OneIn(3)) plan.work.submit = static_cast<uint32_t>(chance.Between(4, 32));
  if (chance.OneIn(3)) plan.work.wake = static_cast<uint32_t>(chance.Between(1, 4));
  if (chance.OneIn(3)) plan.work.teardown = plan.work.frees = static_cast<uint32_t>(chance.Between(1, 12));
  if (chance.OneIn(4)) {
    plan.work.store = static_cast<uint32_t>(chance.Between(1, 12));
    plan.work.share = plan.work.look = static_cast<uint32_t>(chance.Between(16, 48));
    plan.work.expiry = plan.work.maintain = plan.work.compact = plan.work.move = plan.work.count = plan.work.drop =
        static_cast<uint32_t>(chance.Between(1, 12));
  }
  if (chance.OneIn(2)) plan.slot_window_size = kBlockSize;
  plan.huge_pages = chance.OneIn(2);
  if (chance.OneIn(4)) plan.metadata_bytes = chance.Between(4, 64) * kKiB;
  if (chance.OneIn(2)) plan.hostiles = static_cast<uint32_t>(chance.Between(1, 2));
  if (chance.OneIn(2)) plan.remove_delay_turns = static_cast<uint32_t>(chance.Between(1, 30));
  if (chance.OneIn(3)) plan.device_fault_one_in = static_cast<uint32_t>(chance.Between(20, 200));
  if (chance.OneIn(4)) plan.drain_one_in = static_cast<uint32_t>(chance.Between(50, 300));
  if (chance.OneIn(3)) plan.devices = static_cast<uint16_t>(chance.Between(3, 4));
  if (plan.manifests && chance.OneIn(2)) {
    plan.turns = 1200;
    plan.devices = std::max<uint16_t>(plan.devices, 2);
    plan.drain_one_in = static_cast<uint32_t>(chance.Between(20, 100));
    plan.close_one_in = static_cast<uint32_t>(chance.Between(20, 80));
    plan.closed_turns = static_cast<uint32_t>(chance.Between(10, 80));
  }
  plan.move_blocks = static_cast<uint32_t>(chance.Between(1, 8));
  plan.ssd_terms = chance.OneIn(3);
  if (plan.manifests && chance.OneIn(4)) {
    plan.lost_commit_turn = static_cast<uint32_t>(chance.Between(1, plan.turns));
    plan.lost_commit_made = chance.OneIn(2);
  }
  if (plan.jobs > 1 && chance.OneIn(4)) DrawStops(&chance, &plan);
  plan.copy_delay_turns_max = static_cast<uint32_t>(chance.Below(8));
  plan.several_sizes = chance.OneIn(2);
  if (chance.OneIn(2)) plan.idle_after_ms = static_cast<uint32_t>(chance.Between(1, 50));
  if (chance.OneIn(4)) plan.quota_one_in = static_cast<uint32_t>(chance.Between(20, 200));
  return plan;
}

Plan QuotaPlan(uint64_t seed) {
  Plan plan = DrawPlan(seed);
  Chance chance(~seed);
  plan.jobs = static_cast<uint32_t>(chance.Between(2, 4));
  plan.clients = plan.jobs + static_cast<uint32_t>(chance.Below(3));
  plan.guarantees = chance.OneIn(2);
  plan.quota_one_in = static_cast<uint32_t>(chance.Between(10, 60));
  return plan;
}

Plan CrowdedPlan(uint64_t seed) {
  Chance chance(seed);
  Plan plan{.seed = seed, .turns = 800, .jobs = 65, .clients = 65};
  plan.window_size = kBlockSize;
  plan.arena_max_bytes = kBlockSize * chance.Between(4, 16);
  plan.devices = 1;
  plan.device_blocks = 512;
  plan.inflight_max = 64;
  plan.delay_turns_max = 2;
  plan.leases_max = 2;
  plan.tensor_max_bytes = 256 * kKiB;
  return plan;
}

Plan ScatteredPlan(uint64_t seed) {
  Chance chance(seed);
  Plan plan{.seed = seed, .turns = 1500, .by_readings = seed % 4 == 3};
  plan.jobs = static_cast<uint32_t>(chance.Between(1, 2));
  plan.clients = plan.jobs + 2;
  plan.window_size = kBlockSize << chance.Below(2);
  plan.slot_window_size = kBlockSize;
  plan.huge_pages = chance.OneIn(4);
  plan.arena_max_bytes = plan.window_size * chance.Between(3, 8);
  plan.devices = 1;
  plan.device_blocks = 128;
  plan.inflight_max = 64;
  plan.delay_turns_max = static_cast<uint32_t>(chance.Below(4));
  plan.copy_delay_turns_max = static_cast<uint32_t>(chance.Between(2, 30));
  plan.leases_max = 2;
  plan.tensor_max_bytes = 3 * kMiB;
  plan.manifests = chance.OneIn(4);
  plan.guarantees = plan.jobs > 1 && chance.OneIn(2);
  if (chance.OneIn(2)) plan.kill_one_in = static_cast<uint32_t>(chance.Between(30, 200));
  if (chance.OneIn(4)) plan.punch_one_in = static_cast<uint32_t>(chance.Between(50, 200));
  if (chance.OneIn(4)) plan.work.compact = static_cast<uint32_t>(chance.Between(1, 12));
  return plan;
}

Plan HandOverPlan(uint64_t seed) {
  Plan plan = ScatteredPlan(seed);
  Chance chance(~seed);
  plan.jobs = static_cast<uint32_t>(chance.Between(2, 4));
  plan.clients = plan.jobs + static_cast<uint32_t>(chance.Below(3));
  plan.guarantees = true;
  plan.arena_max_bytes = plan.window_size * chance.Between(3, 8);
  plan.device_blocks = static_cast<uint32_t>(chance.OneIn(2) ? chance.Between(2, 8) : 128);
  plan.tensor_max_bytes = chance.OneIn(4) ? 64 * kKiB : 3 * kMiB;
  plan.leases_max = 1;
  plan.copy_delay_turns_max = static_cast<uint32_t>(chance.Between(0, 30));
  plan.window_delay_turns = static_cast<uint32_t>(chance.Below(6));
  plan.remove_delay_turns = static_cast<uint32_t>(chance.Below(10));
  plan.kill_one_in = static_cast<uint32_t>(chance.Between(20, 80));
  if (chance.OneIn(4)) plan.drain_one_in = static_cast<uint32_t>(chance.Between(50, 300));
  if (chance.OneIn(4)) plan.write_errors = static_cast<uint32_t>(chance.Below(200'000));
  if (chance.OneIn(3)) plan.work.move = static_cast<uint32_t>(chance.Between(1, 12));
  if (chance.OneIn(4)) DrawStops(&chance, &plan);
  if (chance.OneIn(2)) plan.idle_after_ms = static_cast<uint32_t>(chance.Between(1, 50));
  return plan;
}

Plan PressedPlan(uint64_t seed) {
  Chance chance(seed);
  Plan plan{.seed = seed, .turns = 1000, .by_readings = seed % 4 == 3};
  plan.jobs = static_cast<uint32_t>(chance.Between(1, 4));
  plan.clients = plan.jobs + static_cast<uint32_t>(chance.Below(3));
  plan.window_size = kBlockSize << chance.Below(3);
  plan.slot_window_size = kBlockSize;
  plan.huge_pages = chance.OneIn(4);
  plan.arena_max_bytes = plan.window_size * chance.Between(4, 10);
  plan.window_delay_turns = static_cast<uint32_t>(chance.Below(6));
  plan.devices = static_cast<uint16_t>(chance.Between(1, 2));
  plan.device_blocks = 128;
  plan.inflight_max = static_cast<uint32_t>(chance.OneIn(3) ? chance.Between(2, 4) : 64);
  plan.delay_turns_max = static_cast<uint32_t>(chance.Below(6));
  plan.remove_delay_turns = static_cast<uint32_t>(chance.Below(20));
  plan.copy_delay_turns_max = static_cast<uint32_t>(chance.Below(8));
  plan.leases_max = static_cast<uint32_t>(chance.Between(1, 4));
  plan.tensor_max_bytes = chance.OneIn(2) ? 64 * kKiB : 5 * kMiB;
  plan.guarantees = chance.OneIn(2);
  plan.pressure_one_in = static_cast<uint32_t>(chance.Between(20, 200));
  if (chance.OneIn(2)) plan.kill_one_in = static_cast<uint32_t>(chance.Between(30, 200));
  if (chance.OneIn(4)) plan.punch_one_in = static_cast<uint32_t>(chance.Between(50, 200));
  if (chance.OneIn(4)) plan.write_errors = static_cast<uint32_t>(chance.Below(200'000));
  if (chance.OneIn(4)) plan.work.move = static_cast<uint32_t>(chance.Between(1, 12));
  return plan;
}

}  // namespace tier::tiering::sim
