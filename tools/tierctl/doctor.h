// tierctl doctor: what this machine lacks for tierd to run at its best, and the line that grants it.
//
// Each check reads one thing and finds it good, worth a note (tierd runs well; it could be faster), degraded (tierd
// runs in a named lesser mode) or bad (tierd does not start). A daemon that runs says itself what it lacks: then a lack
// of this login is a note. Files are read under `root`, so that tests replace /proc and /sys; the probes that need the
// running kernel itself come as functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/storage/sizing.h"
#include "proto/result.h"
#include "tools/tierctl/daemon_options.h"
#include "tools/tierctl/message_json.h"

namespace tier::tierctl {

enum class Verdict { kGood, kNote, kDegraded, kBad };

struct Finding {
  std::string check;  // "memlock"
  Verdict verdict = Verdict::kGood;
  std::string found;   // What is there, with figures.
  std::string remedy;  // A line to paste into the shell that asked, which grants what is missing. Empty: no line does.
  std::string advice;  // What there is to say besides, or to do where no line does it. Empty when good.
};

struct Machine {
  std::string root = "";  // Before /proc and /sys.
  uint32_t uid = 0;
  bool ipc_lock = false;       // CAP_IPC_LOCK is effective: memlock does not bind.
  bool sys_resource = false;   // CAP_SYS_RESOURCE is effective: hard limits may be raised.
  uint64_t memlock_bytes = 0;  // Soft limit; ~0: none.
  uint64_t open_files = 0;     // Hard limit.
  std::string data_directory;
  std::string runtime_directory;
  std::string daemon_program;                        // As a shell finds it; empty: not installed.
  std::function<int()> try_io_uring;                 // 0, or the errno of io_uring_setup.
  std::function<bool(const std::string&)> writable;  // May this user make files in that directory (or make it)?
  std::function<std::optional<uint32_t>(const std::string&)> owner;  // Of a directory; none: it does not exist.
  std::function<bool(const std::string&)> settable;  // May this user write to that file of the kernel's?
  std::function<storage::FileSystemSpace(const std::string&)> space;  // Of the file system; zeros: it does not exist.
};

Machine ThisMachine();
// `status`: of the daemon that answers, by which the huge pages are counted; null: none does.
std::vector<Finding> Examine(const Machine& machine, const v1::NodeStatus* status = nullptr);
// No daemon answers: a note, unless the caller says that there is one by naming its socket. Says that the default
// places were checked.
Finding WithoutDaemon(const Machine& machine, const Error& error, bool named);
// One answers: its own memory, devices and directories in place of the default ones, its modes in place of what this
// login may pin and use, then all its modes. What else was found of this machine and login is a note.
std::vector<Finding> WithDaemon(std::vector<Finding> by_default, const v1::NodeStatus& status,
                                const std::string& socket);
// 0 with notes, 6 degraded or drained, 1 bad.
int ExitCodeOf(const std::vector<Finding>& findings);
// All of that for this machine and the daemon that answers, if one does.
std::vector<Finding> Diagnose(const DaemonOptions& options);
Json ToJson(const std::vector<Finding>& findings);
int Doctor(const DaemonOptions& options);

}  // namespace tier::tierctl
