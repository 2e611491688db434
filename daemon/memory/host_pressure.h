// HostPressure: how far the arena may reach while the host, or a control group above us, is short of memory. Pure;
// single-threaded.
//
// A shortage has two signs:
//   room    the host, or a group, has less left than the host reserve: so much should come back. Growth stops at the
//           reserve; giving back begins when a quarter of it is gone, so that small changes cause nothing.
//   stalls  tasks wait for memory (PSI), in two readings in a row. How much would help is not known, so the arena gives
//           a part after the other while they wait. Only stalls where little memory is unused count: others have other
//           reasons (memory of other groups, compaction in the kernel). By stalls alone the arena gives at most half of
//           what it had: if tasks still wait then, it is not for the arena.
//
// While a shortage lasts there is a ceiling. Windows may come and go below it; it only falls, and never below the
// arena's minimum. It goes when nothing was short for a while: 10 s, and twice as long each time that a shortage comes
// back soon after that, up to 5 minutes.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/time.h"
#include "daemon/memory/host_memory.h"
#include "proto/units.h"

namespace tier::memory {

// Parts of the time between two readings; without totals, of the last 10 s.
inline constexpr double kSomeStalled = 0.30;
inline constexpr double kFullStalled = 0.10;
inline constexpr double kSomeCalm = 0.10;
inline constexpr double kFullCalm = 0.02;
inline constexpr uint32_t kStalledReadings = 2;
inline constexpr uint64_t kLittleShare = 8;  // Little is unused: less than an eighth of the memory or of the limit.
inline constexpr uint64_t kStallStepShare = 32;
// A part is at least so much: with a reading every 250 ms that is 1 GB/s, also of a small arena. What is given of it is
// bounded by the half, by the minimum, and by the work of each turn (hand_over.h).
inline constexpr uint64_t kStallStepMin = 256 * kMiB;
inline constexpr base::Duration kCalmFirst = std::chrono::seconds(10);
inline constexpr base::Duration kCalmMax = std::chrono::minutes(5);

class HostPressure {
 public:
  enum class Cause : uint8_t { kNone, kRoom, kHostStalls, kCgroupStalls };
  struct Arena {                  // Bytes.
    uint64_t bytes = 0;           // Windows.
    uint64_t least_bytes = 0;     // The ceiling stays above: the minimum, and windows that are not the host's memory.
    uint64_t step_bytes = 0;      // The least to give by stalls: a window.
    uint64_t reserve_bytes = 0;   // The host reserve.
    uint64_t missing_bytes = 0;   // Of the host reserve, after what is on its way back.
    uint64_t too_many_bytes = 0;  // Windows beside which the daemon's own memory does not fit.
  };

  // One reading. Moves the ceiling.
  void Note(const HostReading& reading, const Arena& arena, base::TimePoint now);

  uint64_t ceiling() const { return ceiling_; }  // kUnlimited: there is none.
  bool active() const { return ceiling_ != kUnlimited; }
  // Of the shortage that is, or of the last one.
  bool gives() const { return gives_; }  // The arena has been lowered.
  Cause cause() const { return cause_; }
  uint64_t bytes_before() const { return bytes_before_; }  // The arena at its beginning.
  base::TimePoint since() const { return since_; }
  uint64_t count() const { return count_; }  // Shortages so far in which the arena was lowered.

 private:
  enum class Level : uint8_t { kCalm, kBetween, kStalled };
  // Totals of one pressure file, to take differences.
  struct Seen {
    MemoryStalls stalls;
    base::TimePoint at;
  };
  static Level LevelOf(const MemoryStalls& stalls, base::TimePoint now, Seen* seen);
  void Begin(Cause cause, const Arena& arena, base::TimePoint now);
  void Lower(uint64_t to, const Arena& arena);
  void NoteStalls(Cause cause, const Arena& arena, base::TimePoint now);
  void EndIfCalm(base::TimePoint now);

  Seen host_;
  Seen cgroup_;
  uint32_t stalled_readings_ = 0;
  uint64_t ceiling_ = kUnlimited;
  bool gives_ = false;
  Cause cause_ = Cause::kNone;
  uint64_t bytes_before_ = 0;
  uint64_t count_ = 0;
  base::TimePoint since_;
  base::TimePoint short_at_;  // Something was short last.
  base::TimePoint ended_at_;
  base::Duration calm_ = kCalmFirst;
  bool ended_ = false;  // A shortage has ended, at ended_at_.
};

// What keeps the arena low, in words: "memory.high of /a leaves 3 MiB, the host reserve is 64 MiB". `own_bytes`: the
// daemon's own memory.
std::string DescribePressure(const HostPressure& pressure, const HostReading& host, uint64_t reserve_bytes,
                             uint64_t own_bytes);

}  // namespace tier::memory
