// Urgency: what a thread is to the threads beside it on few processors (docs/decisions/0024). Threads: any.
#pragma once

#include <chrono>

namespace tier::proto {

enum class Urgency {
  kNormal,  // As the process is.
  kPrompt,  // It runs for microseconds, and others wait for it.
  kBulk,    // It moves many bytes: who wakes up beside it goes first.
  kWanted,  // So does it, and a request waits for all of them: it has its full part of a processor.
};

inline constexpr int kBulkNice = 5;  // Beyond that of the process.

// Tells the kernel so for the calling thread, for good. Needs no right. Where the kernel does not know of slices
// (before Linux 6.12), or a filter forbids the call, the thread stays more or less as it was. A thread that is not
// scheduled by niceness (a real-time policy, SCHED_IDLE) stays so.
void SetUrgency(Urgency urgency);

// For bulk and wanted threads, behind a piece of work for which nothing waits any more, or behind each window. One
// that has run for kBulkRunMax since its last pause sleeps for some 50 µs, so that a thread which the kernel lets wait
// for it until the next tick runs before.
void GiveWay();

inline constexpr std::chrono::microseconds kBulkRunMax{500};

}  // namespace tier::proto
