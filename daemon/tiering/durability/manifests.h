// Persist: manifests of named jobs. A persist request first has its tensors flushed, then captures where each piece
// lies as one manifest and hands it to the synced store; resuming a job replays its manifest. Engine thread only.
//
// Extents that the last synced manifest names (or one under way) are not freed before a later one drops them: see
// manifest_holds.h. One manifest of a job is under way at a time.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

// Counts what a persist has to write, as far as the turn's looks reach, and refuses what does not fit on SSD before
// anything of it is written.
Outcome CheckSpace(Core& core, Waiter& waiter);
// Everything the waiter asked for is on SSD: captures and hands over; it is committing then. kWaits otherwise: a
// manifest of the job is under way, or what stands at its cursor is being written again.
Outcome StartManifest(Core& core, Waiter& waiter);
// Takes what the store has answered; the Reports have the outcomes for the requests that wait for it.
bool TakeManifestResults(Core& core);
// The erasure of a manifest of that key is handed to the store, which has not answered.
bool ErasureUnderWay(const Core& core, const std::string& key);
// One of this job is handed to the store, which has not answered.
bool ManifestUnderWay(const Core& core, const JobState& job);
// The store has something of this job, or is about to.
bool HasCommitted(const Core& core, const JobState& job);
// What an earlier job of that key has left is still to be swept out.
bool AwaitsSweep(const Core& core, const JobState& job);
// … and the job is being closed: nobody else has that key meanwhile.
bool IsClosing(const Core& core, const std::string& key);

// At start: the extents that manifests name are taken out of the free space before anything else is.
void LoadManifests(Core& core);
// A job of this key opens. If it is named, what its manifest names is its own again, and with `resume` its tensors come
// back, on SSD. An ephemeral job leaves the manifest of an earlier run as it is, and can persist nothing in its place.
Status AdoptManifest(Core& core, JobState& job, bool resume);
void DeactivateManifest(Core& core, JobState& job);
// The last session of the job has ended. Where sessions' own tensors are in its manifest alone now, that is resumed
// before it is replaced.
void OnSessionsGone(Core& core, JobState& job);
std::vector<StoredManifest> ListStoredManifests(const Core& core, const std::string& prefix, size_t max);
Status DeleteStoredManifest(Core& core, const std::string& key);
void DeleteManifest(Core& core, JobState& job);

}  // namespace tier::tiering
