// The trace through the daemon's engine: jobs with sessions, windows, leases, evictions and moves, in simulated memory.
// What a job asks for is always within its share, so nothing may be refused; and what was accepted must be readable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/tiering/memory/growth.h"
#include "proto/units.h"
#include "tests/perf/churn/trace.h"

namespace tier::churn {

// Windows that were made ahead of need stay with a job once a piece lies in each of them, up to kAheadBytesMax: of a
// smaller job that is more than a hundredth. Jobs of 3.5 GiB held 1.078, and 1.011 where none were made ahead; with
// sizes that fill no block 1.065 and 1.033, so that is not all of it (seed 3, 10^5 events, 2026-11-28).
inline constexpr uint64_t kJobMin = 128 * tiering::kAheadBytesMax;

struct EngineRunOptions {
  uint64_t arena_bytes = 0;
  uint32_t page_size = kPageSize;        // Of windows for blocks. 2 MiB: nothing else lies in them.
  std::vector<uint32_t> devices;         // The blocks of each SSD device. None: RAM alone.
  uint32_t events_for_a_read = 10;       // So many events, then a tensor drawn from those that live is read.
  uint32_t leases_kept = 32;             // Of the last tensors that were read so: what is leased cannot be moved.
  uint32_t events_for_a_check = 10'000;  // … then Engine::CheckInvariants.
};

struct EngineOutcome {
  uint64_t created = 0;
  uint64_t refused = 0;
  uint64_t refused_bytes = 0;
  std::string refusal;  // The first one.
  uint64_t read = 0;    // Tensors drawn during the run, and all that live at its end.
  uint64_t unreadable = 0;
  double windows_at_peak = 0;  // The most that all jobs' windows took at one time, of the most that lived at one time.
  // The most that the windows of one job took of the most of it that lived at one time, when that has not risen for a
  // while, so that what was made ahead of need is given back. Of jobs of kJobMin and more; 0: there was none.
  double windows_of_job = 0;
  // Of what lives, at worst, while that is at least 0.99 of the peak, and while it is at least half of it: pages of the
  // windows that are in use, or, with SSD, what lies there or only in RAM.
  double used_at_peak = 0;
  double used_below = 0;
  uint64_t evicted_bytes = 0;
  uint64_t read_bytes = 0;  // From SSD.
  uint64_t moved_bytes = 0;
  double nanoseconds = 0;  // For each event, with the reads and without the checks.
};

EngineOutcome RunEngine(const TraceOptions& trace, const EngineRunOptions& options);

}  // namespace tier::churn
