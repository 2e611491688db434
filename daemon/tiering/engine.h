// Engine: decides where every piece of every tensor lies, who may touch it, and what moves next.
//
// Deterministic: everything it knows of the world comes through the ports given at construction and the time passed to
// Turn, so the whole of it runs in a simulator from one seed. It blocks on nothing. One thread (the engine thread)
// calls it; the session layer wraps it in a loop (session/engine_loop.h).
//
// A turn: take finished windows and transfers; grant what can be granted; expire deadlines; decide on evictions,
// write-outs and reads; end the turn: extents that it freed become free, replies are published, transfers are
// submitted. Replies are buffered from Submit until the end of the turn.
//
// Invariants (CheckInvariants, run after each step in simulations):
//   every RAM run of every piece is taken exactly once in its owner's pool, every extent exactly once in its device;
//   a piece under a lease, or in a transfer, is never moved, evicted or freed;
//   a sealed piece has at least one copy, or its tensor answers TORN, CORRUPT or IO_ERROR;
//   what a dead session held is free when EndSession's turn ends, except pieces in transfer, which are free when that
//   ends, and the part that exceeds a turn's work, which later turns free (deferred_free.h, teardown.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/tiering/api/engine_port.h"

namespace tier::tiering {

class Engine final : public EnginePort {
 public:
  Engine(const EngineOptions& options, const EnginePorts& ports);
  ~Engine() override;

  Status OpenJob(JobId job, const JobOptions& options) override;
  Status SetJob(JobId job, const TermsChange& change) override;
  void SetQuota(uint32_t uid, const UserQuota& quota) override;
  uint64_t StorageOf(uint32_t uid) const override;
  void SetOptions(const EngineOptions& options) override;
  void CloseJob(JobId job, const std::string& reason, bool purge) override;
  Status OpenSession(SessionId session, JobId job) override;
  void SetNode(SessionId session, int node) override;
  void EndSession(SessionId session, Code code, const std::string& reason, std::optional<JobId> ends_job) override;
  void WindowReturned(SessionId session, WindowIndex window) override;
  void TakenWindowReturned(SessionId session, WindowIndex window) override;
  void Submit(SessionId session, const Request& request) override;
  bool TakesRequests() const override;
  bool HoldsBackNext(SessionId session) const override;
  void SetUnread(SessionId session, uint64_t bytes) override;
  Status FlushJob(JobId job, uint64_t sequence, uint32_t timeout_ms) override;
  bool Turn(base::TimePoint now) override;
  std::optional<base::TimePoint> NextDeadline() const override;
  void StartDrain(const std::string& reason) override;
  bool idle() const override;
  bool ReleasesCanWait() const override;
  Status SetDeviceDraining(uint16_t device, bool draining) override;
  Status RetryDevice(uint16_t device) override;
  Status PurgeDevice(const std::string& uuid, Purged done) override;
  EngineSnapshot Snapshot() const override;
  JobCounters Counters(JobId job) const override;
  StallList Stalls(JobId job, base::TimePoint now) const override;
  PoolView Pool() const override;
  TensorPage Tensors(JobId job, uint32_t from, size_t max) const override;
  std::vector<StoredManifest> StoredManifests(const std::string& prefix, size_t max) const override;
  Status DeleteStoredManifest(const std::string& key) override;
  Status CheckSettled(const std::string& prefix) const override;

  uint64_t HeldMetadata() const;                  // As in Snapshot; a look at each job.
  uint32_t outstanding(SessionId session) const;  // Requests that were submitted and not yet answered.
  void CheckInvariants() const;                   // O(everything), like NamedPlaces: for tests, simulations.
  std::vector<PiecePlace> NamedPlaces() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tier::tiering
