// The verbs that ask a running daemon. Each prints its answer and returns an exit code; failures go to standard error
// as one sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

int ShowStatus(const DaemonOptions& options);
int ListJobs(const DaemonOptions& options);
int ShowJob(const DaemonOptions& options, const std::string& name);
struct JobChange {
  std::string name;
  std::optional<uint64_t> guarantee_bytes;
  std::optional<uint64_t> limit_bytes;
  std::optional<uint64_t> ssd_guarantee_bytes;
  std::optional<uint64_t> ssd_limit_bytes;
};
int SetJob(const DaemonOptions& options, const JobChange& change);
int OpenJob(const DaemonOptions& options, const JobChange& job, bool named);
int RemoveJob(const DaemonOptions& options, const std::string& name, bool purge);
int ListTensors(const DaemonOptions& options, const std::string& job, uint32_t max);
int ShowTensor(const DaemonOptions& options, const std::string& job, const std::string& id_or_key);
int ListDevices(const DaemonOptions& options);
int DrainDevice(const DaemonOptions& options, uint32_t device, bool undo);
int RetryDevice(const DaemonOptions& options, uint32_t device);
struct DrainRequest {
  std::string job;  // Empty: the whole daemon, which then takes no new job or process.
  uint32_t timeout_s = 60;
  bool wait = false;  // Until the last process has left.
};
int Drain(const DaemonOptions& options, const DrainRequest& asked);
int Undrain(const DaemonOptions& options);
int ShowVersion(const DaemonOptions& options);

// "64GiB", "1.5 TB", "4096": bytes, as in the configuration. Nothing if it is no size.
std::optional<uint64_t> ParseBytes(const std::string& text);

}  // namespace tier::tierctl
