// Window ownership: windows of jobs, made, taken into a job's pool, asked back from its sessions, retired. Engine
// thread only.
//
// Invariant: a window is in its job's pool exactly while its condition is kReady; it is closed only when no session
// maps it, or its owner is gone, and goes back to the source when the devices have given up its memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// After this time a window that a client was asked for does not count as about to come, and a window of another job is
// asked for. libtier's service thread answers within milliseconds, and unregistering a window from a GPU waits for the
// step under way: two seconds are more than either needs, and less than a job that is owed the memory should wait for a
// client that is stopped.
inline constexpr base::Duration kWindowReturnDeadline = std::chrono::seconds(2);

// While merges are wished the last index is kept for them: where no larger window could be had, none would ever come
// free.
inline constexpr uint32_t kIndicesForMerges = 1;
enum class WindowPurpose : uint8_t { kGrowth, kMerge };

// Starts a window of so many bytes, or of less where the source has no place for it. None: the arena is at its maximum,
// the host is short, or no index is left.
std::optional<WindowIndex> StartWindow(Tables& tables, JobState& job, WindowKind kind, uint64_t size_bytes,
                                       WindowPurpose purpose = WindowPurpose::kGrowth);
// Takes in what the source has made, and gives back what the devices have given up. Returns whether there was anything.
bool TakeWindows(Tables& tables);
// For whom a window is asked back.
enum class AskedFor : uint8_t {
  kOwed,   // A job that is owed memory within its promise. Who keeps it may be killed (jobs/kept_windows.h).
  kOther,  // All else: a wish, the host, a merge, or its own job does not need it.
};
// Out of the pool, asked of every session that maps it. REQUIRES: ready, empty, no transfer on it.
void ReturnWindow(Tables& tables, WindowIndex window, AskedFor why = AskedFor::kOther);
// Counts the windows that were not returned in time as overdue.
void ExpireReturns(Tables& tables);
// Takes the windows that were not returned within EngineOptions::reclaim_deadline as if they had been. They are empty,
// so their clients lose nothing; their bytes are punched out when they are retired. Windows that such a client is asked
// for from then on, until it answers, are not waited for.
void TakeUnreturned(Tables& tables);
// Windows that are mapped by sessions with overdue windows: asking for these would bring nothing.
WindowSet WindowsOfOverdueSessions(const JobState& job);
void OnWindowReturned(Tables& tables, SessionState& session, WindowIndex window);
// The same, of one that was taken without the session's answer.
void OnTakenReturned(Tables& tables, SessionState& session, WindowIndex window);
// The session is gone, and with it its mappings.
void DropMappings(Tables& tables, SessionState& session);

}  // namespace tier::tiering
