// The tables against plain models, by random programs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/pieces/recency.h"
#include "daemon/tiering/tables/interval_set.h"
#include "daemon/tiering/tables/slab.h"
#include "daemon/tiering/tables/sparse_arrays.h"
#include "daemon/tiering/tables/tensor_table.h"

namespace tier::tiering {
namespace {

RC_GTEST_PROP(IntervalSetProperty, CoversWhatABitmapCovers, (const std::vector<std::pair<uint8_t, uint8_t>>& ranges)) {
  IntervalSet set;
  std::vector<bool> bytes(512, false);
  for (const auto& [begin, length] : ranges) {
    if (length == 0) continue;
    set.Add(begin, uint64_t{begin} + length);
    std::fill(bytes.begin() + begin, bytes.begin() + begin + length, true);
    for (size_t i = 1; i < set.intervals().size(); ++i)
      RC_ASSERT(set.intervals()[i - 1].end < set.intervals()[i].begin);
  }
  for (size_t begin = 0; begin < bytes.size(); begin += 7) {
    for (size_t end = begin + 1; end < bytes.size(); end += 13) {
      const bool all =
          std::find(bytes.begin() + static_cast<ptrdiff_t>(begin), bytes.begin() + static_cast<ptrdiff_t>(end),
                    false) == bytes.begin() + static_cast<ptrdiff_t>(end);
      RC_ASSERT(set.Covers(begin, end) == all);
    }
  }
}

struct SaltedRecord {
  uint64_t value = 0;
  uint32_t salt = 0;
};
enum class SaltedId : uint32_t {};

template <typename SaltedSlab>
std::vector<std::pair<const uint32_t, uint64_t>> VisitedIn(const SaltedSlab& slab) {
  std::vector<std::pair<const uint32_t, uint64_t>> visited;
  slab.ForEachUsed(
      [&](SaltedId id, const SaltedRecord& record) { visited.emplace_back(static_cast<uint32_t>(id), record.value); });
  return visited;
}

// Programs that use some hundred records, free them in any order, and shrink between: an id is the lowest that is free
// in a chunk in use, its record stays as it is, and its users have different salts.
RC_GTEST_PROP(SlabProperty, GivesOutTheLowestFreeIdsAndKeepsRecords,
              (const std::vector<std::pair<uint8_t, uint16_t>>& program)) {
  constexpr uint32_t kChunk = 64;
  Slab<SaltedRecord, SaltedId, kChunk> slab;
  std::map<uint32_t, uint64_t> used;
  std::set<std::pair<uint32_t, uint32_t>> seen;  // Ids with the salts that their users had.
  std::set<uint32_t> free;
  uint64_t value = 0;
  const auto release = [&](uint32_t id) {
    ++slab.Edit(SaltedId{id}).salt;
    slab.Free(SaltedId{id});
    used.erase(id);
    free.insert(id);
  };
  // In a chunk in use: any other may be gone.
  const auto none_free_below = [&](uint32_t number) {
    return std::all_of(free.begin(), free.lower_bound(number), [&](uint32_t lower) {
      const auto in_use = used.lower_bound(lower / kChunk * kChunk);
      return in_use == used.end() || in_use->first / kChunk != lower / kChunk;
    });
  };
  for (const auto& [action, argument] : program) {
    switch (action % 4) {
      case 0:
        for (uint32_t i = 0; i < argument % 300u; ++i) {
          const SaltedId id = slab.Allocate();
          const auto number = static_cast<uint32_t>(id);
          RC_ASSERT(number == used.size() + free.size() || free.contains(number));
          RC_ASSERT(none_free_below(number));
          RC_ASSERT(seen.emplace(number, slab[id].salt).second && slab[id].salt != 0);
          free.erase(number);
          used[number] = slab.Edit(id).value = ++value;
        }
        break;
      case 1:
        for (uint32_t i = 0; i < argument % 300u && !used.empty(); ++i) {
          const auto from = used.lower_bound(argument % slab.capacity());
          release(from == used.end() ? used.begin()->first : from->first);
        }
        break;
      case 2:
        while (used.size() > argument % 16u) release(used.rbegin()->first);
        break;
      default:
        for (uint32_t i = 0; i < argument % 8u; ++i) (void)slab.ShrinkOne();
    }
    slab.CheckInvariants();
    RC_ASSERT(slab.used() == used.size());
    for (const auto& [id, expected] : used) RC_ASSERT(slab[SaltedId{id}].value == expected);
    RC_ASSERT(VisitedIn(slab) == std::vector(used.begin(), used.end()));
  }
  while (slab.ShrinkOne()) {
  }
  std::set<uint32_t> chunks;
  for (const auto& [id, expected] : used) chunks.insert(id / kChunk);
  RC_ASSERT(slab.bytes() <=
            (chunks.size() + 1) * (kChunk * sizeof(SaltedRecord) + 64) + 16 * slab.capacity() / kChunk + 256);
}

RC_GTEST_PROP(SparseArraysProperty, HoldWhatAMapHolds, (const std::vector<std::pair<uint32_t, uint8_t>>& program)) {
  SparseArrays arrays;
  const uint32_t size = *rc::gen::element(1u, 2u, 63u, 64u, 65u, 4096u, 4097u, 1u << 19, 1u << 22);
  SparseArray array{.size = size};
  std::map<uint32_t, uint32_t> model;
  for (const auto& [number, value] : program) {
    arrays.Set(&array, number % size, value);
    model[number % size] = value;
    RC_ASSERT(arrays.nodes_used() * sizeof(std::array<uint32_t, 64>) <= SparseArrays::BytesMax(size));
  }
  std::erase_if(model, [](const auto& entry) { return entry.second == 0; });
  for (const auto& [number, value] : program) {
    const auto found = model.find(number % size);
    RC_ASSERT(arrays.Get(array, number % size) == (found == model.end() ? 0 : found->second));
  }
  // Going down from the end meets each value, the highest first, and nothing else.
  uint32_t end = size;
  for (auto highest = model.rbegin(); highest != model.rend(); ++highest) {
    while (end > highest->first + 1) {
      const uint32_t next = arrays.EndOfSet(array, end);
      RC_ASSERT(next <= end && next > highest->first);
      if (next == end)
        --end;  // Nodes that hold zeros alone are gone over one by one.
      else
        end = next;
    }
    RC_ASSERT(arrays.EndOfSet(array, end) == end);
    --end;
  }
  arrays.Clear(&array);
  RC_ASSERT(arrays.nodes_used() == 0 && arrays.Get(array, 0) == 0);
}

RC_GTEST_PROP(TensorTableProperty, BehavesLikeAMap, (const std::vector<std::pair<uint8_t, bool>>& program)) {
  constexpr JobIndex kJob{3};
  TensorSlab tensors;
  TensorTable table(tensors, 0);
  std::map<uint64_t, TensorIndex> model;
  for (const auto& [id, insert] : program) {
    const TensorKey key{kJob, uint64_t{id} % 2, id};
    const auto found = model.find(id);
    RC_ASSERT(table.Find(key) == (found == model.end() ? kNoTensor : found->second));
    if (insert && found == model.end()) {
      const TensorIndex index = tensors.Allocate();
      tensors.Edit(index).job = kJob;
      tensors.Edit(index).space = key.space;
      tensors.Edit(index).id = id;
      table.Insert(key, index);
      model[id] = index;
    } else if (!insert && found != model.end()) {
      table.Erase(key);
      tensors.Free(found->second);
      model.erase(found);
    }
    RC_ASSERT(table.size() == model.size());
  }
  for (const auto& [id, index] : model) RC_ASSERT(table.Find({kJob, id % 2, id}) == index);
}

// Used only at the hot end the policy is exactly least-recently-used.
RC_GTEST_PROP(RecencyProperty, OrdersByLastUse, (const std::vector<std::pair<uint8_t, uint8_t>>& program)) {
  PieceSlab pieces;
  RecencyPolicy policy(pieces);
  std::vector<PieceId> ids;
  for (int i = 0; i < 16; ++i) {
    ids.push_back(pieces.Allocate());
    pieces.Edit(ids.back()) = Piece{};
  }
  std::vector<PieceId> order;  // Coldest first.
  for (const auto& [which, what] : program) {
    const PieceId id = ids[which % ids.size()];
    const bool listed = pieces[id].has(kListed);
    if (what % 4 == 0 && listed) {
      policy.Remove(id, EvictionOrder::kClean);
      std::erase(order, id);
      continue;
    }
    policy.Use(id);
    std::erase(order, id);
    order.push_back(id);
    if (listed) {
      policy.MoveToHot(id, EvictionOrder::kClean);
    } else {
      policy.Add(id, EvictionOrder::kClean);
    }
  }
  std::vector<PieceId> listed;
  for (PieceId at = policy.Coldest(EvictionOrder::kClean); at != kNoPiece; at = policy.Warmer(at)) listed.push_back(at);
  RC_ASSERT(listed == order);
}

RC_GTEST_PROP(ManifestProperty, NoBytesAreTooStrangeToBeRead, (const std::vector<uint8_t>& bytes, bool with_magic)) {
  std::vector<std::byte> raw(bytes.size());
  std::transform(bytes.begin(), bytes.end(), raw.begin(), [](uint8_t byte) { return std::byte{byte}; });
  if (with_magic && raw.size() >= sizeof(proto::kManifestMagic)) std::memcpy(raw.data(), &proto::kManifestMagic, 8);
  (void)DecodeManifest(raw);  // Must return.
}

RC_GTEST_PROP(ManifestProperty, ADamagedManifestIsNeverDecoded, (uint16_t at, uint8_t flip)) {
  Manifest manifest{.step = 3, .tensors = {}, .keys = {{9, "key"}}};
  manifest.tensors.push_back({.record = {.tensor = 1, .size = 5000, .generation = 1, .piece_count = 1},
                              .pieces = {{.block = 1, .page = 2, .pages = 2, .crc = 3, .generation = 1, .device = 0}}});
  std::vector<std::byte> bytes = EncodeManifest(manifest);
  bytes[at % bytes.size()] ^= std::byte{flip};
  RC_ASSERT(DecodeManifest(bytes).has_value() == (flip == 0));
}

}  // namespace
}  // namespace tier::tiering
