// PiecePass: goes over all pieces that there are, some in each turn. Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/tiering/tables/policy.h"

namespace tier::tiering {

class PiecePass {
 public:
  void Begin() { looked_ = 0; }
  // As many were looked at as there are.
  bool IsOver(const PieceSlab& pieces) const { return looked_ >= pieces.held(); }
  // REQUIRES: there are some. Behind the last one comes the first.
  PieceId Next(const PieceSlab& pieces) {
    cursor_ = pieces.NextHeld(cursor_ + 1);
    if (cursor_ == pieces.capacity()) cursor_ = pieces.NextHeld(0);
    ++looked_;
    return PieceId{cursor_};
  }

 private:
  uint32_t cursor_ = 0;  // The piece looked at last.
  uint32_t looked_ = 0;  // Pieces, in this pass.
};

}  // namespace tier::tiering
