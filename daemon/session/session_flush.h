// SessionFlush: the daemon's own flush requests, submitted beside those of clients when a job is drained, and what
// became of them. A group is done when each of its requests was answered or its session ended. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "daemon/session/ring_port.h"
#include "daemon/tiering/api/request.h"

namespace tier::session {

class SessionFlush {
 public:
  using Done = std::function<void(const Status&)>;

  // A group of requests that share one answer. `done` is called when the last reference to it goes; the first error
  // wins.
  class Group {
   public:
    explicit Group(Done done) : done_(std::move(done)) {}
    ~Group() { done_(status_); }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    void Fail(Error error) {
      if (status_) status_ = std::unexpected(std::move(error));
    }

   private:
    Done done_;
    Status status_;
  };

  // Submits a flush of all that `port`'s session holds.
  void Submit(const std::shared_ptr<Group>& group, RingPort& port, tiering::EnginePort& engine, uint32_t timeout_ms);
  // … of what the job's sessions have in common, though it may have none now.
  void SubmitJob(const std::shared_ptr<Group>& group, tiering::JobId job, tiering::EnginePort& engine,
                 uint32_t timeout_ms);
  void OnReply(const tiering::Reply& reply);
  void OnSessionEnded(tiering::SessionId session);  // Its tensors went with it: nothing left to write.
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    tiering::SessionId session{};  // kInternalSession: a job's.
    std::shared_ptr<Group> group;
  };
  uint64_t Add(tiering::SessionId session, const std::shared_ptr<Group>& group);  // Returns its sequence.
  uint64_t next_sequence_ = kInternalSequenceFirst;
  std::map<uint64_t, Waiting> waiting_;
};

}  // namespace tier::session
