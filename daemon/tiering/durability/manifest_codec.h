// ManifestCodec: a job's manifest as bytes and back (layout: proto/manifest_record.h). Reading trusts nothing: the
// bytes come from a disk. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/manifest_record.h"
#include "proto/result.h"

namespace tier::tiering {

struct ManifestTensor {
  proto::ManifestTensorRecord record{};
  std::vector<proto::ManifestPieceRecord> pieces;
};

struct ManifestKey {
  uint64_t id = 0;
  std::string key;
};

struct Manifest {
  uint64_t step = 0;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestKey> keys;
};

std::vector<std::byte> EncodeManifest(const Manifest& manifest);
// CORRUPT, VERSION; the sentence says what is wrong with it.
Result<Manifest> DecodeManifest(std::span<const std::byte> bytes);

}  // namespace tier::tiering
