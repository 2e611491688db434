// See named_places.h.
#include "tests/support/tiering/named_places.h"

#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/index_codec.h"

namespace tier::tiering::testing {
namespace {

struct Name {
  base::PageRun run;
  uint64_t tensor;
  const char* by;
};

// By block: a run lies within one.
class Places {
 public:
  void Add(uint16_t device, base::PageRun run, uint64_t tensor, const char* by) {
    if (run) blocks_[KeyOf(device, run)].push_back({run, tensor, by});
  }
  std::optional<std::string> NamerOf(uint16_t device, base::PageRun run) const {
    const auto block = blocks_.find(KeyOf(device, run));
    if (block == blocks_.end()) return std::nullopt;
    for (const Name& name : block->second) {
      const bool meets = name.run.page < run.page + run.pages && run.page < name.run.page + name.run.pages;
      if (meets) return fmt::format("{} names for tensor {:#x}", name.by, name.tensor);
    }
    return std::nullopt;
  }

 private:
  static uint64_t KeyOf(uint16_t device, base::PageRun run) { return uint64_t{device} << 32 | run.block; }
  std::unordered_map<uint64_t, std::vector<Name>> blocks_;
};

struct NamedPlaces {
  Places ssd;
  Places ram;

  void AddIndex(const storage::testing::FakeIndex& index) {
    const auto tensors = ReadIndex(index);
    TIER_CHECK(tensors.has_value(), "{}", tensors.error().message);
    const bool full = index.staged_count() != 0;
    for (const IndexedTensor& tensor : *tensors) {
      for (const proto::IndexPieceRecord& piece : tensor.pieces) {
        const base::PageRun extent{.block = piece.ssd_block, .page = piece.ssd_page, .pages = piece.ssd_pages};
        ssd.Add(piece.ssd_device, extent, tensor.key.tensor, "the committed index");
        const base::PageRun memory{.block = piece.ram_block, .page = piece.ram_page, .pages = piece.ram_pages};
        if (!full) ram.Add(0, memory, tensor.key.tensor, "the committed index");
      }
    }
  }
  void AddManifest(const std::vector<std::byte>& bytes) {
    const auto manifest = DecodeManifest(bytes);
    if (!manifest) return;  // A test damaged it.
    for (const ManifestTensor& tensor : manifest->tensors) {
      for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
        const base::PageRun extent{.block = piece.block, .page = piece.page, .pages = piece.pages};
        ssd.Add(piece.device, extent, tensor.record.tensor, "a manifest");
      }
    }
  }
};

}  // namespace

std::optional<std::string> FindOverwrite(const storage::testing::FakeTransferPort& transfers,
                                         const storage::testing::FakeIndex& index,
                                         const storage::testing::FakeManifestStore& manifests) {
  const auto moves = transfers.moves();
  if (moves.empty()) return std::nullopt;
  NamedPlaces named;
  named.AddIndex(index);
  manifests.ForEachThatMayBeFound([&](const std::vector<std::byte>& manifest) { named.AddManifest(manifest); });
  for (const auto& move : moves) {
    const bool write = move.direction == storage::Direction::kWrite;
    const base::PageRun run = write ? move.extent.run : move.memory;
    const auto namer = write ? named.ssd.NamerOf(move.extent.device, run) : named.ram.NamerOf(0, run);
    if (!namer) continue;
    return fmt::format("a {} goes to block {} page {} + {}, which {}", write ? "write" : "read", run.block, run.page,
                       run.pages, *namer);
  }
  return std::nullopt;
}

}  // namespace tier::tiering::testing
