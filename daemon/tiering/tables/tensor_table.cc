// See tensor_table.h.
#include "daemon/tiering/tables/tensor_table.h"

#include <utility>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/job_state.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kCapacityMin = 1024;

constexpr uint64_t Mix(uint64_t value) {  // The finalizer of MurmurHash3 (Appleby, 2011): every bit reaches every bit.
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccd;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53;
  return value ^ value >> 33;
}

}  // namespace

TensorTable::TensorTable(const TensorSlab& tensors, uint64_t seed) : tensors_(tensors), seed_(seed) {
  Rebuild(kCapacityMin);
}

uint64_t TensorTable::HashOf(const TensorKey& key) const {
  return Mix(key.tensor + 0x9e3779b97f4a7c15 * Mix((key.space * 0xbf58476d1ce4e5b9 + key.job) ^ seed_));
}

bool TensorTable::Matches(const Entry& entry, const TensorKey& key) const {
  const Tensor& tensor = tensors_[entry.slot];
  return tensor.id == key.tensor && tensor.space == key.space && static_cast<uint64_t>(tensor.job->id) == key.job;
}

TensorSlot TensorTable::Find(const TensorKey& key, uint64_t hash) const {
  const uint32_t tag = TagOf(hash);
  for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
    const Entry& entry = entries_[at];
    if (entry.slot == kNoTensor) {
      if (entry.tag == kTombstone) continue;
      return kNoTensor;
    }
    if (entry.tag == tag && Matches(entry, key)) return entry.slot;
  }
}

TensorSlot TensorTable::Hint(uint64_t hash) const { return entries_[hash & mask_].slot; }

void TensorTable::Place(uint64_t hash, TensorSlot slot) {
  uint64_t at = hash & mask_;
  while (entries_[at].slot != kNoTensor) at = (at + 1) & mask_;
  if (entries_[at].tag == kTombstone) --tombstones_;
  entries_[at] = {TagOf(hash), slot};
  ++size_;
}

void TensorTable::Rebuild(uint64_t capacity) {
  const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(capacity));
  mask_ = capacity - 1;
  size_ = 0;
  tombstones_ = 0;
  for (const Entry& entry : old) {
    if (entry.slot == kNoTensor) continue;
    const Tensor& tensor = tensors_[entry.slot];
    Place(HashOf({static_cast<uint64_t>(tensor.job->id), tensor.space, tensor.id}), entry.slot);
  }
}

void TensorTable::Insert(const TensorKey& key, TensorSlot slot) {
  TIER_CHECK(slot != kNoTensor && Find(key) == kNoTensor, "tensor {} space {} of job {} twice", key.tensor, key.space,
             key.job);
  if (4 * (size_ + tombstones_ + 1) > 3 * entries_.size()) {
    Rebuild(2 * (size_ + 1) > entries_.size() ? 2 * entries_.size() : entries_.size());
  }
  Place(HashOf(key), slot);
}

void TensorTable::Erase(const TensorKey& key) {
  const uint64_t hash = HashOf(key);
  for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
    Entry& entry = entries_[at];
    TIER_CHECK(entry.slot != kNoTensor || entry.tag == kTombstone, "tensor {} space {} of job {} is not in the table",
               key.tensor, key.space, key.job);
    if (entry.slot == kNoTensor || entry.tag != TagOf(hash) || !Matches(entry, key)) continue;
    const bool last_of_its_run = entries_[(at + 1) & mask_].slot == kNoTensor && entries_[(at + 1) & mask_].tag == 0;
    entry = {last_of_its_run ? 0 : kTombstone, kNoTensor};
    tombstones_ += last_of_its_run ? 0 : 1;
    --size_;
    return;
  }
}

}  // namespace tier::tiering
