// See need.h.
#include "daemon/tiering/requests/need.h"

#include <algorithm>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {

uint32_t PagesOfPiece(const Tensor& tensor, uint32_t number) {
  return static_cast<uint32_t>(PagesFor(tensor.piece_length(number)));
}

size_t RunsFor(std::span<const base::PageRun> runs, uint32_t pages) {
  size_t count = 0;
  for (uint32_t got = 0; got < pages; ++count) {
    TIER_CHECK(count < runs.size(), "{} of {} pages in {} runs", got, pages, runs.size());
    got += runs[count].pages;
  }
  return count;
}

bool Missing(const Ask& ask, const WaitItem& item, const Tensor& tensor, const Piece& piece) {
  return !piece.ram && NeedsRoom(ask, item, tensor, piece);
}

Need NeedOf(const Tables& tables, const Ask& ask) {
  Need need;
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      const Piece& piece = tables.PieceOf(tensor, k);
      if (!Missing(ask, item, tensor, piece)) continue;
      const uint32_t pages = PagesOfPiece(tensor, k);
      if (!piece.ssd_run) need.fresh_pages += pages;
      (pages == kPagesPerBlock ? need.blocks : need.slot_pages) += pages == kPagesPerBlock ? 1 : pages;
    }
  }
  return need;
}

uint64_t NewlyHeldPages(const Tables& tables, std::span<const WaitItem> items) {
  std::vector<std::pair<TensorIndex, uint32_t>> fresh;
  for (const WaitItem& item : items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (!Held(tables.PieceOf(tensor, k))) fresh.emplace_back(item.tensor.index, k);
    }
  }
  std::sort(fresh.begin(), fresh.end());
  fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
  uint64_t pages = 0;
  for (const auto& [index, number] : fresh) pages += PagesOfPiece(tables.tensors[index], number);
  return pages;
}

}  // namespace tier::tiering
