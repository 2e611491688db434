// The tables against plain models, by random programs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/pieces/recency.h"
#include "daemon/tiering/tables/interval_set.h"
#include "daemon/tiering/tables/job_state.h"
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

RC_GTEST_PROP(TensorTableProperty, BehavesLikeAMap, (const std::vector<std::pair<uint8_t, bool>>& program)) {
  JobState job;
  job.id = JobId{3};
  TensorSlab tensors;
  TensorTable table(tensors, 0);
  std::map<uint64_t, TensorSlot> model;
  for (const auto& [id, insert] : program) {
    const TensorKey key{3, uint64_t{id} % 2, id};
    const auto found = model.find(id);
    RC_ASSERT(table.Find(key) == (found == model.end() ? kNoTensor : found->second));
    if (insert && found == model.end()) {
      const TensorSlot slot = tensors.Allocate();
      tensors[slot].job = &job;
      tensors[slot].space = key.space;
      tensors[slot].id = id;
      table.Insert(key, slot);
      model[id] = slot;
    } else if (!insert && found != model.end()) {
      table.Erase(key);
      tensors.Free(found->second);
      model.erase(found);
    }
    RC_ASSERT(table.size() == model.size());
  }
  for (const auto& [id, slot] : model) RC_ASSERT(table.Find({3, id % 2, id}) == slot);
}

// Used only at the hot end the policy is exactly least-recently-used.
RC_GTEST_PROP(RecencyProperty, OrdersByLastUse, (const std::vector<std::pair<uint8_t, uint8_t>>& program)) {
  PieceSlab pieces;
  RecencyPolicy policy(pieces);
  std::vector<PieceId> ids;
  for (int i = 0; i < 16; ++i) {
    ids.push_back(pieces.Allocate());
    pieces[ids.back()] = Piece{};
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
