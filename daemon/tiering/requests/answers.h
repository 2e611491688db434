// Answers to requests: each is counted once and handed to the reply buffer. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

void AnswerValue(Tables& tables, SessionState& session, uint64_t sequence, proto::Op op, uint64_t value);
struct Answered {
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;
  uint64_t value = 0;  // Failing item.
};
void AnswerRefusal(Tables& tables, SessionState& session, const Answered& to, Refusal refusal);
// Refuses a request that has no waiter.
void Refuse(Tables& tables, SessionState& session, const Request& request, uint64_t item, Refusal refusal);

}  // namespace tier::tiering
