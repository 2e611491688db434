// TriedPlaces: places of a device that failed once, and are in use again: one more failure there is of the place.
//
// Ordered by first page, so that a run costs a search and its hits, however many places there are: each write of a
// scattered extent asks for up to 512 runs. Engine thread. Invariant: places do not overlap, and are kTriedPlacesMax at
// most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "daemon/base/block_pool.h"

namespace tier::storage {

inline constexpr size_t kTriedPlacesMax = 4096;

// Of the run's device.
inline uint64_t FirstPage(base::PageRun run) { return uint64_t{run.block} * kPagesPerBlock + run.page; }

class TriedPlaces {
 public:
  // What it overlaps is erased. Beyond the maximum some other place is, which then needs two failures again.
  void Add(base::PageRun place);
  // Erases every place that has pages of the run. False: there was none.
  bool Erase(base::PageRun run);
  bool empty() const { return places_.empty(); }
  size_t size() const { return places_.size(); }
  void CheckInvariants() const;

 private:
  std::map<uint64_t, uint32_t> places_;  // First page → pages.
};

}  // namespace tier::storage
