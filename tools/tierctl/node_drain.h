// `drain` and `undrain`: a job's dirty bytes, or all of them, are written to SSD; and the node takes no new job or
// process, until it is undrained.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

struct DrainRequest {
  std::string job;  // Empty: the whole daemon, which then takes no new job or process.
  // Of the writes; with `wait`, of all of it. Unset: kWriteTime; with `wait`, it may take as long as it takes.
  std::optional<std::chrono::seconds> timeout;
  bool wait = false;  // Until the last process has left.
};
// "90", "90s", "5min", "2h": a whole number of seconds from 1 to those of a year. Nothing: it is no such time.
std::optional<std::chrono::seconds> ParseTimeout(const std::string& text);
int Drain(const DaemonOptions& options, const DrainRequest& asked);
int Undrain(const DaemonOptions& options);

inline constexpr std::chrono::seconds kWriteTime{60};
inline constexpr std::chrono::seconds kWriteTimeMax{3600};  // The daemon waits no longer for writes.

// What a drain that waits needs of the daemon and of time.
struct DrainSteps {
  std::function<Result<v1::DrainResponse>(std::chrono::seconds write_time)> drain;
  std::function<Result<v1::NodeStatus>()> status;
  std::function<Result<v1::ListJobsResponse>(const std::string& page_token)> jobs;  // One page; "": the first.
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void()> pause;  // Before the daemon is asked again.
  std::function<void(const std::string& sentence)> tell;
  std::function<void(const std::string& sentence)> warn;
};
struct DrainedNode {
  uint64_t jobs = 0;            // Open ones that have tensors, all without processes.
  bool stays_in_ram = false;    // There is no SSD tier.
  std::string unmarked{};       // Why a crash would end the drain. Empty: it would not.
  std::string unpersisted;      // Jobs with tensors that have persisted nothing, in words. Empty: none.
  bool some_persisted = false;  // Others have tensors, some of which they may not have persisted.
};
// Drains the node and returns when no process is attached any more. What cannot be written meanwhile is no reason to
// return: it is told, and jobs that stay are written again at the end. Errors: that of the drain, where the node is not
// drained; that of the last writes; IO_ERROR, the index of what jobs persisted has failed; TIMEOUT, and the node stays
// drained; REVOKED, it was undrained meanwhile; STALE, another daemon runs by now.
Result<DrainedNode> DrainAndWait(const DrainSteps& steps, std::optional<std::chrono::seconds> timeout);

}  // namespace tier::tierctl
