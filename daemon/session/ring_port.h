// RingPort: the daemon's end of one session's two rings. Requests are copied out of shared memory, checked and given to
// the engine; answers become completion entries.
//
// The idea: the client can write every byte of the region at any moment, so nothing in it is looked at twice, and the
// daemon's own cursors live here. A client that breaks the protocol ends its session with a sentence; one that does not
// read its completions is not read from either.
//
// Invariants: outstanding() <= kRequestsOutstandingMax; backlog bytes <= kBacklogBytesMax or broken().
// Engine thread only. No allocation while the client keeps up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/tiering/api/engine_port.h"
#include "daemon/tiering/api/request.h"
#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::session {

// Answers that a client has not made room for, at most; beyond it the session ends.
inline constexpr size_t kBacklogBytesMax = 64 * kMiB;
// Sequences from here on are the daemon's own requests (a drain's flush); a client could never count so far.
inline constexpr uint64_t kInternalSequenceFirst = uint64_t{1} << 63;

// Private memory that all ports of an engine thread share for copying messages.
struct RingScratch {
  RingScratch();
  std::vector<proto::RequestEntry> requests;       // One ring's worth.
  std::vector<proto::CompletionEntry> completion;  // One message's worth.
};

class RingPort {
 public:
  // REQUIRES: `region` is a mapped session region (FormatSessionRegion).
  RingPort(tiering::SessionId session, proto::Mapping region);

  // True if Receive would find a message now: something is published and the client reads its answers.
  bool HasRequests() const;
  // Whether the client has to ring after publishing, whatever the engine page says. What HasRequests does not see
  // behind SetRingNeeded(true), its client rings for.
  void SetRingNeeded(bool needed) { requests_.SetWaiting(needed); }
  // Gives up to `messages_max` requests to the engine; returns how many. A violation is an error: end the session.
  Result<uint32_t> Receive(tiering::EnginePort& engine, RingScratch& scratch, uint32_t messages_max);
  // Of a session that ends, whatever work the engine has left: what it released before its end is released. At most
  // kLastMessagesMax.
  Status ReceiveLast(tiering::EnginePort& engine, RingScratch& scratch);
  // A request of the daemon's own; its answer is not the client's.
  void SubmitInternal(tiering::EnginePort& engine, const tiering::Request& request);

  // Stages an answer (or puts it into the backlog). The client sees it at Flush.
  void Send(const tiering::Reply& reply, RingScratch& scratch);
  // Moves the backlog into the ring as far as there is room, publishes, and wakes the client if it sleeps.
  // An impossible cursor or a backlog beyond its limit is an error: end the session.
  Status Flush();

  tiering::SessionId session() const { return session_; }
  uint32_t outstanding() const { return outstanding_; }
  bool backlogged() const { return !backlog_.empty(); }
  // Memory that answers take for which the client has not made room.
  size_t backlog_bytes() const { return backlog_.capacity() * proto::kEntrySize; }
  uint64_t wakes() const { return wakes_; }

 private:
  static constexpr uint32_t kLastMessagesMax = 127;
  // `take_next`: whether one more request is taken.
  template <typename TakeNext>
  Result<uint32_t> Take(tiering::EnginePort& engine, RingScratch& scratch, uint32_t messages_max, TakeNext take_next);
  void Stage(const proto::CompletionEntry* entries, uint32_t count);
  bool MoveBacklog();  // False: impossible cursor.
  void WakeClient();

  const tiering::SessionId session_;
  proto::Mapping region_;
  proto::RingConsumer requests_;
  proto::RingProducer completions_;
  proto::RingControl* completion_control_;
  uint64_t sequence_ = 0;     // Of the last request taken.
  uint32_t outstanding_ = 0;  // Requests of the client submitted and not yet answered.
  uint64_t published_ = 0;    // Completion tail that the client has been shown.
  uint64_t wakes_ = 0;
  std::vector<proto::CompletionEntry> backlog_;  // Whole messages, oldest first.
  size_t backlog_taken_ = 0;                     // Entries of backlog_ already in the ring.
  bool impossible_head_ = false;
};

// Creates and fills in a session region (daemon side): the descriptor to hand out and the daemon's own mapping.
struct SessionRegion {
  proto::FileDescriptor descriptor;
  proto::Mapping mapping;
};
Result<SessionRegion> MakeSessionRegion(uint64_t epoch, tiering::SessionId session);

}  // namespace tier::session
