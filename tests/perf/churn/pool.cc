#include "tests/perf/churn/pool.h"

#include "daemon/base/block_pool.h"

namespace tier::churn {
namespace {

constexpr uint32_t kTailRunsMax = 4;  // As the engine has it (kRamRunsMax).

class Pool final : public Allocator {
 public:
  Pool(uint64_t arena_pages, bool tails) : Allocator(arena_pages), tails_(tails) {
    pool_.AddRegion(0, static_cast<uint32_t>(arena_pages / kPagesPerBlock), base::RegionUse::kSlotsFirst);
  }
  std::string_view name() const override { return tails_ ? "tierd: blocks and slots" : "blocks alone"; }
  bool TryAllocate(uint64_t pages, Place* place) override {
    place->runs.clear();
    auto blocks = static_cast<uint32_t>(pages / kPagesPerBlock);
    auto tail = static_cast<uint32_t>(pages % kPagesPerBlock);
    if (!tails_ && tail != 0) {
      ++blocks;
      tail = 0;
    }
    place->pages = uint64_t{blocks} * kPagesPerBlock + tail;
    return pool_.TryAllocate(blocks, tail, &place->runs, kTailRunsMax);
  }
  void Free(const Place& place) override {
    for (const base::PageRun& run : place.runs) pool_.Free(run);
  }
  // A block with one slot in it serves other slots, but no whole block: all of it counts.
  uint64_t held_pages() const override { return arena_pages() - pool_.free_block_count() * kPagesPerBlock; }

 private:
  bool tails_;
  base::BlockPool pool_;
};

}  // namespace

std::unique_ptr<Allocator> MakePool(uint64_t arena_pages, bool tails) {
  return std::make_unique<Pool>(arena_pages, tails);
}

}  // namespace tier::churn
