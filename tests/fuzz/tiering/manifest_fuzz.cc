// Fuzz entry: manifests of named jobs as a damaged or foreign index may hold them. An input is
//   byte 0  bit 0: set size and checksum right, so that a change reaches the records behind them
//   then    the bytes of a manifest (proto/manifest_record.h)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/message.h"

namespace tier::tiering {
namespace {

void Seal(std::vector<std::byte>* bytes) {
  proto::ManifestHeader header{};
  constexpr size_t kSize = proto::kManifestHeaderSizeBefore4;
  if (bytes->size() < kSize) return;
  std::memcpy(&header, bytes->data(), kSize);
  header.size = bytes->size();
  header.crc = 0;
  std::memcpy(bytes->data(), &header, kSize);
  header.crc = storage::Crc32c(*bytes);
  std::memcpy(bytes->data(), &header, kSize);
}

// What the engine relies on when it builds tensors of it.
void CheckTensor(const Manifest& manifest, const ManifestTensor& tensor) {
  const uint64_t size = tensor.record.size;
  TIER_CHECK(size != 0 && size <= kPiecesPerTensorMax * kBlockSize, "a tensor of {} bytes", size);
  TIER_CHECK(tensor.pieces.size() == PieceCountOf(size), "{} pieces of {} bytes", tensor.pieces.size(), size);
  uint64_t pages = 0;
  for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
    const base::PageRun one{.block = piece.block, .page = piece.page, .pages = piece.pages};
    const auto several = RunsIn(manifest, piece);
    for (const base::PageRun run : several.empty() ? std::span(&one, 1) : several) {
      TIER_CHECK(run.pages != 0 && uint32_t{run.page} + run.pages <= kPagesPerBlock, "pages {} + {}", run.page,
                 run.pages);
      pages += run.pages;
    }
  }
  TIER_CHECK(pages == PagesFor(size), "{} pages of {} bytes", pages, size);
}

void CheckAnswer(const std::vector<std::byte>& bytes, const Result<Manifest>& decoded) {
  if (!decoded) {
    const Code code = decoded.error().code;
    TIER_CHECK(code == Code::kCorrupt || code == Code::kVersion, "code {}", static_cast<int>(code));
    TIER_CHECK(!decoded.error().message.empty(), "a refusal without a word");
    return;
  }
  for (const ManifestTensor& tensor : decoded->tensors) CheckTensor(*decoded, tensor);
  for (const ManifestKey& key : decoded->keys) {
    TIER_CHECK(key.id != 0 && !key.key.empty() && key.key.size() <= proto::kKeyLengthMax, "key {}", key.id);
  }
  // Nothing of it was overlooked: written again it is the same, except for the version that is written today.
  std::vector<std::byte> again = EncodeManifest(*decoded);
  uint32_t version = 0;
  std::memcpy(&version, bytes.data() + offsetof(proto::ManifestHeader, version), sizeof(version));
  if (version < 4) {
    const auto run_count = again.begin() + ptrdiff_t{proto::kManifestHeaderSizeBefore4};
    again.erase(run_count, again.begin() + sizeof(proto::ManifestHeader));
  }
  std::memcpy(again.data() + offsetof(proto::ManifestHeader, version),
              bytes.data() + offsetof(proto::ManifestHeader, version), sizeof(proto::ManifestHeader::version));
  Seal(&again);
  TIER_CHECK(again == bytes, "{} bytes, written again {}", bytes.size(), again.size());
}

}  // namespace
}  // namespace tier::tiering

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tier::tiering;
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> bytes(input.begin(), input.end());
  if ((data[0] & 1) != 0) Seal(&bytes);
  CheckAnswer(bytes, DecodeManifest(bytes));
  return 0;
}
