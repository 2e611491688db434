// See tensor_table.h.
#include "daemon/tiering/tables/tensor_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/job_state.h"
#include "proto/units.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kMovedAtOnce = 16;         // Places of the old half, with each insertion and removal.
constexpr size_t kTrimmedAtOnce = 64 * kKiB;  // Of the memory of the old half, when all are moved.
constexpr uint64_t kStepsOfOneShrink = 64;    // So often does ShrinkSome what an insertion does.

constexpr uint64_t Mix(uint64_t value) {  // The finalizer of MurmurHash3 (Appleby, 2011): every bit reaches every bit.
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccd;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53;
  return value ^ value >> 33;
}

}  // namespace

TensorTable::TensorTable(const TensorSlab& tensors, uint64_t seed)
    : tensors_(tensors), seed_(seed), new_(MakeHalf(kCapacityMin)) {}

uint64_t TensorTable::HashOf(const TensorKey& key) const {
  return Mix(key.tensor + 0x9e3779b97f4a7c15 * Mix((key.space * 0xbf58476d1ce4e5b9 + Value(key.job)) ^ seed_));
}

bool TensorTable::Matches(const Entry& entry, const TensorKey& key) const {
  const Tensor& tensor = tensors_[entry.index()];
  return tensor.id == key.tensor && tensor.space == key.space && tensor.job == key.job;
}

TensorTable::Half TensorTable::MakeHalf(uint64_t capacity) {
  Half half;
  half.memory = base::ZeroedMemory(capacity * sizeof(Entry));
  half.entries = reinterpret_cast<Entry*>(half.memory.data());
  half.mask = capacity - 1;
  return half;
}

uint64_t TensorTable::PlaceOf(const Half& half, const TensorKey& key, uint64_t hash) const {
  const uint32_t tag = TagOf(hash);
  for (uint64_t at = hash & half.mask;; at = (at + 1) & half.mask) {
    const Entry& entry = half.entries[at];
    if (entry.value == 0) {
      if (entry.tag == kTombstone) continue;
      return kNowhere;
    }
    if (entry.tag == tag && Matches(entry, key)) return at;
  }
}

TensorIndex TensorTable::Find(const TensorKey& key, uint64_t hash) const {
  if (const uint64_t at = PlaceOf(new_, key, hash); at != kNowhere) return new_.entries[at].index();
  if (old_.size == 0) return kNoTensor;
  const uint64_t at = PlaceOf(old_, key, hash);
  return at == kNowhere ? kNoTensor : old_.entries[at].index();
}

TensorIndex TensorTable::Hint(uint64_t hash) const { return new_.entries[hash & new_.mask].index(); }

void TensorTable::Place(Half* half, uint64_t hash, TensorIndex index) {
  uint64_t at = hash & half->mask;
  while (half->entries[at].value != 0) at = (at + 1) & half->mask;
  if (half->entries[at].tag == kTombstone) --half->tombstones;
  half->entries[at] = {TagOf(hash), Value(index) + 1};
  ++half->size;
}

void TensorTable::StartMove(uint64_t capacity) {
  TIER_CHECK(old_.entries == nullptr, "{} entries are still to be moved", old_.size);
  old_ = std::exchange(new_, MakeHalf(capacity));
  next_move_ = 0;
}

// All are moved, and the old half is gone, before the new one is full. One that grows has room for three quarters as
// many insertions as the old half had places, one that shrinks for an eighth.
void TensorTable::MoveSome() {
  if (old_.entries == nullptr) return;
  const uint64_t end = std::min(next_move_ + kMovedAtOnce, old_.capacity());
  for (; next_move_ != end; ++next_move_) {
    Entry& entry = old_.entries[next_move_];
    if (entry.value == 0) continue;
    const Tensor& tensor = tensors_[entry.index()];
    Place(&new_, HashOf({tensor.job, tensor.space, tensor.id}), entry.index());
    entry = {kTombstone, 0};
    --old_.size;
  }
  if (next_move_ != old_.capacity()) return;
  TIER_CHECK(old_.size == 0, "{} entries were not moved", old_.size);
  old_.memory.TrimFront(std::min(old_.memory.size(), kTrimmedAtOnce));
  if (old_.memory.size() == 0) old_ = {};
}

bool TensorTable::ShrinkSome() {
  if (!can_shrink()) return false;
  if (old_.entries == nullptr && too_large()) StartMove(new_.capacity() / 2);
  for (uint64_t step = 0; step < kStepsOfOneShrink; ++step) MoveSome();
  return true;
}

void TensorTable::Insert(const TensorKey& key, TensorIndex index) {
  const uint64_t hash = HashOf(key);
  TIER_CHECK(index != kNoTensor && Find(key, hash) == kNoTensor, "tensor {} space {} of job {} twice", key.tensor,
             key.space, Value(key.job));
  MoveSome();
  if (4 * (size() + new_.tombstones + 1) > 3 * new_.capacity()) {
    StartMove(2 * (new_.size + 1) > new_.capacity() ? 2 * new_.capacity() : new_.capacity());
  }
  Place(&new_, hash, index);
}

void TensorTable::EraseAt(Half* half, uint64_t at) {
  const Entry& next = half->entries[(at + 1) & half->mask];
  const bool last_of_its_run = next.value == 0 && next.tag == 0;
  half->entries[at] = {last_of_its_run ? 0 : kTombstone, 0};
  half->tombstones += last_of_its_run ? 0 : 1;
  --half->size;
}

void TensorTable::Erase(const TensorKey& key) {
  const uint64_t hash = HashOf(key);
  if (old_.entries == nullptr && too_large()) StartMove(new_.capacity() / 2);
  MoveSome();
  const uint64_t at = PlaceOf(new_, key, hash);
  if (at != kNowhere) return EraseAt(&new_, at);
  const uint64_t old_at = old_.size == 0 ? kNowhere : PlaceOf(old_, key, hash);
  TIER_CHECK(old_at != kNowhere, "tensor {} space {} of job {} is not in the table", key.tensor, key.space,
             Value(key.job));
  EraseAt(&old_, old_at);
}

void TensorTable::CheckInvariants() const {
  for (const Half* half : {&new_, &old_}) {
    uint64_t named = 0;
    const uint64_t places = half->size == 0 ? 0 : half->capacity();  // One without entries may be trimmed.
    for (const Entry& entry : std::span<const Entry>(half->entries, places)) {
      if (entry.value == 0) continue;
      ++named;
      const Tensor& tensor = tensors_[entry.index()];
      const uint64_t hash = HashOf({tensor.job, tensor.space, tensor.id});
      TIER_CHECK(entry.tag == TagOf(hash), "tensor {} stands under another name", tensor.id);
    }
    TIER_CHECK(named == half->size, "{} names of {}", named, half->size);
  }
}

}  // namespace tier::tiering
