// See intern_table.h. FNV-1a (Fowler, Noll, Vo) finished by a mixer: keys that differ in one letter are common.
#include "daemon/tiering/intern_table.h"

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::tiering {

uint64_t InternTable::HashOf(std::string_view key, uint32_t probe) {
  uint64_t hash = 0xcbf29ce484222325 + probe;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93;
  hash ^= hash >> 32;
  return hash == 0 ? 1 : hash;
}

Result<uint64_t> InternTable::Intern(std::string_view key, const Limits& limits) {
  for (uint32_t probe = 0; probe < kProbesMax; ++probe) {
    const uint64_t id = HashOf(key, probe);
    TIER_CHECK(id != 0, "key of {} bytes", key.size());
    const auto found = by_id_.find(id);
    if (found != by_id_.end() && found->second == key) return id;
    if (found != by_id_.end()) continue;
    if (by_id_.size() >= limits.keys_max) {
      return Fail(Code::kNoMemory, fmt::format("the job has {} string keys, at most {}; use numeric ids or fewer keys",
                                               by_id_.size(), limits.keys_max));
    }
    if (bytes_ + key.size() > limits.bytes_max) {
      return Fail(Code::kNoMemory,
                  fmt::format("the job's {} string keys have {} bytes, with this one {}, at most {}; use numeric ids "
                              "or shorter keys",
                              by_id_.size(), bytes_, bytes_ + key.size(), limits.bytes_max));
    }
    by_id_.emplace(id, key);
    bytes_ += key.size();
    return id;
  }
  return Fail(Code::kNoMemory, fmt::format("{} other keys have the ids of this one; choose another key", kProbesMax));
}

Status InternTable::Restore(std::string_view key, uint64_t id) {
  const auto [entry, fresh] = by_id_.try_emplace(id, key);
  if (id == 0 || (!fresh && entry->second != key)) {
    return Fail(Code::kCorrupt, fmt::format("the manifest gives id {:#x} to two string keys", id));
  }
  bytes_ += fresh ? key.size() : 0;
  return {};
}

std::string_view InternTable::KeyOf(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace tier::tiering
