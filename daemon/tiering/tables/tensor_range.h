// A byte range of one tensor, as a request names it, and the pieces that it touches.
#pragma once

#include <cstdint>

#include "daemon/tiering/tables/tensor.h"
#include "proto/message.h"

namespace tier::tiering {

struct WaitItem {
  TensorRef tensor;
  uint64_t id = 0;  // As in the request, for a refusal when the tensor is gone. 0: the request did not name it.
  uint32_t first_piece = 0;
  uint32_t piece_count = 0;
  uint64_t offset = 0;  // Bytes of the tensor.
  uint64_t length = 0;
};

// The range that an item names in a tensor of that size; length 0 means up to its end. False: the range reaches beyond
// the tensor.
inline bool SetRange(const proto::RequestItem& asked, uint64_t size, WaitItem* item) {
  if (asked.offset >= size || asked.length > size - asked.offset) return false;
  item->offset = asked.offset;
  item->length = asked.length == 0 ? size - asked.offset : asked.length;
  item->first_piece = static_cast<uint32_t>(item->offset / kBlockSize);
  item->piece_count = static_cast<uint32_t>((item->offset + item->length - 1) / kBlockSize) - item->first_piece + 1;
  return true;
}

}  // namespace tier::tiering
