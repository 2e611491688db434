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
//   what a dead session held is free when EndSession's turn ends, but for pieces in transfer, free when that ends, and
//   for what exceeds a turn's work (deferred_free.h, teardown.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/api/options.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/api/snapshot.h"

namespace tier::tiering {

class Engine {
 public:
  Engine(const EngineOptions& options, const EnginePorts& ports);
  ~Engine();

  // Jobs. The registry of names, uids and tokens is the session layer's; the engine knows shares and tensors.
  // NO_MEMORY when the guarantee cannot be given (figures); INVALID when the limit is below it; NOT_FOUND for a resume
  // without manifest.
  Status OpenJob(JobId job, const JobOptions& options);
  // Likewise; what is not given stays, and nothing changes on a refusal.
  Status SetJob(JobId job, std::optional<uint64_t> guarantee_bytes, std::optional<uint64_t> limit_bytes);
  // Ends its sessions (REVOKED) and frees everything. A named job's manifest stays unless `forget`.
  void CloseJob(JobId job, const std::string& reason, bool forget);

  // Sessions. EndSession is for death and goodbye: everything held is reclaimed, write leases revert or tear.
  Status OpenSession(SessionId session, JobId job);
  void EndSession(SessionId session, const std::string& reason);
  void WindowReturned(SessionId session, WindowIndex window);  // Unmapped and unregistered by the client.

  // One request; answered in this or a later turn, exactly once, unless the session ends first.
  void Submit(SessionId session, const Request& request);
  // The next turn has work left for one more. What is submitted beyond that makes the turn longer than promised.
  bool TakesRequests() const;
  uint32_t outstanding(SessionId session) const;  // Submitted and not yet answered.

  // Writes to SSD what the job's sessions have in common, shared and inherited: their own is for flushes of theirs. It
  // needs no session, and is answered to kInternalSession: OK also when the job is closed meanwhile. NOT_FOUND: no job.
  Status FlushJob(JobId job, uint64_t sequence, uint32_t timeout_ms);

  // One turn. Returns whether anything happened (else the loop may sleep until NextDeadline or an event).
  bool Turn(base::TimePoint now);
  std::optional<base::TimePoint> NextDeadline() const;

  // Orderly stop: refuses creates and acquires with DISCONNECTED from now on; idle() once nothing is in flight.
  void StartDrain(const std::string& reason);
  bool idle() const;
  // Leases are open, and nothing would happen if one of the read leases ended now. Not so while somebody waits.
  bool ReleasesCanWait() const;
  // Empties a device: no new extents there, live ones are rewritten elsewhere.
  Status StartDrainDevice(uint16_t device);

  EngineSnapshot Snapshot() const;
  JobCounters Counters(JobId job) const;  // As in Snapshot, without the work for all the others.
  std::vector<TensorView> Tensors(JobId job, size_t max) const;
  // Of the keys that begin so, in order.
  std::vector<StoredManifest> StoredManifests(const std::string& prefix, size_t max) const;
  // Begins to remove one of those, which is listed again if it fails. NOT_FOUND when there is none of this key, TIMEOUT
  // while its job is still being closed.
  Status DeleteStoredManifest(const std::string& key);
  void CheckInvariants() const;  // O(everything). For tests and simulations, as the next.
  std::vector<PiecePlace> NamedPlaces() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tier::tiering
