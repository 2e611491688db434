// TensorSlab: the tensors' records, with which piece has which number and, while a tensor is created by ranges, which
// bytes were sealed, and the numbers of their contents. tensor_table.h finds a tensor by its id.
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
  TensorIndex Allocate() { return tensors_.Allocate(); }
  // REQUIRES: no pieces, no sealed ranges.
  void Free(TensorIndex index);

  const Tensor& operator[](TensorIndex index) const { return tensors_[index]; }
  Tensor& Edit(TensorIndex index) { return tensors_.Edit(index); }
  bool Contains(TensorIndex index) const { return tensors_.Contains(index); }
  uint32_t capacity() const { return tensors_.capacity(); }
  uint32_t used() const { return tensors_.used(); }
  template <typename Visit>
  void ForEachUsed(Visit visit) const {  // Slab::ForEachUsed.
    tensors_.ForEachUsed(visit);
  }
  template <typename Visit>
  void ForEachFree(Visit visit) const {  // Slab::ForEachFree.
    tensors_.ForEachFree(visit);
  }
  uint64_t bytes() const {
    return tensors_.bytes() + pieces_.bytes() + sealed_.bucket_count() * sizeof(void*) +
           sealed_.size() * (sizeof(IntervalSet) + 2 * sizeof(void*));
  }
  bool can_shrink() const { return tensors_.can_shrink() || pieces_.can_shrink(); }
  bool ShrinkOne() { return tensors_.ShrinkOne() || pieces_.ShrinkOne(); }

  // To be called when a tensor is made, and when a write lease on it is granted.
  void BeginContent(TensorIndex index) { tensors_.Edit(index).content = ++contents_; }
  uint64_t contents() const { return contents_; }  // The last number given.

  // kNoPiece: the piece was not made yet. All pieces of a visible tensor were made. REQUIRES: a number of the tensor.
  PieceId PieceOf(const Tensor& tensor, uint32_t number) const {
    return PieceId{pieces_.Get(tensor.pieces, number) - 1};
  }
  PieceId PieceOf(TensorIndex index, uint32_t number) const { return PieceOf(tensors_[index], number); }
  void SetPiece(TensorIndex index, uint32_t number, PieceId piece) {
    pieces_.Set(&tensors_.Edit(index).pieces, number, Value(piece) + 1);
  }
  // A number of at most `end` with no piece made from it up to `end` (SparseArrays::EndOfSet).
  uint32_t EndOfPieces(const Tensor& tensor, uint32_t end) const { return pieces_.EndOfSet(tensor.pieces, end); }
  void ClearPieces(TensorIndex index) { pieces_.Clear(&tensors_.Edit(index).pieces); }

  // Null: no range was sealed, or all of the tensor was.
  const IntervalSet* SealedOf(TensorIndex index) const;
  // Returns how many of its ranges had to be moved.
  size_t AddSealed(TensorIndex index, uint64_t begin, uint64_t end);
  void ClearSealed(TensorIndex index);

  void CheckInvariants() const;

 private:
  Slab<Tensor, TensorIndex, 2048> tensors_;
  SparseArrays pieces_;
  std::unordered_map<uint32_t, IntervalSet> sealed_;  // By index.
  uint64_t contents_ = 0;
};

}  // namespace tier::tiering
