// See sparse_arrays.h.
#include "daemon/tiering/tables/sparse_arrays.h"

namespace tier::tiering {

uint32_t SparseArrays::MakeNode() {
  const NodeId id = nodes_.Allocate();
  nodes_.Edit(id) = {};
  return static_cast<uint32_t>(id) + 1;
}

void SparseArrays::Set(SparseArray* array, uint32_t number, uint32_t value) {
  TIER_CHECK(number < array->size, "number {} of {}", number, array->size);
  uint32_t shift = ShiftOf(array->size);
  if (shift == 0) {
    array->root = value;
    return;
  }
  if (array->root == 0) array->root = MakeNode();
  NodeId node{array->root - 1};
  while ((shift -= kBits) != 0) {
    const uint32_t entry = number >> shift & (kFanOut - 1);
    if (nodes_[node].entries[entry] == 0) {
      const uint32_t made = MakeNode();
      nodes_.Edit(node).entries[entry] = made;
    }
    node = NodeId{nodes_[node].entries[entry] - 1};
  }
  nodes_.Edit(node).entries[number & (kFanOut - 1)] = value;
}

uint32_t SparseArrays::EndOfSet(const SparseArray& array, uint32_t end) const {
  TIER_CHECK(end != 0 && end <= array.size, "end {} of {}", end, array.size);
  uint32_t at = array.root;
  uint32_t shift = ShiftOf(array.size);
  uint32_t begin = 0;  // Of what lies under `at`.
  while (at != 0 && shift != 0) {
    shift -= kBits;
    const Node& node = nodes_[NodeId{at - 1}];
    uint32_t last = (end - 1 - begin) >> shift;
    at = node.entries[last];
    if (at == 0) {
      while (last != 0 && node.entries[last - 1] == 0) --last;
      return begin + (last << shift);
    }
    begin += last << shift;
  }
  return at == 0 ? begin : end;
}

void SparseArrays::Clear(SparseArray* array) {
  const uint32_t shift = ShiftOf(array->size);
  if (shift != 0 && array->root != 0) FreeNodes(array->root, shift);
  array->root = 0;
}

// Nodes of the lowest level are not looked at.
void SparseArrays::FreeNodes(uint32_t node, uint32_t shift) {
  const NodeId id{node - 1};
  if (shift > kBits) {
    for (const uint32_t child : nodes_[id].entries) {
      if (child != 0) FreeNodes(child, shift - kBits);
    }
  }
  nodes_.Free(id);
}

}  // namespace tier::tiering
