// See scattered_ram.h.
#include "daemon/tiering/tables/scattered_ram.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {

base::PageRun ScatteredRam::NameOf(std::span<const base::PageRun> runs) {
  base::PageRun name = runs.front();
  for (const base::PageRun run : runs.subspan(1)) name.pages = static_cast<uint16_t>(name.pages + run.pages);
  return name;
}

const ScatteredRam::Entry& ScatteredRam::Find(base::PageRun ram) const {
  const auto found = pieces_.find(KeyOf(ram));
  TIER_CHECK(found != pieces_.end(), "no scattered piece begins at block {} page {}", ram.block, ram.page);
  return found->second;
}

PieceId ScatteredRam::At(base::PageRun run) const {
  const auto found = places_.find(KeyOf(run));
  return found == places_.end() ? kNoPiece : found->second;
}

base::PageRun ScatteredRam::Add(PieceId id, std::span<const base::PageRun> runs) {
  TIER_CHECK(!runs.empty() && runs.size() <= kRamRunsMax, "piece {} in {} runs", Value(id), runs.size());
  for (const base::PageRun run : runs) {
    const bool fresh = places_.emplace(KeyOf(run), id).second;
    TIER_CHECK(fresh && !run.whole_block(), "piece {}: {} pages of block {} are taken", Value(id), run.pages,
               run.block);
  }
  Entry& entry = pieces_[KeyOf(runs.front())];
  entry.piece = id;
  entry.runs.assign(runs.begin(), runs.end());
  return NameOf(runs);
}

std::vector<base::PageRun> ScatteredRam::Remove(base::PageRun ram) {
  std::vector<base::PageRun> runs = std::move(Edit(ram).runs);
  pieces_.erase(KeyOf(ram));
  for (const base::PageRun run : runs) places_.erase(KeyOf(run));
  return runs;
}

base::PageRun ScatteredRam::Replace(base::PageRun ram, base::PageRun from, base::PageRun to) {
  auto node = pieces_.extract(KeyOf(ram));
  TIER_CHECK(!node.empty() && from.pages == to.pages, "{} pages of block {} move to {}", from.pages, from.block,
             to.pages);
  Entry& entry = node.mapped();
  const auto run = std::ranges::find(entry.runs, from);
  TIER_CHECK(run != entry.runs.end(), "piece {} has no run in block {} page {}", Value(entry.piece), from.block,
             from.page);
  *run = to;
  places_.erase(KeyOf(from));
  const bool fresh = places_.emplace(KeyOf(to), entry.piece).second;
  TIER_CHECK(fresh, "block {} page {} is another piece's", to.block, to.page);
  const base::PageRun name = NameOf(entry.runs);
  node.key() = KeyOf(name);
  pieces_.insert(std::move(node));
  return name;
}

void ScatteredRam::Split(base::PageRun ram, base::PageRun run, uint32_t pages) {
  Entry& entry = Edit(ram);
  const auto at = std::ranges::find(entry.runs, run);
  TIER_CHECK(at != entry.runs.end() && pages != 0 && pages < run.pages && entry.runs.size() < kRamRunsMax,
             "{} of {} pages in block {}, {} runs", pages, run.pages, run.block, entry.runs.size());
  const base::PageRun rest{run.block, static_cast<uint16_t>(run.page + pages),
                           static_cast<uint16_t>(run.pages - pages)};
  at->pages = static_cast<uint16_t>(pages);
  entry.runs.insert(at + 1, rest);
  places_.emplace(KeyOf(rest), entry.piece);
}

void ScatteredRam::EndMove(base::PageRun ram) {
  Entry& entry = Edit(ram);
  TIER_CHECK(entry.moves != 0, "piece {} does not move", Value(entry.piece));
  --entry.moves;
}

uint64_t ScatteredRam::bytes() const {
  constexpr uint64_t kNode = 4 * sizeof(void*);  // What a node of a hash table takes beside its value.
  const uint64_t memory = kRamRunsMax * (sizeof(base::PageRun) + sizeof(storage::MemoryRun));
  return pieces_.size() * (sizeof(Entry) + kNode + memory) + places_.size() * (2 * sizeof(uint64_t) + kNode);
}

void ScatteredRam::CheckInvariants() const {
  size_t runs = 0;
  for (const auto& [first, entry] : pieces_) {
    TIER_CHECK(!entry.runs.empty() && entry.runs.size() <= kRamRunsMax && KeyOf(entry.runs.front()) == first,
               "piece {} in {} runs", Value(entry.piece), entry.runs.size());
    TIER_CHECK(entry.moves <= entry.runs.size(), "piece {}: {} moves of {} runs", Value(entry.piece), entry.moves,
               entry.runs.size());
    for (const base::PageRun run : entry.runs) {
      TIER_CHECK(At(run) == entry.piece, "piece {} is not found in block {} page {}", Value(entry.piece), run.block,
                 run.page);
    }
    runs += entry.runs.size();
  }
  TIER_CHECK(runs == places_.size(), "{} runs, {} places", runs, places_.size());
}

}  // namespace tier::tiering
