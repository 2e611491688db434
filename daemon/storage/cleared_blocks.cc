// See cleared_blocks.h.
#include "daemon/storage/cleared_blocks.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace tier::storage {

void ClearedBlocks::SetAside(Aside& block, base::PageRun run) {
  block.runs.push_back(run);
  block.pages += run.pages;
  pages_ += run.pages;
}

void ClearedBlocks::Release(const Aside& block, base::BlockPool* pool) {
  TIER_CHECK(pages_ >= block.pages, "{} pages are aside, {} of a block", pages_, block.pages);
  pages_ -= block.pages;
  for (const base::PageRun run : block.runs) pool->Free(run);
}

bool ClearedBlocks::Begin(uint32_t block, base::BlockPool* pool) {
  std::vector<base::PageRun> used;
  pool->ListUsed(block, &used);
  if (used.empty() || used.front().whole_block()) return false;
  const auto [entry, fresh] = blocks_.try_emplace(block);
  TIER_CHECK(fresh, "block {} is being cleared", block);
  std::ranges::sort(used, {}, &base::PageRun::page);
  used.push_back({.block = block, .page = kPagesPerBlock, .pages = 0});
  uint32_t at = 0;
  for (const base::PageRun run : used) {
    const base::PageRun hole{
        .block = block, .page = static_cast<uint16_t>(at), .pages = static_cast<uint16_t>(run.page - at)};
    at = uint32_t{run.page} + run.pages;
    if (hole.pages == 0) continue;
    const bool taken = pool->TryTake(hole);
    TIER_CHECK(taken, "block {} page {} + {} is not free", block, hole.page, hole.pages);
    SetAside(entry->second, hole);
  }
  return true;
}

void ClearedBlocks::GiveBack(base::PageRun run, base::BlockPool* pool) {
  const auto found = blocks_.find(run.block);
  if (found == blocks_.end()) return pool->Free(run);
  SetAside(found->second, run);
  if (found->second.pages < kPagesPerBlock) return;
  TIER_CHECK(found->second.pages == kPagesPerBlock, "{} pages of block {}", found->second.pages, run.block);
  ++cleared_;
  End(run.block, pool);
}

void ClearedBlocks::End(uint32_t block, base::BlockPool* pool) {
  const auto node = blocks_.extract(block);
  if (!node.empty()) Release(node.mapped(), pool);
}

void ClearedBlocks::EndAll(base::BlockPool* pool) {
  while (!blocks_.empty()) End(blocks_.begin()->first, pool);
}

void ClearedBlocks::CheckInvariants() const {
  uint64_t sum = 0;
  for (const auto& [number, block] : blocks_) {
    uint32_t pages = 0;
    for (const base::PageRun run : block.runs) {
      TIER_CHECK(run.block == number, "block {} is listed for block {}", run.block, number);
      pages += run.pages;
    }
    TIER_CHECK(pages == block.pages && pages < kPagesPerBlock, "block {}: listed {} pages aside, counted {}", number,
               pages, block.pages);
    sum += pages;
  }
  TIER_CHECK(sum == pages_, "listed {} pages aside, counted {}", sum, pages_);
}

}  // namespace tier::storage
