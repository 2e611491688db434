// See session_table.h.
#include "daemon/tiering/tables/session_table.h"

#include "daemon/base/check.h"

namespace tier::tiering {

SessionState* SessionTable::Open(SessionId id, JobState& job) {
  if (free_slots_.empty() && slots_.size() == kSessionsMax) return nullptr;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint16_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint16_t slot = free_slots_.back();
  free_slots_.pop_back();
  TIER_CHECK(slots_[slot] == nullptr && !by_id_.contains(id), "session {} opened twice", static_cast<uint64_t>(id));
  slots_[slot] = std::make_unique<SessionState>();
  SessionState* const session = slots_[slot].get();
  session->id = id;
  session->slot = slot;
  session->job = &job;
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

SessionState& SessionTable::At(uint16_t slot) const {
  TIER_CHECK(slot < slots_.size() && slots_[slot] != nullptr, "no session has slot {}", slot);
  return *slots_[slot];
}

void SessionTable::Detach(const SessionState& session) {
  TIER_CHECK(by_id_.erase(session.id) == 1, "session {} detached twice", static_cast<uint64_t>(session.id));
  last_found_ = nullptr;
}

void SessionTable::Free(const SessionState& session) {
  TIER_CHECK(session.lease_count == 0 && session.leased_bytes == 0, "session {} holds {} leases",
             static_cast<uint64_t>(session.id), session.lease_count);
  TIER_CHECK(!by_id_.contains(session.id), "session {} is attached", static_cast<uint64_t>(session.id));
  const uint16_t slot = session.slot;
  std::erase(teardowns_, &session);
  slots_[slot].reset();
  free_slots_.push_back(slot);
}

void SessionTable::CheckInvariants() const {
  size_t sessions = 0;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] == nullptr) continue;
    ++sessions;
    TIER_CHECK(slots_[slot]->slot == slot, "session {} in slot {}", static_cast<uint64_t>(slots_[slot]->id), slot);
  }
  for (const auto& [id, session] : by_id_) {
    TIER_CHECK(slots_[session->slot].get() == session && session->id == id, "session {}", static_cast<uint64_t>(id));
  }
  TIER_CHECK(sessions == by_id_.size() + teardowns_.size() && sessions + free_slots_.size() == slots_.size(),
             "{} sessions of {} attached and {} in teardown", sessions, by_id_.size(), teardowns_.size());
}

}  // namespace tier::tiering
