// JobRecord: what of a job is not rebuilt from other records: who it is, what it was promised, where its tensors begin.
// Engine thread only.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/memory/window_source.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/tensor.h"

namespace tier::tiering {

inline constexpr size_t kJobKeySize = 192;  // "uid/name" with the NUL.

struct JobRecord {
  JobId id{};
  memory::OwnerId owner{};
  uint32_t uid = 0;  // Whose job it is.
  std::array<char, kJobKeySize> key = {};
  uint64_t guarantee_bytes = 0;
  uint64_t limit_bytes = 0;
  uint64_t ssd_guarantee_bytes = 0;
  uint64_t ssd_limit_bytes = 0;
  bool named = false;
  bool replaces_existing = false;         // It may take the place of a manifest that an earlier run left.
  bool has_unclaimed_manifest = false;    // Such a manifest is there, and this job was not asked to take its place.
  bool includes_session_tensors = false;  // Its manifest has sessions' tensors: when the last session has gone, alone.
  bool closing = false;                   // Gone for everybody; waits for its last transfer.
  uint64_t steps = 0;
  TensorIndex shared_tensors = kNoTensor;  // Heads of their lists.
  TensorIndex inherited_tensors = kNoTensor;
  JobCounters counters;  // The counters, and the gauges kept as they change; the rest by Snapshot.
};

}  // namespace tier::tiering
