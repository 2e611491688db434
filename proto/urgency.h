// Urgency: what a thread is to the threads beside it on few processors (docs/decisions/0024). Threads: any.
#pragma once

#include <chrono>

namespace tier::proto {

enum class Urgency {
  kNormal,  // As the process is.
  kPrompt,  // It runs for microseconds, and others wait for it.
  kFirst,   // So does it, and all jobs wait for it: it runs before what they compute.
  kBulk,    // It moves many bytes: who wakes up beside it goes first.
  kWanted,  // So does it, and a request waits for all of them: it has its full part of a processor.
};

// Beyond the niceness of the process.
inline constexpr int kBulkNice = 5;
inline constexpr int kFirstNice = -10;

// Tells the kernel so for the calling thread, for good. Only kFirst needs a right (RLIMIT_NICE, or CAP_SYS_NICE), and
// is as kPrompt without. Where the kernel does not know of slices (before Linux 6.12), or a filter forbids the calls,
// the thread stays more or less as it was. A thread that is not scheduled by niceness (a real-time policy, SCHED_IDLE)
// stays so.
void SetUrgency(Urgency urgency);

// For bulk and wanted threads, behind a piece of work for which nothing waits any more, or behind each window. One
// that has run for kBulkRunMax since its last pause sleeps for some 50 µs, so that a thread which the kernel lets wait
// for it until the next tick runs before.
void GiveWay();

inline constexpr std::chrono::microseconds kBulkRunMax{500};

}  // namespace tier::proto
