// Inspection: the engine's figures for operators, and the proof of its books for tests. Engine thread only.
#pragma once

#include "daemon/tiering/core.h"

namespace tier::tiering {

EngineSnapshot TakeSnapshot(const Core& core);
JobCounters CountersOf(const Core& core, JobId job);
std::vector<TensorView> ListTensors(const Core& core, JobId job, size_t max);
// Aborts with the figures if any of what engine.h promises does not hold. O(everything).
void CheckInvariants(const Core& core);
// Where every live piece lies, and every freed one that a transfer still uses. For tests that compare transfers with
// it. O(everything).
std::vector<PiecePlace> NamedPlaces(const Core& core);

}  // namespace tier::tiering
