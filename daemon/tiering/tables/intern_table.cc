// See intern_table.h. FNV-1a (Fowler, Noll, Vo) finished by a mixer: keys that differ in one letter are common.
#include "daemon/tiering/tables/intern_table.h"

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

void InternTable::Add(uint64_t id, std::string_view key) {
  by_id_.emplace(id, key);
  by_age_.push_back(id);
  bytes_ += key.size();
}

void InternTable::MakeRoom(uint64_t length, const Limits& limits, const InUse& in_use) {
  for (uint32_t probes = 0; probes < kProbesPerKey && !by_age_.empty(); ++probes) {
    const bool many = by_id_.size() >= limits.keys_max - limits.keys_max / 4;
    const bool long_ones = bytes_ + length > limits.bytes_max - limits.bytes_max / 4;
    if (!many && !long_ones) return;
    const uint64_t id = by_age_.front();
    by_age_.pop_front();
    const auto entry = by_id_.find(id);
    TIER_CHECK(entry != by_id_.end(), "key {:#x} has an age and no name", id);
    if (passed_.contains(id)) continue;
    if (in_use(id)) {
      by_age_.push_back(id);
      continue;
    }
    bytes_ -= entry->second.size();
    by_id_.erase(entry);
  }
}

Result<uint64_t> InternTable::Intern(std::string_view key, const Limits& limits, const InUse& in_use) {
  for (uint32_t probe = 0; probe < kProbesMax; ++probe) {
    const uint64_t id = HashOf(key, probe);
    TIER_CHECK(id != 0, "key of {} bytes", key.size());
    const auto found = by_id_.find(id);
    if (found != by_id_.end() && found->second == key) return id;
    if (found != by_id_.end()) {
      passed_.insert(id);
      continue;
    }
    MakeRoom(key.size(), limits, in_use);
    if (by_id_.size() >= limits.keys_max) {
      return Fail(Code::kNoMemory,
                  fmt::format("the job has {} string keys, at most {}, and next to all of them name tensors; use "
                              "numeric ids or fewer keys",
                              by_id_.size(), limits.keys_max));
    }
    if (bytes_ + key.size() > limits.bytes_max) {
      return Fail(Code::kNoMemory,
                  fmt::format("the job's {} string keys have {} bytes, with this one {}, at most {}; use numeric ids "
                              "or shorter keys",
                              by_id_.size(), bytes_, bytes_ + key.size(), limits.bytes_max));
    }
    Add(id, key);
    return id;
  }
  return Fail(Code::kNoMemory, fmt::format("{} other keys have the ids of this one; choose another key", kProbesMax));
}

Status InternTable::Restore(std::string_view key, uint64_t id) {
  const auto known = by_id_.find(id);
  if (id == 0 || (known != by_id_.end() && known->second != key)) {
    return Fail(Code::kCorrupt, fmt::format("the manifest gives id {:#x} to two string keys", id));
  }
  if (known == by_id_.end()) Add(id, key);
  for (uint32_t probe = 0; probe < kProbesMax && HashOf(key, probe) != id; ++probe) passed_.insert(HashOf(key, probe));
  return {};
}

void InternTable::CheckInvariants() const {
  uint64_t bytes = 0;
  for (const auto& [id, key] : by_id_) bytes += key.size();
  TIER_CHECK(bytes == bytes_, "keys of {} bytes, not {}", bytes, bytes_);
  for (const uint64_t id : by_age_) TIER_CHECK(by_id_.contains(id), "key {:#x} has an age and no name", id);
}

std::string_view InternTable::KeyOf(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace tier::tiering
