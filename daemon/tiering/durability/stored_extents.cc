// See stored_extents.h.
#include "daemon/tiering/durability/stored_extents.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/storage/extent_list.h"

namespace tier::tiering {
namespace {

// False: a part of it is of another manifest, or no place on a device. The rest is taken.
bool TakeExtent(Tables& tables, storage::Extent extent, ManifestHolds* holds) {
  if (tables.ports.extents.Take(extent)) {
    holds->Adopt(extent);
    return true;
  }
  if (extent.device >= tables.ports.extents.device_count() || extent.run.pages < 2) return false;
  storage::Extent first = extent;
  first.run.pages /= 2;
  extent.run.page += first.run.pages;
  extent.run.pages -= first.run.pages;
  (void)TakeExtent(tables, first, holds);  // The answer is known: not all of it can be taken.
  (void)TakeExtent(tables, extent, holds);
  return false;
}

// The same of an extent that may be scattered.
bool TakeExtent(Tables& tables, storage::Extent extent, std::span<const base::PageRun> runs, ManifestHolds* holds) {
  if (!extent.scattered) return TakeExtent(tables, extent, holds);
  if (tables.ports.extents.Take(extent, runs)) {
    holds->Adopt(extent);
    return true;
  }
  for (const base::PageRun run : runs) (void)TakeExtent(tables, {.run = run, .device = extent.device}, holds);
  return false;
}

}  // namespace

Result<Manifest> ReadManifest(const Tables& tables, const std::string& key) {
  const Result<std::vector<std::byte>> bytes = tables.ports.manifests->Load(key);
  if (bytes) return DecodeManifest(*bytes, tables.ports.manifests->device_numbers());
  if (bytes.error().code != Code::kNotFound) return std::unexpected(bytes.error());
  return Fail(Code::kCorrupt,
              fmt::format("the index has lost the manifest of job {}, and has only the list of its extents", key));
}

Status TakeExtents(Tables& tables, const Manifest& manifest, ManifestHolds* holds) {
  Status status;
  for (const ManifestTensor& tensor : manifest.tensors) {
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
      if (TakeExtent(tables, ExtentOf(piece), RunsIn(manifest, piece), holds)) continue;
      status = Fail(Code::kCorrupt,
                    fmt::format("the manifest gives device {} block {} page {} + {} to tensor {:#x}: it is of another "
                                "tensor or manifest, or no place on the device",
                                piece.device, piece.block, piece.page, piece.pages, tensor.record.tensor));
    }
  }
  return status;
}

Status TakeListedExtents(Tables& tables, const std::string& key, ManifestHolds* holds) {
  const auto bytes = tables.ports.manifests->LoadExtents(key);
  if (!bytes) return std::unexpected(bytes.error());
  const auto runs = storage::DecodeExtentList(*bytes);
  if (!runs) return std::unexpected(runs.error());
  const storage::DeviceNumbers& numbers = tables.ports.manifests->device_numbers();
  const storage::ExtentStore& extents = tables.ports.extents;
  for (proto::ExtentListRun run : *runs) {
    run.device = numbers.DeviceOf(run.device);
    // No more of it than the device has: the start must not take long over what is no place.
    const uint64_t pages =
        run.device < extents.device_count() ? extents.space(run.device).capacity / kPageSize : uint64_t{0};
    run.pages = static_cast<uint32_t>(std::min<uint64_t>(run.pages, pages - std::min(pages, run.first_page)));
    // What another manifest names is held by that one.
    storage::ForEachExtent(run, [&](storage::Extent extent) { (void)TakeExtent(tables, extent, holds); });
  }
  return {};
}

void CloseToUnknownExtents(Tables& tables) {
  const auto& unknown = tables.manifests.extents_unknown();
  if (unknown.empty()) return tables.ports.extents.CloseToWrites({});
  const auto& [key, error] = *unknown.begin();
  tables.ports.extents.CloseToWrites(fmt::format(
      "nothing is written to SSD: for {} {} it is unknown where their persisted tensors lie, first job {} "
      "({}); restore the index from a copy, or give up what the job persisted: tierctl job remove --purge {}",
      unknown.size(), unknown.size() == 1 ? "job" : "jobs", key, error.message, key));
}

}  // namespace tier::tiering
