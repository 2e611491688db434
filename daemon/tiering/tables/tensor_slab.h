// TensorSlab: the tensors' records, with what each of them has besides: which piece has which number, and, while a
// tensor is created by ranges, which bytes were sealed. How a tensor is found by its id stands in tensor_table.h.
//
// A record changes through Edit alone. Engine thread only. Invariant: a tensor has sealed ranges exactly while it has
// the flag kPartlySealed.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "daemon/tiering/tables/interval_set.h"
#include "daemon/tiering/tables/tensor.h"

namespace tier::tiering {

class TensorSlab {
 public:
  TensorSlot Allocate() { return tensors_.Allocate(); }
  // REQUIRES: no pieces, no sealed ranges.
  void Free(TensorSlot slot);

  const Tensor& operator[](TensorSlot slot) const { return tensors_[slot]; }
  Tensor& Edit(TensorSlot slot) { return tensors_.Edit(slot); }
  bool Contains(TensorSlot slot) const { return tensors_.Contains(slot); }
  uint32_t capacity() const { return tensors_.capacity(); }
  uint32_t used() const { return tensors_.used(); }

  // kNoPiece: it was not made yet. Every piece of a visible tensor was. REQUIRES: a number of the tensor.
  PieceId PieceOf(const Tensor& tensor, uint32_t number) const {
    return PieceId{pieces_.Get(tensor.pieces, number) - 1};
  }
  PieceId PieceOf(TensorSlot slot, uint32_t number) const { return PieceOf(tensors_[slot], number); }
  void SetPiece(TensorSlot slot, uint32_t number, PieceId piece) {
    pieces_.Set(&tensors_.Edit(slot).pieces, number, Value(piece) + 1);
  }
  // At most `end`, with no piece made between the two; as SparseArrays::EndOfSet.
  uint32_t EndOfPieces(const Tensor& tensor, uint32_t end) const { return pieces_.EndOfSet(tensor.pieces, end); }
  void ClearPieces(TensorSlot slot) { pieces_.Clear(&tensors_.Edit(slot).pieces); }

  // Null: no range was sealed, or all of them.
  const IntervalSet* SealedOf(TensorSlot slot) const;
  // How many of its ranges had to be moved for it.
  size_t AddSealed(TensorSlot slot, uint64_t begin, uint64_t end);
  void ClearSealed(TensorSlot slot);

  void CheckInvariants() const;

 private:
  Slab<Tensor, TensorSlot> tensors_;
  SparseArrays pieces_;
  std::unordered_map<uint32_t, IntervalSet> sealed_;  // By slot.
};

}  // namespace tier::tiering
