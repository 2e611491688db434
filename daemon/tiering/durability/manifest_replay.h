// ManifestReplay: a job comes back from its manifest. The store loads it on a thread of its own; then it is checked,
// and its tensors and keys are put back, some in each turn. Engine thread only.
//
// Until that has ended the job takes no sessions. What it will need of its user's metadata is charged before the first
// tensor is put back. How it ended is reported (OpenedJob); where it failed, the job is to be closed, and its tensors
// are freed as those of any closed job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

struct ManifestReplay {
  // kCounting: what all of it costs. Then the records are read again.
  enum class Stage : uint8_t { kLoading, kSumming, kCounting, kTensors, kKeys };
  Stage stage = Stage::kLoading;
  std::vector<std::byte> bytes;
  std::optional<ManifestReader> reader;  // Of these.
  uint64_t metadata_bytes = 0;           // As far as they were counted.
  TensorIndex tensor = kNoTensor;        // That is being put back.
  bool torn = false;
};

// REQUIRES: the job has just been opened, and the store has its manifest.
void StartReplay(Tables& tables, JobState& job);
// Whether the store has answered that. The manifest is taken out of the result.
bool TakeLoaded(Tables& tables, storage::ManifestResult* result);
// Goes on with all that were loaded, as far as the turn's work reaches. True: there were some.
bool ContinueReplays(Tables& tables);
// The job closes: what was put back is freed with it.
void DropReplay(Tables& tables, JobState& job);

}  // namespace tier::tiering
