// What the windows of the arena hold, as operators see it: figures of each job, and a record of each window. Plain
// values, copied out on the engine thread. A figure is a byte count unless its name says otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "daemon/memory/window_source.h"
#include "daemon/tiering/api/request.h"
#include "proto/units.h"
#include "proto/window_kind.h"

namespace tier::tiering {

// What a piece takes of a window.
enum class RamClass : uint8_t {
  kBlock,  // A whole block.
  kTail,   // Pages of a block, for the last piece of a tensor that has whole blocks too.
  kSlot,   // Pages of a block, for a small tensor.
};
inline constexpr size_t kRamClasses = 3;
constexpr const char* RamClassName(RamClass piece) {
  constexpr std::array<const char*, kRamClasses> kNames = {"block", "tail", "slot"};
  return kNames[static_cast<size_t>(piece)];
}
template <typename T>
using ByRamClass = std::array<T, kRamClasses>;

constexpr const char* WindowKindName(WindowKind kind) { return kind == WindowKind::kBlock ? "block" : "slot"; }

// What becomes of a window now.
enum class PoolCondition : uint8_t {
  kMaking,     // It is being made for its job.
  kReady,      // Its job uses it.
  kEmptying,   // Its job uses it until what it holds has left it: it goes to another job.
  kReturning,  // Its job's processes were asked to unmap it.
  kOverdue,    // They did not, within the time for that.
  kClosing,    // No process has it; it goes back to the arena when the SSD devices no longer use it.
};
inline constexpr size_t kPoolConditions = 6;
constexpr const char* PoolConditionName(PoolCondition condition) {
  constexpr std::array<const char*, kPoolConditions> kNames = {"making",    "ready",   "emptying",
                                                               "returning", "overdue", "closing"};
  return kNames[static_cast<size_t>(condition)];
}

// What one job has of the pool. requested() <= held() <= the arena.
struct PoolFigures {
  ByRamClass<uint64_t> requested_bytes{};           // Of its tensors in RAM, to the byte.
  std::array<uint64_t, kWindowKinds> held_bytes{};  // Of its windows, ready or being made.
  uint64_t free_bytes = 0;                          // Free pages in its windows.
  uint64_t largest_run_bytes = 0;                   // Longest run of free blocks; where none is free, of pages in one.
  uint64_t borrowed_bytes = 0;                      // Held beyond what it is promised.
  uint64_t owed_bytes = 0;                          // That it asked for within its promise and has not got yet.
  uint64_t emptying_bytes = 0;                      // Of windows that it uses until what they hold has left them.
  uint64_t returning_bytes = 0;                     // Of windows that its processes were asked to unmap: held no more.
  uint64_t kept_bytes = 0;                          // Of windows that were taken from it, and that they still have.

  uint64_t requested() const { return std::accumulate(requested_bytes.begin(), requested_bytes.end(), uint64_t{0}); }
  uint64_t held() const { return std::accumulate(held_bytes.begin(), held_bytes.end(), uint64_t{0}); }
  uint64_t waste() const { return held() - std::min(held(), requested()); }
};

// Adds what another job has. The largest run is that of the job that has the larger one: runs of two jobs do not meet.
inline void AddPool(const PoolFigures& job, PoolFigures* sum) {
  for (size_t i = 0; i < kRamClasses; ++i) sum->requested_bytes[i] += job.requested_bytes[i];
  for (size_t i = 0; i < kWindowKinds; ++i) sum->held_bytes[i] += job.held_bytes[i];
  sum->free_bytes += job.free_bytes;
  sum->largest_run_bytes = std::max(sum->largest_run_bytes, job.largest_run_bytes);
  sum->borrowed_bytes += job.borrowed_bytes;
  sum->owed_bytes += job.owed_bytes;
  sum->emptying_bytes += job.emptying_bytes;
  sum->returning_bytes += job.returning_bytes;
  sum->kept_bytes += job.kept_bytes;
}

struct WindowView {
  WindowIndex index{};
  WindowKind kind = WindowKind::kBlock;
  PoolCondition condition = PoolCondition::kReady;
  JobId job{};                        // 0: its job has ended.
  uint64_t size = 0;                  // 0 while it is being made.
  uint64_t place = 0;                 // Where it lies in the clients' address space.
  int node = memory::kAnyNode;        // The NUMA node of its first page, where the host has several.
  ByRamClass<uint32_t> used_pages{};  // By pieces of its job.
};

struct PoolJob {
  JobId id{};
  PoolFigures figures;
};

struct PoolView {
  uint64_t arena_bytes = 0;
  uint64_t arena_max_bytes = 0;
  uint64_t stock_bytes = 0;         // As in EngineSnapshot.
  uint64_t kept_bytes = 0;          // Of windows that processes still have, of all jobs, also of those that have ended.
  std::vector<PoolJob> jobs;        // Open ones, by their ids.
  std::vector<WindowView> windows;  // By their indices.
};

}  // namespace tier::tiering
