// SessionTable: the live sessions as the engine thread sees them. Takes requests off their rings in turn, hands the
// engine's answers back, and ends a session from whichever side its end comes: the client died or said goodbye
// (Detach), it broke the protocol, or the engine ended it.
//
// A pass looks at the rings of sessions that were heard a moment ago or have rung, not at all rings (ring_watch.h).
//
// A session whose job is being resumed waits for that: its client hears nothing, and can ask nothing, until then.
//
// Invariant: a session is here exactly while the engine knows it, except while its job is being resumed and for the
// moment between the engine's OnSessionEnded and the end of that turn; one user has at most seven eighths of them.
// Engine thread only. No allocation in steady state.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/memory/window_source.h"
#include "daemon/session/job_service.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/poller.h"
#include "daemon/session/ring_port.h"
#include "daemon/session/ring_watch.h"
#include "daemon/session/session_flush.h"
#include "daemon/session/uid_quota.h"
#include "daemon/tiering/api/request.h"

namespace tier::session {

// A session's messages taken in one turn; then the next session has its turn.
inline constexpr uint32_t kMessagesPerTurnMax = 128;
inline constexpr size_t kBacklogsTriedPerPass = 32;

// What clients are told by their sockets. Called on the engine thread; must not block.
class SessionNotices {
 public:
  virtual ~SessionNotices() = default;
  virtual void SendWindow(tiering::SessionId session, const memory::WindowShape& window,
                          std::shared_ptr<const proto::FileDescriptor> descriptor) = 0;
  virtual void SendWindowReturn(tiering::SessionId session, WindowIndex window) = 0;
  // Its process is to be ended, whether the session is over or not.
  virtual void EndProcess(tiering::SessionId session, const std::string& reason) = 0;
  // The session is over; the connection closes behind this message.
  virtual void SendEnd(tiering::SessionId session, Code code, const std::string& reason) = 0;
};

struct AttachRequest {
  tiering::SessionId session{};
  uint32_t uid = kUnknownUid;
  OpenJobRequest open;
  int numa_node = memory::kAnyNode;
  proto::Mapping region;
  proto::FileDescriptor doorbell;  // eventfd; the client holds the other reference.
};

struct Attached {
  uint64_t job = 0;
  std::string job_name;
  std::string token;
  bool resumed = false;             // The job has what it had persisted.
  uint32_t request_timeout_ms = 0;  // Of its requests that name none, as the engine has it for this session.
};

struct SessionTableOptions {
  uint32_t sessions_max = 1024;
  bool one_user = false;               // No other user may attach: no part of the limits is kept for others.
  uint32_t request_timeout_ms = 0;     // EngineOptions::deadline_default. 0: clients are not told.
  const OwnerTable* owners = nullptr;  // Null: there are none.
};

class SessionTable final : public tiering::ReplySink {
 public:
  SessionTable(const SessionTableOptions& options, Poller& poller, const memory::WindowSource& windows);
  ~SessionTable() override;
  // Before the first call of anything else: the engine is made after the sink that it answers to.
  void Connect(JobService& job_service, SessionNotices& notices);
  // For processes that attach from now on; those that are attached stay. REQUIRES: the engine has this deadline.
  void SetTerms(uint32_t sessions_max, uint32_t request_timeout_ms) {
    quota_.SetMax(sessions_max, OfOneUser(sessions_max));
    request_timeout_ms_ = request_timeout_ms;
  }

  // `done` is called once: before it returns, or when the session's job has been resumed.
  using AttachDone = std::function<void(Result<Attached>)>;
  void Attach(AttachRequest request, base::TimePoint now, AttachDone done);
  // The client is gone (or says so): everything it held is reclaimed now.
  void Detach(tiering::SessionId session, const std::string& reason);
  // The client is at fault, or the daemon stops: the same, and it is told why.
  void End(tiering::SessionId session, Code code, const std::string& reason);
  void EndAll(Code code, const std::string& reason);
  void WindowReturned(tiering::SessionId session, WindowIndex window);

