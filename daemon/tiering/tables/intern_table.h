// InternTable: a job's string keys and their 64-bit ids. The same key has the same id in every session of the job, and
// in every run that resumes it: the id is a hash of the bytes; of colliding keys the later one has its next hash.
//
// Keys are dropped, oldest first, when no tensor has their id and the table is three quarters full: a run that makes
// new ones each step goes on without a limit. A dropped key that comes again has the id that it had. So two kinds of
// keys are kept: a key whose id another key had to pass, for that would find its first hash free otherwise; and a
// restored key that would not have the same id again, because its id is none of its hashes, or an earlier one is free.
//
// Keys are records with texts of fixed-size cells (key_record.h), which change through Slab::Edit; the two hash tables
// can be rebuilt from them. Engine thread only. Ids are never 0. Invariant: one id for each key, one key for each id,
// also over dropping (except for a key that a client remembers and whose hash another key has: 2^-64); bytes() is the
// length of all keys. Each call works on a bounded number of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "daemon/tiering/tables/hash_buckets.h"
#include "daemon/tiering/tables/key_record.h"
#include "daemon/tiering/tables/slab.h"
#include "proto/result.h"

namespace tier::tiering {

class InternTable {
 public:
  static constexpr uint32_t kProbesMax = 64;
  static constexpr uint32_t kProbesPerKey = 16;    // Keys that are examined for dropping, for a new one.
  using InUse = std::function<bool(uint64_t id)>;  // Whether a tensor has it.
  struct Limits {
    uint32_t keys_max = 0;
    uint64_t bytes_max = 0;  // Of all keys together.
  };

  // `id_mask`: bits that ids may have. With few of them hashes collide, for tests.
  explicit InternTable(uint64_t id_mask = UINT64_MAX) : id_mask_(id_mask) {}
  InternTable(const InternTable&) = delete;
  InternTable& operator=(const InternTable&) = delete;

  // NO_MEMORY at the limits, which nine in ten keys with tensors do not reach; a key that is known costs nothing.
  Result<uint64_t> Intern(std::string_view key, const Limits& limits, const InUse& in_use);
  // Replays a pair out of a manifest, which counts but is not refused. CORRUPT when it contradicts one that is known.
  Status Restore(std::string_view key, uint64_t id);
  // "" if no key has this id.
  std::string KeyOf(uint64_t id) const;
  size_t size() const { return heads_.keys; }
  uint64_t memory_bytes() const { return records_.bytes() + texts_.bytes() + by_id_.bytes() + by_hash_.bytes(); }
  uint64_t bytes() const { return heads_.bytes; }
  uint64_t texts() const { return heads_.texts; }  // Σ TextsOf(length) of all keys.
  static constexpr uint64_t TextsOf(uint64_t length) { return (length + KeyText::kBytes - 1) / KeyText::kBytes; }
  void CheckInvariants() const;  // O(keys).

 private:
  static constexpr uint32_t kChunk = 64;  // Records that are made at once: most jobs have few keys, or none.

  uint64_t HashOf(std::string_view key, uint32_t probe) const;
  KeyIndex FindId(uint64_t id) const;
  KeyIndex FindKey(std::string_view key, uint64_t hash) const;
  bool HasText(const KeyRecord& record, std::string_view key) const;
  std::string TextOf(const KeyRecord& record) const;

  KeyIndex Add(std::string_view key, uint64_t hash, uint64_t id);
  KeyTextIndex AddText(std::string_view key);
  void Drop(KeyIndex index);
  void Keep(KeyIndex index);
  void LinkYoungest(KeyIndex index);
  void Unlink(KeyIndex index);
  void MakeRoom(uint64_t length, const Limits& limits, const InUse& in_use);
  uint64_t CheckAges() const;

  const uint64_t id_mask_;
  Slab<KeyRecord, KeyIndex, kChunk> records_;
  Slab<KeyText, KeyTextIndex, kChunk> texts_;
  KeyHeads heads_;
  HashBuckets<KeyIndex> by_id_;
  HashBuckets<KeyIndex> by_hash_;  // Of the text.
};

}  // namespace tier::tiering
