// InternTable: a job's string keys and their 64-bit ids. The same key has the same id in every session of the job, and
// in every run that resumes it: the id is a hash of the bytes; of colliding keys the later one moves on.
//
// Keys are forgotten, oldest first, when no tensor has their id and the table is three quarters full: a run that makes
// new ones each step goes on without a limit. A dropped key that comes again has the id that it had.
//
// Engine thread only. Ids are never 0. Invariant: one id for each key, one key for each id, also over forgetting: a key
// that another one had to pass is kept (except one that a client remembers and whose hash another key has: 2^-64);
// bytes() is the length of all keys.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "proto/result.h"

namespace tier::tiering {

class InternTable {
 public:
  static constexpr uint32_t kProbesMax = 64;
  static constexpr uint32_t kProbesPerKey = 16;    // At what might be forgotten for a new one.
  using InUse = std::function<bool(uint64_t id)>;  // Whether a tensor has it.
  struct Limits {
    uint32_t keys_max = 0;
    uint64_t bytes_max = 0;  // Of all keys together.
  };

  // NO_MEMORY at the limits, which nine in ten keys with tensors do not reach; a key that is known costs nothing.
  Result<uint64_t> Intern(std::string_view key, const Limits& limits, const InUse& in_use);
  // Replays a pair out of a manifest, which counts but is not refused. CORRUPT when it contradicts one that is known.
  Status Restore(std::string_view key, uint64_t id);
  // "" if no key has this id.
  std::string_view KeyOf(uint64_t id) const;
  size_t size() const { return by_id_.size(); }
  uint64_t bytes() const { return bytes_; }
  const std::unordered_map<uint64_t, std::string>& keys() const { return by_id_; }
  void CheckInvariants() const;  // O(keys).

 private:
  static uint64_t HashOf(std::string_view key, uint32_t probe);
  void Add(uint64_t id, std::string_view key);
  void MakeRoom(uint64_t length, const Limits& limits, const InUse& in_use);

  std::unordered_map<uint64_t, std::string> by_id_;
  std::deque<uint64_t> by_age_;  // All but those that were passed; what was in use when looked at is young again.
  std::unordered_set<uint64_t> passed_;  // Ids that another key's hash is too: that one went on to its next.
  uint64_t bytes_ = 0;
};

}  // namespace tier::tiering
