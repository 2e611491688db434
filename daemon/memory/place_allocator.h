// PlaceAllocator: where windows lie in the one address space that every client reserves: byte ranges of a power of two,
// at multiples of their own size. It is also the number space of the engine: block = place / 2 MiB.
//
// The idea is that of a buddy allocator. A request takes the lowest of the smallest free ranges that hold it, and
// halves that until it fits; a range that comes back is joined with its free half ("buddy") up to the largest window. A
// place is free again only when no session maps what lay there.
//
// The space has twice the arena. So the smallest size never fails, and a larger one that fails is halved until it does
// not (Arena::StartCreate). Two sizes never fail: let the arena have M bytes, a multiple of the large size B, and let
// the space be M / B × 2 groups of B bytes. Small windows open a new group only when every group that holds small ones
// is full of them, as a smaller free range is always preferred: at that moment these groups hold no more than the
// arena, so there are never more than M / B of them. A small window fails only where all groups are full, which is
// twice the arena. A large one fails only where no group is empty: then the other M / B or more groups hold large
// windows, and those alone are the whole arena. For several sizes never to fail the space would have to be (1 +
// log2(largest / smallest) / 2) times the arena (Robson 1971), and all tables that go by place as much larger; to fail
// takes a sequence made for it, since small windows keep to groups that have some.
//
// Pure bookkeeping; not thread-safe. What is taken is what is not free: who took it knows its size. Invariant: free
// ranges do not overlap, all else is taken, and no two free buddies stand apart.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "proto/units.h"

namespace tier::memory {

class PlaceAllocator {
 public:
  // REQUIRES: `largest_bytes` is a power of two within the sizes of windows; `space_bytes` is a multiple of it.
  PlaceAllocator(uint64_t space_bytes, uint64_t largest_bytes);

  // Byte offset of the place. Empty: there is none for this size. REQUIRES: a power of two within the sizes of windows,
  // at most the largest.
  [[nodiscard]] std::optional<uint64_t> TryTake(uint64_t size_bytes);
  void Free(uint64_t place, uint64_t size_bytes);  // REQUIRES: taken, with this size.

  uint64_t space_bytes() const { return space_bytes_; }
  uint64_t taken_bytes() const { return taken_bytes_; }
  void CheckInvariants() const;  // Aborts with figures.

 private:
  static size_t OrderOf(uint64_t size_bytes);
  bool AnyFree(uint64_t place, size_t order) const;
  static uint64_t SizeOf(size_t order) { return kWindowSizeMin << order; }

  uint64_t space_bytes_;
  std::vector<std::set<uint64_t>> free_;  // Places by order: ranges of kWindowSizeMin << order bytes.
  uint64_t taken_bytes_ = 0;
};

}  // namespace tier::memory
