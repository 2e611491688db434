// JobRows: which jobs have series of their own, and what these count, so that labels stay bounded and no counter ever
// falls. The largest kJobRowsMax jobs have a row; one more row stands for all others, and for what jobs counted that
// have ended or lost their row.
//
// A job that gets a row later than it was first seen counts from there: what it counted before stays with the others.
// One that loses its row leaves what the row counted behind. So the rows of all times together are the totals.
//
// Any thread, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/session/control_api.h"

namespace tier::metrics {

inline constexpr size_t kJobRowsMax = 200;
inline constexpr const char* kOtherJobs = "(other)";  // No legal name of a job.

struct JobRow {
  std::string name;  // kOtherJobs: of the others; the last row.
  std::string uid;   // Of the others: empty.
  tiering::JobCounters counters;
  std::map<int, uint64_t> node_bytes{};  // Of its windows, by NUMA node.
};

class JobRows {
 public:
  // One row for each of the largest `jobs`, by name and uid, then that of the others. `totals` counts all jobs there
  // ever were. It may be a little older than `jobs`.
  std::vector<JobRow> Of(std::vector<session::JobDescription> jobs, const tiering::JobCounters& totals);

 private:
  struct Known {
    bool has_row = false;
    tiering::JobCounters base;     // What it had counted when it got its row.
    tiering::JobCounters counted;  // By its row, when it was last shown.
  };
  void ChooseRows(std::vector<session::JobDescription>* jobs);
  void EndRow(const Known& known);
  void DropThoseThatEnded(const std::vector<session::JobDescription>& jobs);

  std::map<uint64_t, Known> known_;    // By JobDescription::id: those of the last call.
  tiering::JobCounters ended_rows_;    // What rows that are no more had counted.
  tiering::JobCounters others_shown_;  // What the others' row showed last.
};

}  // namespace tier::metrics
