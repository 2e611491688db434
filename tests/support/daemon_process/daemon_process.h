// DaemonProcess: the built tierd, with an arena and an SSD file of its own. Threads: one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/daemon_process/child_process.h"
#include "tests/support/daemon_process/kernel_holdings.h"

namespace tier::daemon_process {

struct DaemonOptions {
  std::string program;  // Path of tierd.
  std::string arena = "64MiB";
  std::string collapse = "auto";  // Of windows into huge pages.
  std::string ssd_file_size = "1GiB";
  std::string more_toml;  // As it is, at the end.
  bool is_private = true;
};

class DaemonProcess {
 public:
  // Returns when the daemon has said READY=1. Throws with the daemon's own words when it ends before.
  explicit DaemonProcess(const DaemonOptions& options);
  ~DaemonProcess();

  const std::string& socket_path() const { return socket_path_; }
  const std::string& directory() const { return directory_; }
  pid_t pid() const { return child_->pid(); }
  ChildProcess& process() { return *child_; }
  // kill -9, and another one on the same directory.
  void Kill();
  void Restart();
  // SIGTERM; the exit status.
  int Stop();
  std::string Log() const;
  size_t descriptor_count() const;
  // All clients are gone: waits until the daemon has in the kernel what it had when it was ready, or has ended. What it
  // has more of when the time is over, in words.
  std::string AwaitNothingLeft(std::chrono::milliseconds timeout);
  bool running() { return !child_->AwaitDeath(std::chrono::milliseconds(0)); }

 private:
  void Start();

  DaemonOptions options_;
  std::string directory_;
  std::string socket_path_;
  std::optional<ChildProcess> child_;
  KernelHoldings before_;  // When it was ready.
};

}  // namespace tier::daemon_process
