// See tensor_slab.h.
#include "daemon/tiering/tables/tensor_slab.h"

namespace tier::tiering {

void TensorSlab::Free(TensorSlot slot) {
  const Tensor& tensor = tensors_[slot];
  TIER_CHECK(tensor.pieces.root == 0 && !tensor.has(kPartlySealed), "tensor {} has pieces, or sealed ranges",
             tensor.id);
  tensors_.Free(slot);
}

const IntervalSet* TensorSlab::SealedOf(TensorSlot slot) const {
  if (!tensors_[slot].has(kPartlySealed)) return nullptr;
  return &sealed_.at(Value(slot));
}

size_t TensorSlab::AddSealed(TensorSlot slot, uint64_t begin, uint64_t end) {
  tensors_.Edit(slot).set(kPartlySealed);
  return sealed_[Value(slot)].Add(begin, end);
}

void TensorSlab::ClearSealed(TensorSlot slot) {
  if (!tensors_[slot].has(kPartlySealed)) return;
  sealed_.erase(Value(slot));
  tensors_.Edit(slot).clear(kPartlySealed);
}

void TensorSlab::CheckInvariants() const {
  for (const auto& [slot, ranges] : sealed_) {
    const Tensor& tensor = tensors_[TensorSlot{slot}];
    TIER_CHECK(tensor.has(kPartlySealed) && !tensor.has(kVisible) && !ranges.intervals().empty(),
               "tensor {} has {} sealed ranges", tensor.id, ranges.intervals().size());
  }
}

}  // namespace tier::tiering
