#include "daemon/session/session_flush.h"

#include <string>

#include "daemon/base/check.h"

namespace tier::session {

uint64_t SessionFlush::Add(tiering::SessionId session, const std::shared_ptr<Group>& group) {
  const uint64_t sequence = next_sequence_++;
  TIER_CHECK(group != nullptr && sequence >= kInternalSequenceFirst, "sequence {}", sequence);
  const bool fresh = waiting_.emplace(sequence, Waiting{session, group}).second;
  TIER_CHECK(fresh, "sequence {} twice", sequence);
  return sequence;
}

void SessionFlush::Submit(const std::shared_ptr<Group>& group, RingPort& port, tiering::EnginePort& engine,
                          uint32_t timeout_ms) {
  port.SubmitInternal(engine, {.sequence = Add(port.session(), group),
                               .op = proto::Op::kFlush,
                               .timeout_ms = timeout_ms,
                               .argument = 0,
                               .items = {},
                               .text = {}});
}

void SessionFlush::SubmitJob(const std::shared_ptr<Group>& group, tiering::JobId job, tiering::EnginePort& engine,
                             uint32_t timeout_ms) {
  const uint64_t sequence = Add(tiering::kInternalSession, group);
  const Status submitted = engine.FlushJob(job, sequence, timeout_ms);
  if (submitted) return;
  waiting_.erase(sequence);
  group->Fail(submitted.error());
}

void SessionFlush::OnReply(const tiering::Reply& reply) {
  const auto place = waiting_.find(reply.sequence);
  if (place == waiting_.end()) return;  // Its session ended in the same turn.
  // The group's last reference may call back: take it out first.
  const std::shared_ptr<Group> group = std::move(place->second.group);
  waiting_.erase(place);
  TIER_CHECK(group != nullptr, "sequence {} without a group", reply.sequence);
  if (reply.code != Code::kOk) group->Fail({reply.code, std::string(reply.detail)});
}

void SessionFlush::OnSessionEnded(tiering::SessionId session) {
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    if (place->second.session != session) {
      ++place;
      continue;
    }
    const std::shared_ptr<Group> group = std::move(place->second.group);
    place = waiting_.erase(place);
  }
}

}  // namespace tier::session
