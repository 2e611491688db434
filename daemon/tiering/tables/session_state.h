// SessionState: what the engine keeps of one attached client process. Who it is never changes; each thing that changes
// has one owner among its parts (session_parts.h). Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/metadata_charge.h"
#include "daemon/tiering/tables/session_parts.h"
#include "daemon/tiering/tables/session_record.h"

namespace tier::tiering {

struct JobState;

inline constexpr uint16_t kSessionsMax = UINT16_MAX - 1;  // Indices.
inline constexpr uint16_t kNoSessionIndex = UINT16_MAX;

class SessionState {
 public:
  // `session_job` owns `listings`.
  SessionState(uint16_t session_index, const SessionRecord& session_record, JobState& session_job,
               JobListings& listings)
      : record(session_record), id(session_record.id), index(session_index), job(&session_job), listing(listings) {}
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  const SessionRecord& record;  // Changes through SessionTable::Edit.
  const SessionId id;
  const uint16_t index;
  JobState* const job;
  int numa_node = memory::kAnyNode;  // That memory for its client should come from.
  // Of its requests that name none: what its client was told, which calls a later answer overdue. 0: the engine's.
  base::Duration deadline_default{};

  SessionRequests requests;
  SessionWindows windows;
  SessionCreations creations;
  SessionListing listing;
  MetadataCharge<MetadataKind::kAnswers> unread;  // For answers that its client has not read.

  // No request and no event finds it any more; what it held is given back turn by turn (jobs/teardown.h).
  bool ending() const { return ending_; }
  void BeginEnding() {
    TIER_CHECK(!ending_, "session {} ends twice", static_cast<uint64_t>(id));
    ending_ = true;
  }

 private:
  bool ending_ = false;
};

}  // namespace tier::tiering
