// Plan: what one seed means: sizes of the world, how mean its devices are, what its clients like to do.
#pragma once

#include <cstdint>
#include <random>

#include "daemon/tiering/engine.h"

namespace tier::tiering::sim {

// The only source of chance in a simulation.
class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  uint64_t Any() { return random_(); }

 private:
  std::mt19937_64 random_;
};

struct Plan {
  uint64_t seed = 1;
  uint32_t turns = 600;
  uint32_t jobs = 2;
  uint32_t clients = 4;
  uint64_t window_size = 0;
  uint64_t slot_window_size = 0;  // 0: the same.
  bool several_sizes = false;     // Windows of either kind are of one block and more, as wished from turn to turn.
  bool huge_pages = false;        // Block windows are in 2 MiB pages.
  bool by_readings = false;       // The host is read now and then, as a real one is.
  uint64_t arena_max_bytes = 0;
  uint32_t window_delay_turns = 0;
  uint32_t copy_delay_turns_max = 0;  // Of pieces that move in RAM.
  uint32_t remove_delay_turns = 0;    // Until the devices give up a window.
  uint32_t device_blocks = 0;
  uint16_t devices = 1;
  uint32_t inflight_max = 0;
  uint32_t delay_turns_max = 0;
  uint32_t write_errors = 0;  // Per million.
  uint32_t read_errors = 0;
  uint32_t no_space = 0;
  uint32_t corruptions = 0;
  uint32_t device_fault_one_in = 0;  // Turns, until a device fails, hangs, or works again; 0: never.
  uint32_t drain_one_in = 0;         // Turns, until a device is to be emptied, or used again; 0: never.
  uint32_t kill_one_in = 0;          // Turns; 0: never.
  uint32_t punch_one_in = 0;         // Turns; 0: never.
  uint32_t hostile_one_in = 0;       // Actions; 0: never.
  uint32_t hostiles = 0;             // Clients that write whatever they like into their rings.
  uint32_t leases_max = 12;          // Of a client at a time.
  uint64_t tensor_max_bytes = 0;
  WorkUnits work;
  bool manifests = false;
  uint32_t lost_commit_turn = 0;  // From then on the outcome of the next commit is unknown; 0: of none.
  bool lost_commit_made = false;  // The next daemon finds it.
  uint32_t move_blocks = 1;       // Memory for pieces of closed jobs that leave a device.
  uint32_t close_one_in = 150;    // Turns, until the operator closes a named job …
  uint32_t closed_turns = 0;      // … and turns that it stays closed at least.
  bool guarantees = false;        // Some jobs open with one.
  bool ssd_terms = false;         // Some open with a guarantee of SSD space, a limit, or both.
  uint64_t metadata_bytes = 0;    // Of one user; 0: as much as by default.
  uint32_t stop_one_in = 0;       // Rounds, until a client stops for a while, and answers nothing; 0: never.
  uint32_t reclaim_deadline_ms = 60'000;
  uint32_t idle_after_ms = 60'000;
  uint32_t quota_one_in = 0;     // Turns, until a user has other quotas; 0: never.
  uint32_t pressure_one_in = 0;  // Turns, until the host has memory for more of the arena, or for less; 0: for all.
};

Plan DrawPlan(uint64_t seed);
// The same, with several jobs of users whose quotas change again and again.
Plan QuotaPlan(uint64_t seed);
// 65 jobs of one client each over an arena of a few windows.
Plan CrowdedPlan(uint64_t seed);
// Tensors of all sizes in a few blocks: free pages are scattered most of the time, and pieces move in RAM.
Plan ScatteredPlan(uint64_t seed);
// Several jobs with guarantees over a sparse arena: windows go from job to job, and what lies in them moves.
Plan HandOverPlan(uint64_t seed);
// A host that runs short of memory again and again, and has it again.
Plan PressedPlan(uint64_t seed);

}  // namespace tier::tiering::sim
