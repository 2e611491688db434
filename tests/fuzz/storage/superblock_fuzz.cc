// Fuzz entry: label areas as somebody else may have left them. An input is a compact description, so that mutations
// reach fields and not a megabyte of zeros:
//   byte 0        bit 0, 1: seal copy A, B with a right checksum; bit 2, 3: leave copy A, B out
//   2 × 104 bytes the fields of copy A and of copy B, as in proto/disk.h
//   then          4 bytes each: a 24-bit offset in the label area and the byte that is put there
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/storage/superblock.h"

namespace tier::storage {
namespace {

constexpr size_t kFieldsSize = offsetof(proto::Superblock, reserved);

void PlaceCopy(std::span<const uint8_t> fields, bool seal, std::byte* at) {
  proto::Superblock copy{};
  std::memcpy(static_cast<void*>(&copy), fields.data(), fields.size());
  if (seal) SealSuperblock(&copy);
  std::memcpy(at, &copy, sizeof copy);
}

std::vector<std::byte> BuildLabel(std::span<const uint8_t> input) {
  std::vector<std::byte> label(proto::kLabelAreaSize);
  if (input.empty()) return label;
  const uint8_t flags = input[0];
  input = input.subspan(1);
  for (size_t copy = 0; copy < 2; ++copy) {
    const auto fields = input.first(std::min(input.size(), kFieldsSize));
    input = input.subspan(fields.size());
    if ((flags & (4u << copy)) != 0) continue;
    PlaceCopy(fields, (flags & (1u << copy)) != 0, label.data() + proto::kSuperblockOffsets[copy]);
  }
  for (; input.size() >= 4; input = input.subspan(4)) {
    const size_t offset = (size_t{input[0]} | size_t{input[1]} << 8 | size_t{input[2]} << 16) % label.size();
    label[offset] = std::byte{input[3]};
  }
  return label;
}

void CheckAnswer(std::span<const std::byte> label, const Result<proto::Superblock>& found) {
  if (!found) {
    const Code code = found.error().code;
    TIER_CHECK(code == Code::kNotFound || code == Code::kInvalid || code == Code::kCorrupt || code == Code::kVersion,
               "code {}", static_cast<int>(code));
    return;
  }
  TIER_CHECK(found->data_offset + found->block_count * found->block_size <= found->device_size, "{} blocks in {} bytes",
             found->block_count, found->device_size);
  TIER_CHECK(found->commit != 0 && found->block_count <= proto::kDiskBlocksMax, "commit {}", found->commit);
  for (const uint64_t offset : proto::kSuperblockOffsets) {
    const auto copy = ParseSuperblock(label.subspan(offset, proto::kSuperblockSize));
    TIER_CHECK(!copy || copy->commit <= found->commit, "commit {} taken, {} is there", found->commit, copy->commit);
  }
}

}  // namespace
}  // namespace tier::storage

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tier::storage;
  const std::vector<std::byte> label = BuildLabel({data, size});
  CheckAnswer(label, ReadLabel(label));
  // A device may end anywhere within the label area.
  const std::span<const std::byte> short_label(label.data(), size * 97 % label.size());
  (void)ReadLabel(short_label);
  return 0;
}
