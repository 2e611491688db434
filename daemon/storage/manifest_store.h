// ManifestStore: keeps the manifest of each named job, which says where its persisted tensors lie on SSD. References
// only, never tensor bytes.
//
// A manifest is opaque here: tiering encodes it (layout in proto/manifest_record.h). Commits are synced and run off the
// engine thread. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/result.h"

namespace tier::storage {

struct ManifestResult {
  uint64_t cookie = 0;
  Code code = Code::kOk;
  std::string message;
  uint64_t commit = 0;  // Number of the synced commit.
};

class ManifestStore {
 public:
  virtual ~ManifestStore() = default;
  // Replaces the manifest of `job` ("uid/name") in one synced transaction; the result comes by Poll.
  virtual void StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest) = 0;
  virtual void StartErase(uint64_t cookie, std::string job) = 0;
  virtual void Poll(std::vector<ManifestResult>* results) = 0;
  // The last committed manifest. NOT_FOUND if there is none. Blocks for a read of the file: start and resume only.
  virtual Result<std::vector<std::byte>> Load(std::string_view job) const = 0;
  virtual std::vector<std::string> Jobs() const = 0;
};

}  // namespace tier::storage
