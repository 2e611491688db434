// What the churn measures: an allocator of pages, as the pool and the classical ones beside it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/base/page_run.h"

namespace tier::churn {

// Where a tensor lies: one range of pages, or runs of the pool.
struct Place {
  uint64_t first = 0;
  uint64_t pages = 0;  // As taken: what was asked for, rounded as the allocator does it.
  std::vector<base::PageRun> runs;
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view name() const = 0;
  // False: nothing has changed. REQUIRES: pages > 0.
  [[nodiscard]] virtual bool TryAllocate(uint64_t pages, Place* place) = 0;
  virtual void Free(const Place& place) = 0;  // REQUIRES: as it was given out, and not freed since.
  // Pages that nobody else can have: those given out, with what rounding and fragments inside take.
  virtual uint64_t held_pages() const = 0;
  uint64_t arena_pages() const { return arena_pages_; }

 protected:
  explicit Allocator(uint64_t arena_pages) : arena_pages_(arena_pages) {}

 private:
  uint64_t arena_pages_;
};

}  // namespace tier::churn
