// ReplyBuffer: the replies and notices of a turn, held until the end of the turn (EndTurn in engine.cc), then published
// in order: windows first (a reply may name them), then replies, then windows asked back, jobs opened and sessions
// ended.
//
// Engine thread only. Replies with spans allocate nothing in steady state. The sink may submit requests from its
// callbacks: their replies belong to the next turn. Bounded by the outstanding requests: one reply for each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/tiering/api/refusal_reason.h"
#include "daemon/tiering/api/request.h"
#include "proto/result.h"

namespace tier::tiering {

struct Refusal {
  Code code = Code::kInvalid;
  std::string detail;
  proto::ErrorRecord record{};
  std::optional<RefusalReason> reason{};  // None: that of the code.
};

class ReplyBuffer {
 public:
  struct To {
    SessionId session{};
    uint64_t sequence = 0;
  };

  // A reply with spans: Begin, AddSpan …, End.
  void Begin(To to);
  void AddSpan(const proto::SpanRecord& span) { current().spans.push_back(span); }
  // The last span since Begin, which the next one may extend; null: none.
  proto::SpanRecord* LastSpan();
  void End(uint64_t value);
  // In the place of End: nothing is answered, and the spans are added to these.
  void Withdraw(std::vector<proto::SpanRecord>* spans);

  void Value(To to, uint64_t value);
  void Stat(To to, const proto::TensorRecord& record, uint64_t flags);
  void Refuse(To to, uint64_t value, Refusal refusal);
  void Window(SessionId session, const memory::WindowShape& window);
  void WindowReturn(SessionId session, WindowIndex window);
  void WindowTaken(SessionId session, WindowIndex window) { current().taken.push_back({session, {.index = window}}); }
  void JobOpened(JobId job, Status status) { current().openings.push_back({job, std::move(status)}); }
  void EndProcess(SessionId session, std::string reason) {
    current().kills.push_back({session, Code::kRevoked, std::move(reason)});
  }
  void ForcedReturn(JobId job, std::string what) { current().forced.push_back({job, std::move(what)}); }
  void SessionEnded(SessionId session, Code code, const std::string& reason);
  // Drops all replies and notices to the session, except that it ended.
  void Drop(SessionId session);

  bool empty() const;
  void CheckInvariants() const;  // Each answer's spans, refusal and record exist.
  void Publish(ReplySink& sink);

 private:
  struct Entry {
    SessionId session{};  // 0: dropped.
    uint64_t sequence = 0;
    uint64_t value = 0;
    uint32_t first = 0;  // Index of its first span, its refusal, or its tensor record.
    uint32_t count = 0;  // Of spans.
    enum class Kind : uint8_t { kSpans, kRefusal, kTensor } kind = Kind::kSpans;
  };
  struct Notice {
    SessionId session{};
    memory::WindowShape window;  // For a return, only its index is set.
  };
  struct Ending {
    SessionId session{};
    Code code = Code::kRevoked;
    std::string reason;
  };
  struct Opening {
    JobId job{};
    Status status;
  };
  struct Forced {
    JobId job{};
    std::string what;
  };
  struct Batch {
    std::vector<Entry> entries;
    std::vector<proto::SpanRecord> spans;
    std::vector<Refusal> refusals;
    std::vector<proto::TensorRecord> tensors;
    std::vector<Notice> windows;
    std::vector<Notice> returns;
    std::vector<Notice> taken;
    std::vector<Opening> openings;
    std::vector<Ending> endings;
    std::vector<Ending> kills;
    std::vector<Forced> forced;
    void Clear();
  };
  Batch& current() { return batches_[now_]; }
  void Tell(const Batch& batch, const Entry& entry, ReplySink& sink) const;

  Batch batches_[2];
  uint32_t now_ = 0;
};

}  // namespace tier::tiering
