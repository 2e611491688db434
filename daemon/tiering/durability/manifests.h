// Persist: manifests of named jobs. A persist request first has its tensors flushed, then captures where each piece
// lies as one manifest and hands it to the synced store. Engine thread only.
//
// Extents that the last synced manifest names (or one under way) are not freed before a later one drops them: see
// manifest_holds.h. One manifest of a job is under way at a time.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Counts what a persist has to write, as far as the turn's looks reach, and refuses what does not fit on SSD before
// anything of it is written.
Outcome CheckSpace(Tables& tables, Waiter& waiter);
// Everything the waiter asked for is on SSD: captures and hands over; it is committing then. kWaits otherwise: a
// manifest of the job is under way, or what stands at its cursor is being written again.
Outcome StartManifest(Tables& tables, Waiter& waiter);
// Takes what the store has answered; the Reports have the outcomes for the requests that wait for it.
bool TakeManifestResults(Tables& tables);
// The erasure of a manifest of that key is handed to the store, which has not answered.
bool ErasureUnderWay(const Tables& tables, const std::string& key);
// One of this job is handed to the store, which has not answered.
bool ManifestUnderWay(const Tables& tables, const JobState& job);
// The store has something of this job, or is about to.
bool HasCommitted(const Tables& tables, const JobState& job);
// What an earlier job of that key has left is still to be swept out.
bool AwaitsSweep(const Tables& tables, const JobState& job);
// A job of this key that HasCommitted is being closed: nobody else has the key until that is done.
bool IsClosing(const Tables& tables, const std::string& key);

// At start: the extents that manifests name are taken out of the free space before anything else is.
void LoadManifests(Tables& tables);
// A job of this key opens. If it is named, what its manifest names is its own again, and with `resume` its tensors come
// back, on SSD, turn by turn (manifest_replay.h). An ephemeral job leaves the manifest of an earlier run as it is, and
// can persist nothing in its place.
Status AdoptManifest(Tables& tables, JobState& job, bool resume);
void DeactivateManifest(Tables& tables, JobState& job);
// The last session of the job has ended. Where sessions' own tensors are in its manifest alone now, that is resumed
// before it is replaced.
void OnSessionsGone(Tables& tables, JobState& job);
std::vector<StoredManifest> ListStoredManifests(const Tables& tables, const std::string& prefix, size_t max);
Status DeleteStoredManifest(Tables& tables, const std::string& key);
void DeleteManifest(Tables& tables, JobState& job);

}  // namespace tier::tiering
