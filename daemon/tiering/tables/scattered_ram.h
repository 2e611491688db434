// ScatteredRam: the runs of pieces that lie in several places in RAM. Engine thread only.
//
// The idea: such a piece keeps its `ram` as a name: where its first run begins, and the pages of all its runs. So all
// that only counts pages need not know; who touches bytes, or the books of windows and blocks, asks for the runs. A
// piece of whole 2 MiB never lies so.
//
// Invariants: a piece has 1 to kRamRunsMax runs here, in the order of its bytes; none of them belongs to another piece.
// One run is what is left when runs come to lie side by side only by number: it may be split again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/base/page_run.h"
#include "daemon/storage/transfer.h"
#include "daemon/tiering/tables/piece.h"

namespace tier::tiering {

// Each run is a span of a lease, a mapping of the client and a command of a device.
inline constexpr uint32_t kRamRunsMax = 4;

class ScatteredRam {
 public:
  // REQUIRES: `ram` names a piece that lies here.
  std::span<const base::PageRun> RunsOf(base::PageRun ram) const { return Find(ram).runs; }
  PieceId At(base::PageRun run) const;  // The piece whose run this is. kNoPiece: none of those here.

  // Returns the name of the piece.
  base::PageRun Add(PieceId id, std::span<const base::PageRun> runs);
  // The piece lies here no longer. Returns its runs.
  std::vector<base::PageRun> Remove(base::PageRun ram);
  // The run `from` of the piece has moved. Returns the name of the piece from now on.
  base::PageRun Replace(base::PageRun ram, base::PageRun from, base::PageRun to);
  // The run becomes two, of `pages` and of the rest. REQUIRES: fewer than kRamRunsMax runs.
  void Split(base::PageRun ram, base::PageRun run, uint32_t pages);

  // How many copies to other places are under way for it.
  uint32_t moves(base::PageRun ram) const { return Find(ram).moves; }
  void AddMove(base::PageRun ram) { ++Edit(ram).moves; }
  void EndMove(base::PageRun ram);
  void EndMoves(base::PageRun ram) { Edit(ram).moves = 0; }

  // Where a transfer finds its runs: valid until the piece is removed or the next call for it.
  std::span<const storage::MemoryRun> Keep(base::PageRun ram, std::vector<storage::MemoryRun> memory) {
    return Edit(ram).memory = std::move(memory);
  }

  size_t size() const { return pieces_.size(); }
  uint64_t bytes() const;  // About what it takes.
  void CheckInvariants() const;

 private:
  struct Entry {
    PieceId piece = kNoPiece;
    uint32_t moves = 0;
    std::vector<base::PageRun> runs;
    std::vector<storage::MemoryRun> memory;
  };
  static uint64_t KeyOf(base::PageRun run) { return uint64_t{run.block} * kPagesPerBlock + run.page; }
  static base::PageRun NameOf(std::span<const base::PageRun> runs);
  const Entry& Find(base::PageRun ram) const;
  Entry& Edit(base::PageRun ram) { return const_cast<Entry&>(Find(ram)); }

  std::unordered_map<uint64_t, Entry> pieces_;    // By where the first run begins.
  std::unordered_map<uint64_t, PieceId> places_;  // By where each run begins.
};

}  // namespace tier::tiering
