// The engine's figures for operators. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

EngineSnapshot TakeSnapshot(const Tables& tables);
// What the records of all users take of the daemon's own memory: tables with their room, and what users are charged for
// records outside of these. A look at each job.
uint64_t HeldMetadata(const Tables& tables);
JobCounters CountersOf(const Tables& tables, JobId job);
// At most kTensorsPerPage tensors, from at most kRecordsPerPage records: what a turn can spare for a list.
inline constexpr size_t kTensorsPerPage = 1024;
inline constexpr uint32_t kRecordsPerPage = 16384;
TensorPage ListTensors(const Tables& tables, JobId job, uint32_t from, size_t max);

}  // namespace tier::tiering
