// InternTable: a job's string keys and their 64-bit ids. The same key has the same id in every session of the job, and
// in every run that resumes it: the id is a hash of the bytes; of colliding keys the later one moves on.
//
// Engine thread only. Ids are never 0. Invariant: one id for each key, one key for each id; bytes() is the
// length of all keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "proto/result.h"

namespace tier::tiering {

class InternTable {
 public:
  static constexpr uint32_t kProbesMax = 64;
  struct Limits {
    uint32_t keys_max = 0;
    uint64_t bytes_max = 0;  // Of all keys together.
  };

  // NO_MEMORY beyond the limits; a key that is known costs nothing.
  Result<uint64_t> Intern(std::string_view key, const Limits& limits);
  // Replays a pair out of a manifest, which counts but is not refused. CORRUPT when it contradicts one that is known.
  Status Restore(std::string_view key, uint64_t id);
  // "" if no key has this id.
  std::string_view KeyOf(uint64_t id) const;
  size_t size() const { return by_id_.size(); }
  uint64_t bytes() const { return bytes_; }
  const std::unordered_map<uint64_t, std::string>& keys() const { return by_id_; }

 private:
  static uint64_t HashOf(std::string_view key, uint32_t probe);
  std::unordered_map<uint64_t, std::string> by_id_;
  uint64_t bytes_ = 0;
};

}  // namespace tier::tiering
