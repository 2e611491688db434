// ManifestReplay: a job comes back from its manifest. The store loads it on a thread of its own; then it is checked,
// and its tensors and keys are put back, some in each turn. Engine thread only.
//
// Until the replay has ended the job takes no sessions. The metadata that the job will need is charged to its user
// before the first tensor is put back. The result is reported (OpenedJob); after a failure the job is to be closed, and
// its tensors are freed like those of any closed job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

struct ManifestReplay {
  // kCounting adds up what all records cost. Then they are read again.
  enum class Stage : uint8_t { kLoading, kSumming, kCounting, kTensors, kKeys };
  Stage stage = Stage::kLoading;
  std::vector<std::byte> bytes;
  std::optional<ManifestReader> reader;  // Of `bytes`.
  uint64_t metadata_bytes = 0;           // Cost of the records counted so far.
  TensorIndex tensor = kNoTensor;        // The tensor that is being put back.
  bool torn = false;
};

// REQUIRES: the job has just been opened, and the store has its manifest.
void StartReplay(Tables& tables, JobState& job);
// Whether the result answers a load of StartReplay. If so, the manifest is moved out of it.
bool TakeLoaded(Tables& tables, storage::ManifestResult* result);
// Continues all replays whose manifests are loaded, as far as the turn's work reaches. True: there were some.
bool ContinueReplays(Tables& tables);
// The job closes during its replay: the tensors that were put back are freed with it.
void DropReplay(Tables& tables, JobState& job);

}  // namespace tier::tiering
