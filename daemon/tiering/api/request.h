// What the engine is asked and what it answers: the decoded form of the messages on a session's rings.
//
// The session layer copies a message out of shared memory and checks its shape (entries, op, flags, counts, sequence);
// the engine decides whether the request makes sense. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "daemon/memory/window_source.h"
#include "proto/codes.h"
#include "proto/message.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::tiering {

enum class SessionId : uint64_t {};  // Unique within an epoch, never reused, never 0.
enum class JobId : uint64_t {};      // Unique within an epoch, never reused, never 0.
// The daemon itself, which sends requests for a job as a whole and receives their answers under this id.
inline constexpr SessionId kInternalSession{UINT64_MAX};

struct Request {
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;
  uint32_t flags = 0;
  uint32_t timeout_ms = 0;
  uint64_t argument = 0;
  std::span<const proto::RequestItem> items;  // Valid during Submit only.
  std::string_view text;                      // kIntern. Valid during Submit only.
};

struct Reply {
  uint64_t sequence = 0;
  Code code = Code::kOk;
  uint64_t value = 0;
  std::span<const proto::SpanRecord> spans;     // Create, acquire.
  const proto::ErrorRecord* error = nullptr;    // code != kOk.
  std::string_view detail;                      // code != kOk: one sentence.
  const proto::TensorRecord* tensor = nullptr;  // Stat.
};

// Receives answers and notices. The engine calls it at the end of a turn; no argument is valid after the call returns.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void OnReply(SessionId session, const Reply& reply) = 0;
  // This session may now see spans in this window: give it the descriptor (before the reply that needs it).
  virtual void OnWindow(SessionId session, const memory::WindowShape& window) = 0;
  // Ask for a window back; the session layer answers with Engine::WindowReturned.
  virtual void OnWindowReturn(SessionId session, WindowIndex window) = 0;
  // The window that this session was asked for is taken without its answer. Until that has come its client may still
  // map it, and would take another window of the same index for it: so it is to see no answer before.
  virtual void OnWindowTaken(SessionId, WindowIndex) {}
  // A job that is resumed is open now, and takes sessions; or it could not be resumed, and is closed. Called once for
  // each resumed job, and not for one that was closed meanwhile.
  virtual void OnJobOpened(JobId, const Status&) {}
  // The process of this session, which may have ended, keeps memory that was taken from it and is to be killed.
  virtual void OnProcessEnd(SessionId, const std::string& /*reason*/) {}
  // Memory was taken from clients that did not return it: a sentence for the log.
  virtual void OnForcedReturn(JobId, const std::string&) {}
  // The engine has ended this session (REVOKED, for example), and has reclaimed what it held.
  virtual void OnSessionEnded(SessionId session, Code code, const std::string& reason) = 0;
};

}  // namespace tier::tiering
