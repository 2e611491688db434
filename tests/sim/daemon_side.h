// DaemonSide: what stands between the engine and its clients in the daemon, run by hand in one thread: the sessions'
// rings and their decoder, the session table, the registry of jobs, and the engine's loop with its sleeps. Nothing here
// is a fake but the way of packets: what the daemon writes to a client's socket is told to the simulation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "daemon/session/engine_loop.h"
#include "daemon/session/token_source.h"
#include "daemon/tiering/engine.h"

namespace tier::tiering::sim {

// What the simulation hears of the daemon, in the order in which it happens.
class DaemonEvents {
 public:
  virtual ~DaemonEvents() = default;
  virtual void OnSubmit(SessionId session, uint64_t sequence) = 0;   // The engine is given this request.
  virtual void OnTurnEnd() = 0;                                      // The engine's turn is over.
  virtual void OnAnswer(SessionId session, const Reply& reply) = 0;  // On its way to the ring.
  virtual void OnWindowSent(SessionId session, const memory::WindowShape& window,
                            std::shared_ptr<const proto::FileDescriptor> file) = 0;
  virtual void OnWindowAskedBack(SessionId session, WindowIndex window) = 0;
  virtual void OnEnd(SessionId session, Code code, const std::string& reason) = 0;  // The last packet of a session.
};

// What a client is given when it attaches.
struct AttachedSession {
  uint64_t job = 0;
  std::string token;
  proto::FileDescriptor region;
  proto::FileDescriptor doorbell;
};

class DaemonSide final : public EnginePort, public ReplySink, private session::SessionNotices {
 public:
  DaemonSide(const memory::WindowSource& windows, const base::TimePoint& now, DaemonEvents& events);
  ~DaemonSide() override;
  void Connect(Engine& engine);  // Once, before anything else: the engine is made after the sink that it answers to.

  // `done` is called once: before it returns, or when the session's job has been resumed.
  using AttachDone = std::function<void(Result<AttachedSession>)>;
  void Attach(SessionId session, uint32_t uid, const session::OpenJobRequest& open, AttachDone done);
  void Detach(SessionId session, const std::string& reason);   // The client's process has ended.
  void GiveWindowBack(SessionId session, WindowIndex window);  // The client has unmapped it.
  void CloseJob(uint64_t job, const std::string& reason, bool purge);
  // Holds at once, and for jobs that the user opens from now on, as by the daemon's book of quotas.
  void ChangeQuota(uint32_t uid, const UserQuota& quota);
  // One pass of the engine's loop, unless it sleeps and nothing wakes it. `interrupted`: something that the engine
  // waits for has moved. `may_sleep`: it goes to sleep if there is nothing to do.
  void Pass(bool interrupted, bool may_sleep);

  int page() const { return page_.descriptor(); }  // The engine page, for clients to map.
  bool asleep() const { return asleep_; }
  uint64_t sleeps() const { return loop_.sleeps(); }
  uint64_t violations() const { return table_.violations(); }
  size_t sessions() const { return table_.size(); }
  void CheckInvariants() { table_.watch().CheckInvariants(); }