  // The last look before the engine sleeps.
  bool HasRequests() { return watch_.HasRequests(); }
  // Gives the engine what clients have asked; returns how many requests.
  uint32_t Receive(base::TimePoint now);
  // After the engine's turn: shows clients their answers, ends the sessions whose end that turn brought.
  // Returns whether anything was shown or ended.
  bool Publish();
  // True while a client leaves answers unread: the daemon gets no event when it reads them, so look again soon.
  bool backlogged() const { return !backlogged_.empty(); }
  RingWatch& watch() { return watch_; }

  // Writes every dirty piece of the job to SSD, whether it has sessions or not; the group ends when that is done.
  void Flush(tiering::JobId job, uint32_t timeout_ms, const std::shared_ptr<SessionFlush::Group>& group);
  std::vector<tiering::SessionId> Sessions() const;
  size_t size() const { return sessions_.size(); }  // Attached.
  uint64_t violations() const { return violations_; }

  // tiering::ReplySink.
  void OnReply(tiering::SessionId session, const tiering::Reply& reply) override;
  void OnWindow(tiering::SessionId session, const memory::WindowShape& window) override;
  void OnWindowReturn(tiering::SessionId session, WindowIndex window) override;
  void OnWindowTaken(tiering::SessionId session, WindowIndex window) override;
  void OnJobOpened(tiering::JobId job, const Status& status) override { opened_.emplace_back(job, status); }
  void OnForcedReturn(tiering::JobId job, const std::string& what) override;
  void OnProcessEnd(tiering::SessionId session, const std::string& reason) override;
  void OnSessionEnded(tiering::SessionId session, Code code, const std::string& reason) override;

 private:
  struct Entry : WatchedRing {
    tiering::JobId job{};
    int numa_node = memory::kAnyNode;
    uint64_t unread_told = 0;  // What the engine was told of unread answers.
    bool answered = false;     // Something to publish.
    // Taken without its client's answer. Until that comes the client is shown nothing.
    std::multiset<WindowIndex> taken;
    bool backlogged = false;         // In backlogged_.
    bool engine_knows = true;        // Until the engine says that it ended this session.
    using WatchedRing::WatchedRing;  // Its uid holds one of the places.
  };
  // A session whose job is being resumed. The engine does not know it, and nothing is taken off its ring.
  struct Attaching {
    std::unique_ptr<Entry> entry;
    int32_t rank = -1;
    AttachDone done;
  };
  struct Ending {
    tiering::SessionId session{};
    Code code = Code::kOk;
    std::string reason;
  };
  size_t OfOneUser(uint32_t sessions_max) const { return one_user_ ? sessions_max : PerUidLimit(sessions_max); }
  Entry* Find(tiering::SessionId session);
  Status CheckRoomFor(uint32_t uid) const;
  Attached Add(std::unique_ptr<Entry> entry, int32_t rank);
  void FinishAttach(tiering::SessionId session, const Status& opened);
  // True: the session was still attaching, and does so no more.
  bool RefuseAttach(tiering::SessionId session, Error error);
  void EndLater(tiering::SessionId session, Code code, std::string reason);
  void Reclaim(Entry* entry, Code code, const std::string& reason);
  bool ApplyEndings();

  const bool one_user_;
  const OwnerTable* const owners_;
  uint32_t request_timeout_ms_;
  UidQuota quota_;  // Of sessions_ and attaching_.
  Poller& poller_;
  const memory::WindowSource& windows_;
  JobService* job_service_ = nullptr;
  SessionNotices* notices_ = nullptr;
  SessionFlush flush_;
  RingScratch scratch_;
  RingWatch watch_;
  base::TimePoint now_;                                            // Of the last Receive.
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> sessions_;  // By id.
  std::unordered_map<uint64_t, Attaching> attaching_;              // By id.
  std::vector<std::pair<tiering::JobId, Status>> opened_;          // In this turn.
  std::vector<Entry*> answered_;
  std::deque<Entry*> backlogged_;  // Leave answers unread; the one that was tried last comes last.
  std::vector<Ending> endings_;
  uint64_t violations_ = 0;
};

}  // namespace tier::session
