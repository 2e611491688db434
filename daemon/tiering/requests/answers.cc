// See answers.h.
#include "daemon/tiering/requests/answers.h"

#include <utility>

namespace tier::tiering {

using proto::Op;

void AnswerValue(Tables& tables, SessionState& session, uint64_t sequence, Op op, uint64_t value) {
  session.requests.End();
  tables.figures.CountAnswer(op, Code::kOk);
  tables.replies.Value({session.id, sequence}, value);
}

void AnswerRefusal(Tables& tables, SessionState& session, const Answered& to, Refusal refusal) {
  session.requests.End();
  const bool known = static_cast<size_t>(to.op) < proto::kOpCount;
  tables.figures.CountAnswer(known ? to.op : proto::Op::kNone, refusal.code);
  const RefusalReason reason = refusal.reason.value_or(ReasonOfCode(refusal.code));
  tables.figures.CountRefusal(reason);
  ++tables.jobs.Edit(*session.job).counters.refusals[static_cast<size_t>(reason)];
  tables.replies.Refuse({session.id, to.sequence}, to.value, std::move(refusal));
}

void Refuse(Tables& tables, SessionState& session, const Request& request, uint64_t item, Refusal refusal) {
  AnswerRefusal(tables, session, {request.sequence, request.op, item}, std::move(refusal));
}

}  // namespace tier::tiering
