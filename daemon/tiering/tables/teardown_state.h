// Departure: a session that is gone but for leases that are still to be ended, and how far that has come. Engine thread
// only.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "daemon/tiering/tables/session_state.h"

namespace tier::tiering {

// What is under write leases that end without a seal, while it is judged (rollback.h).
struct Rollback {
  struct Written {
    TensorRef tensor;
    PieceId piece = kNoPiece;
  };
  std::vector<Written> pieces;                       // Of tensors that others can name.
  std::unordered_set<uint32_t> covered;              // The same, to be found.
  std::unordered_map<uint32_t, bool> mixed_tensors;  // By tensor slot, of those judged.
  size_t next_to_detect = 0;                         // Of `pieces`.
  uint32_t next_piece = 0;                           // At a piece of that tensor.
  size_t next_to_mark = 0;
};

struct Teardown {
  SessionState* session = nullptr;  // Keeps its slot; found by no id, in no list of its job.
  LeaseSlot next = kNoLease;        // Not yet ended or collected, from here on.
  Rollback rollback;
};

}  // namespace tier::tiering
