// See named_places.h.
#include "tests/support/tiering/named_places.h"

#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/tiering/index_codec.h"
#include "daemon/tiering/manifest_codec.h"

namespace tier::tiering::testing {
namespace {

// By block: an extent lies within one.
class NamedPlaces {
 public:
  void Add(storage::Extent extent, uint64_t tensor, const char* by) {
    if (extent) blocks_[KeyOf(extent)].push_back({extent.run, tensor, by});
  }
  void AddIndex(const storage::Index& index) {
    const auto tensors = ReadIndex(index);
    TIER_CHECK(tensors.has_value(), "{}", tensors.error().message);
    for (const IndexedTensor& tensor : *tensors) {
      for (const proto::IndexPieceRecord& piece : tensor.pieces) {
        Add({.run = {.block = piece.ssd_block, .page = piece.ssd_page, .pages = piece.ssd_pages},
             .device = piece.ssd_device},
            tensor.key.tensor, "the committed index");
      }
    }
  }
  void AddManifest(const std::vector<std::byte>& bytes) {
    const auto manifest = DecodeManifest(bytes);
    if (!manifest) return;  // A test damaged it.
    for (const ManifestTensor& tensor : manifest->tensors) {
      for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
        Add({.run = {.block = piece.block, .page = piece.page, .pages = piece.pages}, .device = piece.device},
            tensor.record.tensor, "a manifest");
      }
    }
  }
  std::optional<std::string> NamerOf(storage::Extent extent) const {
    const auto block = blocks_.find(KeyOf(extent));
    if (block == blocks_.end()) return std::nullopt;
    for (const Name& name : block->second) {
      const bool meets =
          name.run.page < extent.run.page + extent.run.pages && extent.run.page < name.run.page + name.run.pages;
      if (meets) return fmt::format("{} names for tensor {:#x}", name.by, name.tensor);
    }
    return std::nullopt;
  }

 private:
  struct Name {
    base::PageRun run;
    uint64_t tensor;
    const char* by;
  };
  static uint64_t KeyOf(storage::Extent extent) { return uint64_t{extent.device} << 32 | extent.run.block; }
  std::unordered_map<uint64_t, std::vector<Name>> blocks_;
};

}  // namespace

std::optional<std::string> FindOverwrite(const storage::testing::FakeTransferPort& transfers,
                                         const storage::testing::FakeIndex& index,
                                         const storage::testing::FakeManifestStore& manifests) {
  const std::vector<storage::Extent> writes = transfers.writes();
  if (writes.empty()) return std::nullopt;
  NamedPlaces named;
  named.AddIndex(index);
  manifests.ForEachThatMayBeFound([&](const std::vector<std::byte>& manifest) { named.AddManifest(manifest); });
  for (const storage::Extent& extent : writes) {
    const auto namer = named.NamerOf(extent);
    if (!namer) continue;
    return fmt::format("a write goes to device {} block {} page {} + {}, which {}", extent.device, extent.run.block,
                       extent.run.page, extent.run.pages, *namer);
  }
  return std::nullopt;
}

}  // namespace tier::tiering::testing
