// tierctl doctor: what this machine lacks for tierd to run at its best, and the line that grants it.
//
// Each check reads one thing and finds it good, degraded (tierd runs in a named lesser mode) or bad (tierd does not
// start). Files are read under `root`, so that tests replace /proc and /sys; the probes that need the running kernel
// itself come as functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/tierctl/daemon_verbs.h"

namespace tier::tierctl {

enum class Verdict { kGood, kDegraded, kBad };

struct Finding {
  std::string check;  // "memlock"
  Verdict verdict = Verdict::kGood;
  std::string found;   // What is there, with figures.
  std::string remedy;  // The line that grants what is missing; empty when good.
};

struct Machine {
  std::string root = "";  // Before /proc and /sys.
  uint32_t uid = 0;
  bool ipc_lock = false;       // CAP_IPC_LOCK is effective: memlock does not bind.
  uint64_t memlock_bytes = 0;  // Soft limit; ~0: none.
  uint64_t open_files = 0;     // Hard limit.
  std::string data_directory;
  std::string runtime_directory;
  std::function<int()> try_io_uring;                       // 0, or the errno of io_uring_setup.
  std::function<bool(const std::string&)> writable;        // May this user make files in that directory (or make it)?
  std::function<uint64_t(const std::string&)> free_bytes;  // Of the file system; 0: it does not exist.
};

Machine ThisMachine();
std::vector<Finding> Examine(const Machine& machine);
int Doctor(const DaemonOptions& options);

}  // namespace tier::tierctl
