// Many tensors created, sealed and freed by few calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/bench/client.h"

namespace tier::bench {

inline constexpr size_t kBatch = 512;  // Tensors of one call at most.

// Creates and seals them in this order. Their bytes are not defined.
inline void MakeTensors(const BenchClient& client, std::span<const tier_range> ranges) {
  std::vector<tier_lease*> leases(std::min(kBatch, ranges.size()));
  while (!ranges.empty()) {
    const auto now = ranges.first(std::min(kBatch, ranges.size()));
    Require(tier_create_batch(client.get(), now.data(), now.size(), 0, 0, leases.data()), "create");
    Require(tier_release_batch(leases.data(), now.size(), 0), "seal");
    ranges = ranges.subspan(now.size());
  }
}

inline void MakeTensors(const BenchClient& client, uint64_t first, size_t count, uint64_t bytes) {
  std::vector<tier_range> ranges;
  ranges.reserve(count);
  for (size_t i = 0; i < count; ++i) ranges.push_back({first + i, 0, 0, bytes});
  MakeTensors(client, ranges);
}

inline void FreeTensors(const BenchClient& client, std::span<const uint64_t> ids) {
  while (!ids.empty()) {
    const auto now = ids.first(std::min(kBatch, ids.size()));
    Require(tier_free_batch(client.get(), now.data(), now.size(), 0), "free");
    ids = ids.subspan(now.size());
  }
}

inline void FreeTensors(const BenchClient& client, uint64_t first, size_t count) {
  std::vector<uint64_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = first + i;
  FreeTensors(client, ids);
}

}  // namespace tier::bench
