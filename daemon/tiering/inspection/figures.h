// The engine's figures for operators. Engine thread only.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

EngineSnapshot TakeSnapshot(const Core& core);
JobCounters CountersOf(const Core& core, JobId job);
std::vector<TensorView> ListTensors(const Core& core, JobId job, size_t max);

}  // namespace tier::tiering
