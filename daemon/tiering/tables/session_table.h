// SessionTable: attached sessions, and those that are gone and still hold something. Engine thread only.
//
// A session has an index from Open to Free; its id finds it until Detach. Invariant: each id that finds a session finds
// the one in whose record it stands; a session in teardown (Detach) is found by its index alone. A SessionRecord
// changes through Edit alone.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/tiering/tables/session_state.h"
#include "daemon/tiering/tables/slab.h"

namespace tier::tiering {

class SessionTable {
 public:
  // Null: there are kSessionsMax already. REQUIRES: no session of that id.
  SessionState* Open(SessionId id, JobState& job, base::Duration deadline_default = {});
  SessionState* Find(SessionId id) const;
  SessionState& At(uint16_t index) const;
  SessionRecord& Edit(const SessionState& session) { return records_.Edit(session.index); }
  // Requests and events no longer find it. What it holds does, until Free.
  void Detach(const SessionState& session);
  // REQUIRES: detached, and holds nothing.
  void Free(const SessionState& session);
  // It goes on ending turn by turn. REQUIRES: detached.
  void AddTeardown(SessionState& session) { teardowns_.push_back(&session); }
  // Those in teardown, first come first; not those of which Free was called since.
  const std::vector<SessionState*>& teardowns() const { return teardowns_; }

  size_t size() const { return by_id_.size(); }  // Without those in teardown.
  template <typename Visit>
  void ForEach(Visit visit) const {  // With them.
    for (const auto& session : slots_) {
      if (session != nullptr) visit(*session);
    }
  }
  void CheckInvariants() const;

 private:
  Slab<SessionRecord, uint16_t, 256> records_;
  std::vector<std::unique_ptr<SessionState>> slots_;
  std::unordered_map<SessionId, SessionState*> by_id_;
  std::vector<SessionState*> teardowns_;
  mutable SessionState* last_found_ = nullptr;
};

}  // namespace tier::tiering
