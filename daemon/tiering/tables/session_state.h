// SessionState: what the engine keeps of one attached client process. Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/metadata_charge.h"
#include "daemon/tiering/tables/session_record.h"

namespace tier::tiering {

struct JobState;

inline constexpr uint16_t kSessionsMax = UINT16_MAX - 1;  // Indices.
inline constexpr uint16_t kNoSessionIndex = UINT16_MAX;

struct SessionState {
  explicit SessionState(const SessionRecord& session_record) : record(session_record), id(session_record.id) {}
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  const SessionRecord& record;  // Changes through SessionTable::Edit.
  const SessionId id;
  uint16_t index = 0;
  JobState* job = nullptr;
  uint32_t outstanding = 0;  // Requests submitted and not yet answered.
  uint32_t waiter_count = 0;
  bool ending = false;     // It is gone for everybody; what it held is given back turn by turn (jobs/teardown.h).
  uint32_t releasing = 0;  // Of them, releases.
  std::vector<TensorRef>
      creations;  // Shared tensors it creates: these, and at most as many that it creates no more (catalog).
  MetadataCharge<MetadataKind::kAnswers> unread;  // For answers that its client has not read.
  uint64_t enumerating = 0;        // The waiter that lists all its tensors, or did (enumeration.h); 0: none.
  TensorIndex cursor = kNoTensor;  // The tensor it lists next.
  std::vector<uint64_t> windows;   // Bit per window: announced to it and not returned.
  uint32_t overdue_windows = 0;    // Of them, asked back longer ago than the deadline.

  bool knows(WindowIndex window) const {
    const uint32_t at = tier::Value(window);
    return at / 64 < windows.size() && (windows[at / 64] >> (at % 64) & 1) != 0;
  }
  void learn(WindowIndex window) {
    const uint32_t at = tier::Value(window);
    if (at / 64 >= windows.size()) windows.resize(at / 64 + 1);
    windows[at / 64] |= uint64_t{1} << (at % 64);
  }
  void remove(WindowIndex window) {
    if (knows(window)) windows[tier::Value(window) / 64] &= ~(uint64_t{1} << (tier::Value(window) % 64));
  }
};

}  // namespace tier::tiering
