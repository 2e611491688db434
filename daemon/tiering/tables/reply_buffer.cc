// See reply_buffer.h.
#include "daemon/tiering/tables/reply_buffer.h"

#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {

void ReplyBuffer::Batch::Clear() {
  entries.clear();
  spans.clear();
  refusals.clear();
  tensors.clear();
  windows.clear();
  returns.clear();
  taken.clear();
  openings.clear();
  endings.clear();
  kills.clear();
  forced.clear();
}

void ReplyBuffer::Begin(To to) {
  Batch& batch = current();
  batch.entries.push_back(
      {.session = to.session, .sequence = to.sequence, .first = static_cast<uint32_t>(batch.spans.size())});
}

proto::SpanRecord* ReplyBuffer::LastSpan() {
  Batch& batch = current();
  return batch.spans.size() == batch.entries.back().first ? nullptr : &batch.spans.back();
}

void ReplyBuffer::End(uint64_t value) {
  Batch& batch = current();
  Entry& entry = batch.entries.back();
  entry.count = static_cast<uint32_t>(batch.spans.size()) - entry.first;
  entry.value = value;
  TIER_CHECK(entry.count <= proto::kSpansPerCompletionMax, "{} spans", entry.count);
}

void ReplyBuffer::Withdraw(std::vector<proto::SpanRecord>* spans) {
  Batch& batch = current();
  const auto first = batch.spans.begin() + batch.entries.back().first;
  spans->insert(spans->end(), first, batch.spans.end());
  batch.spans.erase(first, batch.spans.end());
  batch.entries.pop_back();
}

void ReplyBuffer::Value(To to, uint64_t value) {
  Begin(to);
  End(value);
}

void ReplyBuffer::Stat(To to, const proto::TensorRecord& record, uint64_t flags) {
  Batch& batch = current();
  batch.entries.push_back({.session = to.session,
                           .sequence = to.sequence,
                           .value = flags,
                           .first = static_cast<uint32_t>(batch.tensors.size()),
                           .kind = Entry::Kind::kTensor});
  batch.tensors.push_back(record);
}

void ReplyBuffer::Refuse(To to, uint64_t value, Refusal refusal) {
  TIER_CHECK(refusal.code != Code::kOk, "refused with OK: {}", refusal.detail);
  Batch& batch = current();
  batch.entries.push_back({.session = to.session,
                           .sequence = to.sequence,
                           .value = value,
                           .first = static_cast<uint32_t>(batch.refusals.size()),
                           .kind = Entry::Kind::kRefusal});
  if (refusal.detail.size() > proto::kDetailLengthMax) refusal.detail.resize(proto::kDetailLengthMax);
  batch.refusals.push_back(std::move(refusal));
}

void ReplyBuffer::Window(SessionId session, const memory::WindowShape& window) {
  current().windows.push_back({session, window});
}

void ReplyBuffer::WindowReturn(SessionId session, WindowIndex window) {
  current().returns.push_back({session, {.index = window}});
}

void ReplyBuffer::SessionEnded(SessionId session, Code code, const std::string& reason) {
  current().endings.push_back({session, code, reason});
}

void ReplyBuffer::Drop(SessionId session) {
  Batch& batch = current();
  for (Entry& entry : batch.entries) {
    if (entry.session == session) entry.session = {};
  }
  std::erase_if(batch.windows, [session](const Notice& notice) { return notice.session == session; });
  std::erase_if(batch.taken, [session](const Notice& notice) { return notice.session == session; });
  std::erase_if(batch.returns, [session](const Notice& notice) { return notice.session == session; });
}

bool ReplyBuffer::empty() const {
  const Batch& batch = batches_[now_];
  return batch.entries.empty() && batch.windows.empty() && batch.returns.empty() && batch.openings.empty() &&
         batch.endings.empty() && batch.kills.empty() && batch.forced.empty() && batch.taken.empty();
}

void ReplyBuffer::CheckInvariants() const {
  const Batch& batch = batches_[now_];
  for (const Entry& entry : batch.entries) {
    const size_t there = entry.kind == Entry::Kind::kSpans     ? batch.spans.size()
                         : entry.kind == Entry::Kind::kRefusal ? batch.refusals.size()
                                                               : batch.tensors.size();
    const size_t named = entry.kind == Entry::Kind::kSpans ? entry.count : 1;
    TIER_CHECK(entry.first + named <= there, "answer {} names {} + {} of {}", entry.sequence, entry.first, named,
               there);
  }
}

void ReplyBuffer::Tell(const Batch& batch, const Entry& entry, ReplySink& sink) const {
  Reply reply{.sequence = entry.sequence, .value = entry.value};
  switch (entry.kind) {
    case Entry::Kind::kSpans: reply.spans = {batch.spans.data() + entry.first, entry.count}; break;
    case Entry::Kind::kTensor: reply.tensor = &batch.tensors[entry.first]; break;
    case Entry::Kind::kRefusal: {
      const Refusal& refusal = batch.refusals[entry.first];
      reply.code = refusal.code;
      reply.error = &refusal.record;
      reply.detail = refusal.detail;
      break;
    }
  }
  sink.OnReply(entry.session, reply);
}

void ReplyBuffer::Publish(ReplySink& sink) {
  Batch& told = current();
  now_ ^= 1;
  TIER_CHECK(current().entries.empty(), "{} replies in a batch that was told", current().entries.size());
  for (const Notice& notice : told.windows) sink.OnWindow(notice.session, notice.window);
  for (const Entry& entry : told.entries) {
    if (entry.session != SessionId{}) Tell(told, entry, sink);
  }
  for (const Notice& notice : told.returns) sink.OnWindowReturn(notice.session, notice.window.index);
  for (const Notice& notice : told.taken) sink.OnWindowTaken(notice.session, notice.window.index);
  for (const Opening& opening : told.openings) sink.OnJobOpened(opening.job, opening.status);
  for (const Ending& kill : told.kills) sink.OnProcessEnd(kill.session, kill.reason);
  for (const Forced& forced : told.forced) sink.OnForcedReturn(forced.job, forced.what);
  for (const Ending& ending : told.endings) sink.OnSessionEnded(ending.session, ending.code, ending.reason);
  told.Clear();
}

}  // namespace tier::tiering
