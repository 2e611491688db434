// See session_table.h.
#include "daemon/tiering/tables/session_table.h"

#include "daemon/base/check.h"
#include "daemon/tiering/tables/job_state.h"

namespace tier::tiering {

SessionState* SessionTable::Open(SessionId id, JobState& job, base::Duration deadline_default) {
  if (records_.used() == kSessionsMax) return nullptr;
  const uint16_t index = records_.Allocate();
  if (index >= slots_.size()) slots_.resize(size_t{index} + 1);
  TIER_CHECK(slots_[index] == nullptr && !by_id_.contains(id), "session {} opened twice", static_cast<uint64_t>(id));
  SessionRecord& record = records_.Edit(index);
  record = {.id = id, .job = job.index};
  slots_[index] = std::make_unique<SessionState>(index, record, job, job.listings);
  SessionState* const session = slots_[index].get();
  session->deadline_default = deadline_default;
  by_id_.emplace(id, session);
  return session;
}

SessionState* SessionTable::Find(SessionId id) const {
  if (last_found_ != nullptr && last_found_->id == id) return last_found_;
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  last_found_ = found->second;
  return last_found_;
}

SessionState& SessionTable::At(uint16_t index) const {
  TIER_CHECK(index < slots_.size() && slots_[index] != nullptr, "no session has index {}", index);
  return *slots_[index];
}

void SessionTable::Detach(const SessionState& session) {
  TIER_CHECK(by_id_.erase(session.id) == 1, "session {} detached twice", static_cast<uint64_t>(session.id));
  last_found_ = nullptr;
}

void SessionTable::Free(const SessionState& session) {
  TIER_CHECK(session.record.lease_count == 0 && session.record.leased_bytes == 0 && session.requests.waiting() == 0,
             "session {} holds {} leases, and {} of its requests wait", static_cast<uint64_t>(session.id),
             session.record.lease_count, session.requests.waiting());
  TIER_CHECK(!by_id_.contains(session.id), "session {} is attached", static_cast<uint64_t>(session.id));
  const uint16_t index = session.index;
  std::erase(teardowns_, &session);
  slots_[index].reset();
  records_.Free(index);
}

void SessionTable::CheckInvariants() const {
  size_t sessions = 0;
  for (size_t index = 0; index < slots_.size(); ++index) {
    if (slots_[index] == nullptr) continue;
    ++sessions;
    TIER_CHECK(slots_[index]->index == index, "session {} in index {}", static_cast<uint64_t>(slots_[index]->id),
               index);
  }
  for (const auto& [id, session] : by_id_) {
    TIER_CHECK(slots_[session->index].get() == session && session->id == id, "session {}", static_cast<uint64_t>(id));
  }
  TIER_CHECK(sessions == by_id_.size() + teardowns_.size() && sessions == records_.used(),
             "{} sessions of {} attached and {} in teardown", sessions, by_id_.size(), teardowns_.size());
}

}  // namespace tier::tiering
