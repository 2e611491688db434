// ClearedBlocks: slot blocks of one device that are being emptied, so that each becomes a free block again.
//
// Their free pages, and those that become free, are set aside: they stay allocated in the device's BlockPool, so
// nothing new is placed there. A block of which all pages are aside is given back as a whole; so is what is aside of
// one that is given up. Not thread-safe. Invariant: pages() = Σ pages of the runs aside, all of them allocated in the
// pool.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/base/block_pool.h"
#include "daemon/base/page_run.h"

namespace tier::storage {

class ClearedBlocks {
 public:
  bool empty() const { return blocks_.empty(); }
  bool Contains(uint32_t block) const { return blocks_.contains(block); }
  uint64_t pages() const { return pages_; }
  uint64_t cleared() const { return cleared_; }  // Blocks that became free so, since the start.

  // False: it holds no slots. REQUIRES: it is not contained.
  [[nodiscard]] bool Begin(uint32_t block, base::BlockPool* pool);
  // A run of the pool is no longer used: it goes aside, or back to the pool.
  void GiveBack(base::PageRun run, base::BlockPool* pool);
  void End(uint32_t block, base::BlockPool* pool);  // Nothing, if it is not contained.
  void EndAll(base::BlockPool* pool);
  void CheckInvariants() const;

 private:
  struct Aside {
    std::vector<base::PageRun> runs;
    uint32_t pages = 0;
  };
  void SetAside(Aside& block, base::PageRun run);
  void Release(const Aside& block, base::BlockPool* pool);

  std::map<uint32_t, Aside> blocks_;
  uint64_t pages_ = 0;
  uint64_t cleared_ = 0;
};

}  // namespace tier::storage
