// See tensor_slab.h.
#include "daemon/tiering/tables/tensor_slab.h"

namespace tier::tiering {

void TensorSlab::Free(TensorIndex index) {
  const Tensor& tensor = tensors_[index];
  TIER_CHECK(tensor.pieces.root == 0 && !tensor.has(kPartlySealed), "tensor {} has pieces, or sealed ranges",
             tensor.id);
  tensors_.Free(index);
}

const IntervalSet* TensorSlab::SealedOf(TensorIndex index) const {
  if (!tensors_[index].has(kPartlySealed)) return nullptr;
  return &sealed_.at(Value(index));
}

size_t TensorSlab::AddSealed(TensorIndex index, uint64_t begin, uint64_t end) {
  tensors_.Edit(index).set(kPartlySealed);
  return sealed_[Value(index)].Add(begin, end);
}

void TensorSlab::ClearSealed(TensorIndex index) {
  if (!tensors_[index].has(kPartlySealed)) return;
  sealed_.erase(Value(index));
  tensors_.Edit(index).clear(kPartlySealed);
}

void TensorSlab::CheckInvariants() const {
  tensors_.CheckInvariants();
  pieces_.CheckInvariants();
  for (const auto& [index, ranges] : sealed_) {
    const Tensor& tensor = tensors_[TensorIndex{index}];
    TIER_CHECK(tensor.has(kPartlySealed) && !tensor.has(kVisible) && !ranges.intervals().empty(),
               "tensor {} has {} sealed ranges", tensor.id, ranges.intervals().size());
  }
}

}  // namespace tier::tiering