  // EnginePort, as the session layer calls it: the engine's own, and the simulation is told.
  Status OpenJob(JobId job, const JobOptions& options) override;
  Status SetJob(JobId job, const TermsChange& change) override { return engine_->SetJob(job, change); }
  void SetQuota(uint32_t uid, const UserQuota& quota) override { engine_->SetQuota(uid, quota); }
  uint64_t StorageOf(uint32_t uid) const override { return engine_->StorageOf(uid); }
  void SetOptions(const EngineOptions& options) override { engine_->SetOptions(options); }
  StallList Stalls(JobId job, base::TimePoint now) const override { return engine_->Stalls(job, now); }
  void CloseJob(JobId job, const std::string& reason, bool purge) override { engine_->CloseJob(job, reason, purge); }
  Status OpenSession(SessionId session, JobId job) override { return engine_->OpenSession(session, job); }
  void SetNode(SessionId session, int node) override { engine_->SetNode(session, node); }
  void EndSession(SessionId session, Code code, const std::string& reason, std::optional<JobId> ends_job) override {
    engine_->EndSession(session, code, reason, ends_job);
  }
  void WindowReturned(SessionId session, WindowIndex window) override { engine_->WindowReturned(session, window); }
  void TakenWindowReturned(SessionId session, WindowIndex window) override {
    engine_->TakenWindowReturned(session, window);
  }
  void Submit(SessionId session, const Request& request) override;
  bool TakesRequests() const override { return engine_->TakesRequests(); }
  bool HoldsBackNext(tiering::SessionId session) const override { return engine_->HoldsBackNext(session); }
  void SetUnread(SessionId session, uint64_t bytes) override { engine_->SetUnread(session, bytes); }
  Status FlushJob(JobId job, uint64_t sequence, uint32_t timeout_ms) override {
    return engine_->FlushJob(job, sequence, timeout_ms);
  }
  bool Turn(base::TimePoint now) override;
  std::optional<base::TimePoint> NextDeadline() const override { return engine_->NextDeadline(); }
  void StartDrain(const std::string& reason) override { engine_->StartDrain(reason); }
  bool idle() const override { return engine_->idle(); }
  bool ReleasesCanWait() const override { return engine_->ReleasesCanWait(); }
  Status SetDeviceDraining(uint16_t device, bool draining) override {
    return engine_->SetDeviceDraining(device, draining);
  }
  Status RetryDevice(uint16_t device) override { return engine_->RetryDevice(device); }
  Status PurgeDevice(const std::string& uuid, Purged done) override {
    return engine_->PurgeDevice(uuid, std::move(done));
  }
  EngineSnapshot Snapshot() const override { return engine_->Snapshot(); }
  JobCounters Counters(JobId job) const override { return engine_->Counters(job); }
  PoolView Pool() const override { return engine_->Pool(); }
  TensorPage Tensors(JobId job, uint32_t from, size_t max) const override { return engine_->Tensors(job, from, max); }
  std::vector<StoredManifest> StoredManifests(const std::string& prefix, size_t max) const override {
    return engine_->StoredManifests(prefix, max);
  }
  Status DeleteStoredManifest(const std::string& key) override { return engine_->DeleteStoredManifest(key); }
  Status CheckSettled(const std::string& prefix) const override { return engine_->CheckSettled(prefix); }

  // ReplySink, as the engine calls it: the session table's, and the simulation is told.
  void OnReply(SessionId session, const Reply& reply) override;
  void OnWindow(SessionId session, const memory::WindowShape& window) override { table_.OnWindow(session, window); }
  void OnWindowReturn(SessionId session, WindowIndex window) override { table_.OnWindowReturn(session, window); }
  void OnWindowTaken(SessionId session, WindowIndex window) override { table_.OnWindowTaken(session, window); }
  void OnForcedReturn(JobId job, const std::string& what) override { table_.OnForcedReturn(job, what); }
  void OnSessionEnded(SessionId session, Code code, const std::string& reason) override {
    table_.OnSessionEnded(session, code, reason);
  }
  void OnJobOpened(JobId job, const Status& status) override { table_.OnJobOpened(job, status); }

 private:
  class SimClock final : public base::Clock {
   public:
    explicit SimClock(const base::TimePoint& now) : now_(now) {}
    base::TimePoint Now() const override { return now_; }

   private:
    const base::TimePoint& now_;
  };
  class CountingTokens final : public session::TokenSource {
   public:
    uint64_t Random() override { return ++last_; }

   private:
    uint64_t last_ = 0;
  };

  // SessionNotices.
  void SendWindow(SessionId session, const memory::WindowShape& window,
                  std::shared_ptr<const proto::FileDescriptor> file) override {
    events_.OnWindowSent(session, window, std::move(file));
  }
  void EndProcess(SessionId, const std::string&) override {}
  void SendWindowReturn(SessionId session, WindowIndex window) override { events_.OnWindowAskedBack(session, window); }
  void SendEnd(SessionId session, Code code, const std::string& reason) override {
    events_.OnEnd(session, code, reason);
  }
  void WakeUp();

  DaemonEvents& events_;
  Engine* engine_ = nullptr;
  SimClock clock_;
  CountingTokens tokens_;
  base::Mailbox mailbox_;
  session::Poller poller_;
  session::EventLog log_;
  session::EnginePageOwner page_;
  session::JobRegistry registry_;
  session::JobService jobs_;
  session::SessionTable table_;
  session::EngineLoop loop_;
  std::map<uint32_t, UserQuota> quotas_;  // By uid.
  bool asleep_ = false;
  std::optional<base::TimePoint> wake_at_;
};

}  // namespace tier::tiering::sim
