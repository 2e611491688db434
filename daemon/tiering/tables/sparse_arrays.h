// SparseArrays: arrays of 32-bit values by number, most of them never set, in nodes of a fixed size under 32-bit ids.
// The pieces of a tensor and the bitmaps of updates are such arrays. A record keeps a SparseArray, two numbers, and no
// pointer.
//
// An array is a radix tree of nodes of 64 entries, whose height depends on its size: one node up to 64 values, two
// levels up to 4,096. An array of at most one value takes no node. A value that was never set reads 0 and takes no
// memory. Nodes never move. Engine thread only.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "daemon/tiering/tables/slab.h"

namespace tier::tiering {

struct SparseArray {
  uint32_t size = 0;
  uint32_t root = 0;  // In an array of at most one value, that value. Else the number of its node + 1; 0: none was set.
};

class SparseArrays {
 public:
  static constexpr uint32_t kFanOut = 64;

  // The most memory that an array of this size takes.
  static constexpr uint64_t BytesMax(uint64_t size) {
    uint64_t bytes = 0;
    while (size > 1) {
      size = (size + kFanOut - 1) / kFanOut;
      bytes += size * (sizeof(Node) + sizeof(uint32_t));
    }
    return bytes;
  }

  // REQUIRES for Get and Set: number < array.size.
  uint32_t Get(const SparseArray& array, uint32_t number) const {
    uint32_t at = array.root;
    for (uint32_t shift = ShiftOf(array.size); at != 0 && shift != 0;) {
      shift -= kBits;
      at = nodes_[NodeId{at - 1}].entries[number >> shift & (kFanOut - 1)];
    }
    return at;
  }
  void Set(SparseArray* array, uint32_t number, uint32_t value);
  // A number of at most `end` with no value set from it up to `end`; looks at no more than one node of each level.
  // REQUIRES: end > 0.
  uint32_t EndOfSet(const SparseArray& array, uint32_t end) const;
  // Unsets all values.
  void Clear(SparseArray* array);

  uint32_t nodes_used() const { return nodes_.used(); }
  uint64_t bytes() const { return nodes_.bytes(); }
  bool can_shrink() const { return nodes_.can_shrink(); }
  bool ShrinkOne() { return nodes_.ShrinkOne(); }
  void CheckInvariants() const { nodes_.CheckInvariants(); }

 private:
  static constexpr uint32_t kBits = 6;
  enum class NodeId : uint32_t {};
  struct Node {
    std::array<uint32_t, kFanOut> entries = {};
  };

  // Bits of a number that choose the way from the root to its value.
  static constexpr uint32_t ShiftOf(uint32_t size) {
    return size <= 1 ? 0 : (static_cast<uint32_t>(std::bit_width(size - 1)) + kBits - 1) / kBits * kBits;
  }
  uint32_t MakeNode();
  void FreeNodes(uint32_t node, uint32_t shift);

  Slab<Node, NodeId> nodes_;
};

}  // namespace tier::tiering
