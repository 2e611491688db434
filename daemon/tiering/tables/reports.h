// Reports: events that a lower unit finds and a higher unit has to act on. The lower unit does not call the higher one:
// it adds a report, which the higher one takes in the same turn. Engine thread only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/tiering/tables/job_state.h"
#include "daemon/tiering/tables/outcome.h"

namespace tier::tiering {

// A read ended without the piece's bytes.
struct FailedRead {
  std::vector<uint64_t> waiters;  // The waiters of that read.
  TensorRef tensor;
  uint32_t piece = 0;  // Of the tensor.
  Refusal refusal;     // The answer for these waiters.
};

// The memory of a window of this job could not be touched: its sessions are to end.
struct WindowFault {
  JobState* job = nullptr;
  std::string reason;
};

// The store has answered a commit: the outcome for the request that committed it.
struct CommittedManifest {
  uint64_t waiter = 0;
  Outcome outcome;
};

// A job is open now, or could not be resumed: then it is to be closed.
struct OpenedJob {
  JobId job{};
  Status status;
};

class Reports {
 public:
  bool empty() const {
    return failed_reads_.empty() && window_faults_.empty() && committed_.empty() && opened_.empty();
  }
  void Add(FailedRead report) { failed_reads_.push_back(std::move(report)); }
  void Add(WindowFault report) { window_faults_.push_back(std::move(report)); }
  void Add(CommittedManifest report) { committed_.push_back(std::move(report)); }
  void Add(OpenedJob report) { opened_.push_back(std::move(report)); }
  std::vector<FailedRead> TakeFailedReads() { return std::exchange(failed_reads_, {}); }
  std::vector<WindowFault> TakeWindowFaults() { return std::exchange(window_faults_, {}); }
  std::vector<CommittedManifest> TakeCommitted() { return std::exchange(committed_, {}); }
  std::vector<OpenedJob> TakeOpened() { return std::exchange(opened_, {}); }

 private:
  std::vector<FailedRead> failed_reads_;
  std::vector<WindowFault> window_faults_;
  std::vector<CommittedManifest> committed_;
  std::vector<OpenedJob> opened_;
};

}  // namespace tier::tiering
