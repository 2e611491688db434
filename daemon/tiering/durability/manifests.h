// Persist: manifests of named jobs. A persist request first has its tensors flushed, then captures where each piece
// lies as one manifest and hands it to the synced store. Engine thread only.
//
// Extents that the last synced manifest names (or one under way) are not freed before a later one drops them: see
// manifest_holds.h. One manifest of a job is under way at a time.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Counts what a persist has to write, as far as the turn's work reaches, and refuses the persist if that does not fit
// on SSD, before any of it is written.
Outcome CheckSpace(Tables& tables, Waiter& waiter);
// Every piece that the waiter asked for is on SSD: captures the manifest and hands it to the store; the waiter is
// committing from then on. Before that it waits while another manifest of the job is under way, or the piece at the
// cursor is being written again.
Outcome StartManifest(Tables& tables, Waiter& waiter);
// Takes the store's answers; the outcomes for the requests that wait for them go to the Reports.
bool TakeManifestResults(Tables& tables);
// The erasure of a manifest of that key is handed to the store, which has not answered.
bool ErasureUnderWay(const Tables& tables, const std::string& key);
// A manifest of this job is handed to the store, which has not answered.
bool ManifestUnderWay(const Tables& tables, const JobState& job);
// The store has something of this job, or is about to.
bool HasCommitted(const Tables& tables, const JobState& job);
// Extents that an earlier job of the same key has left are still to be swept out.
bool AwaitsSweep(const Tables& tables, const JobState& job);
// A job of this key that HasCommitted is being closed: no other job can have the key until that is done.
bool IsClosing(const Tables& tables, const std::string& key);

// Why no job can persist or resume in this daemon: a sentence that says what it lacks, and how to give it that. Empty:
// jobs can.
std::string WhyNothingPersists(const Tables& tables);

// At start, before any other extent is taken: takes the extents that manifests name out of the free space.
void LoadManifests(Tables& tables);
// A job of this key opens. If it is named, the extents that its manifest names belong to it again, and with `resume`
// its tensors come back, on SSD, turn by turn (manifest_replay.h). An ephemeral job leaves the manifest of an earlier
// run as it is, and cannot replace it.
Status AdoptManifest(Tables& tables, JobState& job, bool resume);
void DeactivateManifest(Tables& tables, JobState& job);
// The last session of the job has ended. If the manifest has sessions' own tensors, which now exist only there, the
// manifest must be resumed before it is replaced.
void OnSessionsGone(Tables& tables, JobState& job);
std::vector<StoredManifest> ListStoredManifests(const Tables& tables, const std::string& prefix, size_t max);
// As EnginePort::CheckSettled.
Status CheckManifestsSettled(const Tables& tables, const std::string& prefix);
Status DeleteStoredManifest(Tables& tables, const std::string& key);
void DeleteManifest(Tables& tables, JobState& job);

}  // namespace tier::tiering
