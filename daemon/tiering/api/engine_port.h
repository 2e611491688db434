// EnginePort: the engine as the layers above use it. tiering::Engine is the daemon's; tests of rings and sessions put a
// small scripted one in its place. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/api/options.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/api/stalls.h"

namespace tier::tiering {

class EnginePort {
 public:
  virtual ~EnginePort() = default;

  // Jobs. The registry of names, uids and tokens is the session layer's; the engine knows shares and tensors. NO_MEMORY
  // when the guarantee cannot be given, NO_SPACE when that of SSD cannot (figures); INVALID when a limit is below it;
  // NOT_FOUND for a resume without manifest. A job that is resumed is open when ReplySink::OnJobOpened reports success,
  // and is closed when it reports a failure; CloseJob may come before either.
  virtual Status OpenJob(JobId job, const JobOptions& options) = 0;
  virtual Status SetJob(JobId job, const TermsChange& change) = 0;  // Fails as OpenJob does, and then changes nothing.
  // What all jobs of the user may have together from now on. What they have already, and guarantees, stay; RAM beyond
  // the quota is evicted as far as no lease holds it. A user without jobs is not remembered: OpenJob says it again.
  virtual void SetQuota(uint32_t uid, const UserQuota& quota) = 0;
  // Bytes that a user's quota of SSD counts: what its jobs have or are guaranteed, and what manifests keep.
  virtual uint64_t StorageOf(uint32_t uid) const = 0;
  // Takes over those of them that may change at run time. What jobs and sessions have beyond a lowered limit stays;
  // another deadline_default is for sessions that are opened from then on.
  virtual void SetOptions(const EngineOptions& options) = 0;
  // Ends its sessions (REVOKED) and frees everything. A named job's manifest stays unless `purge`. A job ends by this
  // call and by EndSession alone.
  virtual void CloseJob(JobId job, const std::string& reason, bool purge) = 0;

  // Sessions. REQUIRES for OpenSession: the job is not being resumed. EndSession is for the death of a client, for its
  // orderly end, and for one that broke the protocol: everything that the session held is reclaimed, write leases
  // revert or tear. A session that has ended, or was never opened, holds nothing.
  virtual Status OpenSession(SessionId session, JobId job) = 0;
  // The NUMA node that memory for its client should come from, where that has any: from now on.
  virtual void SetNode(SessionId session, int node) = 0;
  // `code`: REVOKED where it is ended by force. Its process goes on, and what it maps is watched when it is taken.
  // `ends_job`: the session was the last one of this ephemeral job, which goes with it, also where the engine has ended
  // the session itself.
  virtual void EndSession(SessionId session, Code code, const std::string& reason, std::optional<JobId> ends_job) = 0;
  virtual void WindowReturned(SessionId session, WindowIndex window) = 0;  // Unmapped and unregistered by the client.
  // The same, of one that had been taken (OnWindowTaken): of several of that index the oldest.
  virtual void TakenWindowReturned(SessionId session, WindowIndex window) = 0;

  // One request; answered in this or a later turn, exactly once, unless the session ends first.
  virtual void Submit(SessionId session, const Request& request) = 0;
  // The next turn has work left for one more request. A request submitted beyond that makes the turn longer than
  // promised.
  virtual bool TakesRequests() const = 0;
  // The session's last request is a release or a create that goes on in the next turn. Later requests are to wait until
  // it is done: one submitted now would have a whole release done at once, and pass a create.
  virtual bool HoldsBackNext(SessionId session) const = 0;
  // Answers that its client has not read take so many bytes now. Where that exceeds its user's metadata, one session of
  // the user ends.
  virtual void SetUnread(SessionId session, uint64_t bytes) = 0;

  // Writes to SSD the tensors that the job's sessions have in common, shared and inherited; each session flushes its
  // own. It needs no session, and is answered to kInternalSession: OK also when the job is closed meanwhile. NOT_FOUND:
  // there is no such job.
  virtual Status FlushJob(JobId job, uint64_t sequence, uint32_t timeout_ms) = 0;

  // One turn. Returns whether anything happened (else the loop may sleep until NextDeadline or an event).
  virtual bool Turn(base::TimePoint now) = 0;
  virtual std::optional<base::TimePoint> NextDeadline() const = 0;

  // Orderly stop: refuses creates and acquires with DISCONNECTED from now on; idle() once nothing is in flight.
  virtual void StartDrain(const std::string& reason) = 0;
  virtual bool idle() const = 0;
  // Leases are open, no request waits, and the end of a read lease would change nothing for any session.
  virtual bool ReleasesCanWait() const = 0;
  // Empties a device: no new extents there, live ones are rewritten elsewhere. Or takes that back: what has moved stays
  // where it is.
  virtual Status SetDeviceDraining(uint16_t device, bool draining) = 0;
  // Its quarantined places are used again, when nothing else is left.
  virtual Status RetryDevice(uint16_t device) = 0;

  // Gives up a missing device with all that jobs have on it. `done` is called in a later turn, and must not call the
  // engine: with the keys of these jobs, or why nothing has changed. NOT_FOUND: it is not missing. TIMEOUT: it is being
  // purged.
  using Purged = std::function<void(const Result<std::vector<std::string>>& keys)>;
  virtual Status PurgeDevice(const std::string& uuid, Purged done) = 0;

  virtual EngineSnapshot Snapshot() const = 0;
  virtual JobCounters Counters(JobId job) const = 0;  // As in Snapshot, without the work for all other jobs.
  // Of its requests. `now`: not before the last turn.
  virtual StallList Stalls(JobId job, base::TimePoint now) const = 0;
  virtual PoolView Pool() const = 0;  // A look at each window and each job, as in Snapshot.
  // Some of the job's tensors, at most `max`, in no order. `from`: 0, or TensorPage::next of the page before.
  virtual TensorPage Tensors(JobId job, uint32_t from, size_t max) const = 0;
  // Manifests whose keys begin with `prefix`, in the order of the keys.
  virtual std::vector<StoredManifest> StoredManifests(const std::string& prefix, size_t max) const = 0;
  // Begins to remove a stored manifest, which is listed again if that fails. NOT_FOUND when there is none of this key,
  // TIMEOUT while its job is still being closed.
  virtual Status DeleteStoredManifest(const std::string& key) = 0;
  // StoredManifests tells of all that there will be of keys that begin with `prefix`, unless a job of such a key is
  // opened. TIMEOUT: not yet, as one is being closed, or its manifest written or removed. Else the error of the store,
  // which does not know what it has until a restart.
  virtual Status CheckSettled(const std::string& prefix) const = 0;
};

}  // namespace tier::tiering
