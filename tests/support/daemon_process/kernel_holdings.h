// KernelHoldings: what the kernel has for a process, by kind: descriptors, threads of its own, and mapped memory files.
// Two of them tell what a daemon has not given back since. Threads: any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace tier::daemon_process {

struct KernelHoldings {
  std::map<std::string, uint64_t> descriptors;  // By what they lead to, without its number.
  std::map<std::string, uint64_t> threads;      // By name; those of gRPC's pool are not counted.
  std::map<std::string, uint64_t> mapped;       // Memory files, by name.
};

// Empty where the process has ended.
KernelHoldings HoldingsOf(pid_t pid);

// What `now` has more of than `before`, in words; empty: nothing. A few wake-ups that gRPC keeps do not count.
std::string MoreThan(const KernelHoldings& before, const KernelHoldings& now);

}  // namespace tier::daemon_process
