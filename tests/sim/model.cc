// See model.h.
#include "tests/sim/model.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace tier::tiering::sim {
namespace {

uint64_t StampOf(const TensorModel& tensor, uint32_t page, uint32_t seed) {
  uint64_t value =
      tensor.id * 0x9e3779b97f4a7c15 + tensor.space * 0xc2b2ae3d27d4eb4f + page * 0x165667b19e3779f9u + seed;
  value ^= value >> 31;
  return value * 0xbf58476d1ce4e5b9;
}

// Visits (page, first byte in memory, bytes of the page) for pages that lie whole in the patch.
template <typename Visit>
bool ForEachPage(const TensorModel& tensor, const Patch& patch, Visit visit) {
  for (uint64_t page = (patch.offset + kPageSize - 1) / kPageSize; page < tensor.page_count(); ++page) {
    const uint64_t begin = page * kPageSize;
    const uint64_t bytes = std::min(kPageSize, tensor.size - begin);
    if (begin + bytes > patch.offset + patch.length) return true;
    if (!visit(static_cast<uint32_t>(page), patch.memory + (begin - patch.offset), bytes)) return false;
  }
  return true;
}

}  // namespace

TensorPtr NewTensorModel(const TensorModel& named) {
  auto tensor = std::make_shared<TensorModel>();
  tensor->job = named.job;
  tensor->space = named.space;
  tensor->id = named.id;
  tensor->size = named.size;
  tensor->creator = named.creator;
  tensor->seeds.assign(tensor->page_count(), kUnknown);
  tensor->sealed.assign(tensor->page_count(), false);
  const size_t pieces = (tensor->size + kBlockSize - 1) / kBlockSize;
  tensor->torn.assign(pieces, false);
  tensor->doubtful.assign(pieces, false);
  return tensor;
}

TensorPtr Latest(TensorPtr tensor) {
  while (tensor->replaced_by != nullptr) tensor = tensor->replaced_by;
  return tensor;
}

TensorPtr ModelTable::Find(uint64_t job, uint64_t space, uint64_t id) const {
  const auto found = tensors_.find({job, space, id});
  return found == tensors_.end() ? nullptr : found->second;
}

void ModelTable::Add(const TensorPtr& tensor) { tensors_[{tensor->job, tensor->space, tensor->id}] = tensor; }

void ModelTable::Remove(const TensorPtr& tensor) {
  const auto found = tensors_.find({tensor->job, tensor->space, tensor->id});
  if (found != tensors_.end() && found->second == tensor) tensors_.erase(found);
}

void ModelTable::AddWaiting(const TensorPtr& tensor) {
  waiting_.emplace(Key{tensor->job, tensor->space, tensor->id}, tensor);
}

void ModelTable::RemoveWaiting(const TensorPtr& tensor) {
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second == tensor; });
}

void ModelTable::EndWaiting(const TensorModel& named, uint64_t creator) {
  const auto [begin, end] = waiting_.equal_range(Key{named.job, named.space, named.id});
  std::for_each(begin, end, [&](const auto& entry) {
    if (creator == 0 || creator == entry.second->creator) entry.second->freeing = true;
  });
}

TensorPtr ModelTable::Pick(uint64_t job, uint64_t space, uint64_t chance) const {
  const auto begin = tensors_.lower_bound({job, space, 0});
  const auto end = tensors_.upper_bound({job, space, UINT64_MAX});
  const auto count = static_cast<uint64_t>(std::distance(begin, end));
  return count == 0 ? nullptr : std::next(begin, static_cast<ptrdiff_t>(chance % count))->second;
}

void ModelTable::RemoveSpace(uint64_t job, uint64_t space) {
  std::erase_if(tensors_, [&](const auto& entry) { return entry.second->job == job && entry.second->space == space; });
}

void ModelTable::RemoveJob(uint64_t job) {
  std::erase_if(tensors_, [&](const auto& entry) { return entry.second->job == job; });
}

void Stamp(const TensorModel& tensor, const Patch& patch, uint32_t seed) {
  ForEachPage(tensor, patch, [&](uint32_t page, std::byte* memory, uint64_t bytes) {
    const uint64_t stamp = StampOf(tensor, page, seed);
    const uint64_t head = std::min<uint64_t>(bytes, sizeof(stamp));
    std::memcpy(memory, &stamp, head);
    std::memcpy(memory + bytes - head, &stamp, head);
    return true;
  });
}

std::optional<uint32_t> ContentTable::FindOther(uint64_t content, const TensorModel& tensor, const Patch& patch) {
  std::optional<uint32_t> other;
  auto& seeds = seeds_[content];
  ForEachPage(tensor, patch, [&](uint32_t page, const std::byte*, uint64_t) {
    if (tensor.seeds[page] == kUnknown) return true;
    const uint32_t seed = seeds.try_emplace(page, tensor.seeds[page]).first->second;
    if (seed != tensor.seeds[page]) other = page;
    return !other;
  });
  if (seeds_.size() > kContentsMax) seeds_.erase(seeds_.begin());
  return other;
}

std::optional<uint32_t> FindWrongPage(const TensorModel& tensor, const Patch& patch) {
  std::optional<uint32_t> wrong;
  ForEachPage(tensor, patch, [&](uint32_t page, const std::byte* memory, uint64_t bytes) {
    if (tensor.seeds[page] == kUnknown) return true;
    const uint64_t stamp = StampOf(tensor, page, tensor.seeds[page]);
    const uint64_t head = std::min<uint64_t>(bytes, sizeof(stamp));
    const bool right = std::memcmp(memory + bytes - head, &stamp, head) == 0 &&
                       (bytes < 2 * head || std::memcmp(memory, &stamp, head) == 0);
    if (!right) wrong = page;
    return right;
  });
  return wrong;
}

}  // namespace tier::tiering::sim
