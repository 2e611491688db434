// See intern_table.h. FNV-1a (Fowler, Noll, Vo) finished by a mixer: keys that differ in one letter are common.
#include "daemon/tiering/tables/intern_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::tiering {

uint64_t InternTable::HashOf(std::string_view key, uint32_t probe) const {
  uint64_t hash = 0xcbf29ce484222325 + probe;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93;
  hash ^= hash >> 32;
  hash &= id_mask_;
  return hash == 0 ? 1 : hash;
}

KeyIndex InternTable::FindId(uint64_t id) const {
  return by_id_.Find(id, [&](KeyIndex index) { return records_[index].id == id; });
}

KeyIndex InternTable::FindKey(std::string_view key, uint64_t hash) const {
  return by_hash_.Find(hash, [&](KeyIndex index) {
    const KeyRecord& record = records_[index];
    return record.hash == hash && HasText(record, key);
  });
}

bool InternTable::HasText(const KeyRecord& record, std::string_view key) const {
  if (record.length != key.size()) return false;
  for (KeyTextIndex at = record.text; at != kNoKeyText; at = texts_[at].next) {
    const std::string_view part = key.substr(0, KeyText::kBytes);
    if (part != std::string_view(texts_[at].bytes.data(), part.size())) return false;
    key.remove_prefix(part.size());
  }
  return true;
}

std::string InternTable::TextOf(const KeyRecord& record) const {
  std::string text;
  text.reserve(record.length);
  for (KeyTextIndex at = record.text; at != kNoKeyText; at = texts_[at].next) {
    text.append(texts_[at].bytes.data(), std::min(KeyText::kBytes, record.length - text.size()));
  }
  return text;
}

KeyTextIndex InternTable::AddText(std::string_view key) {
  KeyTextIndex first = kNoKeyText;
  for (uint64_t left = TextsOf(key.size()); left-- != 0;) {
    const std::string_view part = key.substr(left * KeyText::kBytes, KeyText::kBytes);
    const KeyTextIndex index = texts_.Allocate();
    KeyText& text = texts_.Edit(index);
    text = {.next = first};
    part.copy(text.bytes.data(), part.size());
    first = index;
  }
  return first;
}

KeyIndex InternTable::Add(std::string_view key, uint64_t hash, uint64_t id) {
  TIER_CHECK(id != 0 && key.size() <= UINT16_MAX, "id {:#x} of a key of {} bytes", id, key.size());
  const KeyIndex index = records_.Allocate();
  records_.Edit(index) = {.id = id, .hash = hash, .text = AddText(key), .length = static_cast<uint16_t>(key.size())};
  by_id_.Add(index, id, [&](KeyIndex each) { return records_[each].id; });
  by_hash_.Add(index, hash, [&](KeyIndex each) { return records_[each].hash; });
  LinkYoungest(index);
  ++heads_.keys;
  heads_.texts += static_cast<uint32_t>(TextsOf(key.size()));
  heads_.bytes += key.size();
  return index;
}

void InternTable::Drop(KeyIndex index) {
  const KeyRecord record = records_[index];
  TIER_CHECK(!record.kept && heads_.bytes >= record.length, "key {:#x} of {} bytes of {}", record.id, record.length,
             heads_.bytes);
  Unlink(index);
  by_id_.Remove(index, record.id);
  by_hash_.Remove(index, record.hash);
  for (KeyTextIndex at = record.text; at != kNoKeyText;) {
    const KeyTextIndex next = texts_[at].next;
    texts_.Free(at);
    at = next;
  }
  records_.Edit(index) = {};
  records_.Free(index);
  --heads_.keys;
  heads_.texts -= static_cast<uint32_t>(TextsOf(record.length));
  heads_.bytes -= record.length;
}

void InternTable::Keep(KeyIndex index) {
  if (records_[index].kept) return;
  Unlink(index);
  records_.Edit(index).kept = true;
}

void InternTable::LinkYoungest(KeyIndex index) {
  KeyRecord& record = records_.Edit(index);
  record.older = heads_.youngest;
  record.younger = kNoKey;
  (heads_.youngest == kNoKey ? heads_.oldest : records_.Edit(heads_.youngest).younger) = index;
  heads_.youngest = index;
}

void InternTable::Unlink(KeyIndex index) {
  KeyRecord& record = records_.Edit(index);
  (record.older == kNoKey ? heads_.oldest : records_.Edit(record.older).younger) = record.younger;
  (record.younger == kNoKey ? heads_.youngest : records_.Edit(record.younger).older) = record.older;
  record.older = kNoKey;
  record.younger = kNoKey;
}

void InternTable::MakeRoom(uint64_t length, const Limits& limits, const InUse& in_use) {
  for (uint32_t probes = 0; probes < kProbesPerKey && heads_.oldest != kNoKey; ++probes) {
    const bool many = heads_.keys >= limits.keys_max - limits.keys_max / 4;
    const bool long_ones = heads_.bytes + length > limits.bytes_max - limits.bytes_max / 4;
    if (!many && !long_ones) return;
    const KeyIndex oldest = heads_.oldest;
    if (in_use(records_[oldest].id)) {
      // It is young again: the next keys are examined before it.
      Unlink(oldest);
      LinkYoungest(oldest);
    } else {
      Drop(oldest);
    }
  }
}

Result<uint64_t> InternTable::Intern(std::string_view key, const Limits& limits, const InUse& in_use) {
  const uint64_t hash = HashOf(key, 0);
  if (const KeyIndex known = FindKey(key, hash); known != kNoKey) return records_[known].id;
  for (uint32_t probe = 0; probe < kProbesMax; ++probe) {
    const uint64_t id = probe == 0 ? hash : HashOf(key, probe);
    if (const KeyIndex other = FindId(id); other != kNoKey) {
      Keep(other);
      continue;
    }
    MakeRoom(key.size(), limits, in_use);
    if (heads_.keys >= limits.keys_max) {
      return Fail(Code::kNoMemory,
                  fmt::format("the job has {} string keys, at most {}, and next to all of them name tensors; use "
                              "numeric ids or fewer keys",
                              heads_.keys, limits.keys_max));
    }
    if (heads_.bytes + key.size() > limits.bytes_max) {
      return Fail(Code::kNoMemory,
                  fmt::format("the job's {} string keys have {} bytes, with this one {}, at most {}; use numeric ids "
                              "or shorter keys",
                              heads_.keys, heads_.bytes, heads_.bytes + key.size(), limits.bytes_max));
    }
    Add(key, hash, id);
    return id;
  }
  return Fail(Code::kNoMemory, fmt::format("{} other keys have the ids of this one; choose another key", kProbesMax));
}

Status InternTable::Restore(std::string_view key, uint64_t id) {
  const uint64_t hash = HashOf(key, 0);
  const KeyIndex of_id = FindId(id);
  const KeyIndex of_key = FindKey(key, hash);
  if (id == 0 || (of_id != kNoKey && of_id != of_key)) {
    return Fail(Code::kCorrupt, fmt::format("the manifest gives id {:#x} to two string keys", id));
  }
  if (of_key != kNoKey && of_key != of_id) {
    return Fail(Code::kCorrupt,
                fmt::format("the manifest gives ids {:#x} and {:#x} to one string key", records_[of_key].id, id));
  }
  if (of_id != kNoKey) return {};
  const KeyIndex added = Add(key, hash, id);
  uint32_t probe = 0;
  bool all_taken = true;
  for (; probe < kProbesMax && HashOf(key, probe) != id; ++probe) {
    const KeyIndex passed = FindId(HashOf(key, probe));
    if (passed == kNoKey) {
      all_taken = false;
    } else {
      Keep(passed);
    }
  }
  if (probe == kProbesMax || !all_taken) Keep(added);  // Dropped, it would come again with another id.
  return {};
}

// Returns how many keys may be dropped.
uint64_t InternTable::CheckAges() const {
  uint64_t count = 0;
  KeyIndex before = kNoKey;
  for (KeyIndex at = heads_.oldest; at != kNoKey; before = at, at = records_[at].younger, ++count) {
    const KeyRecord& record = records_[at];
    TIER_CHECK(record.id != 0 && !record.kept && record.older == before, "key {:#x} in record {}", record.id,
               Value(at));
  }
  TIER_CHECK(heads_.youngest == before, "record {} is the youngest, not {}", Value(before), Value(heads_.youngest));
  return count;
}

void InternTable::CheckInvariants() const {
  KeyHeads found;
  uint64_t kept = 0;
  for (uint32_t i = 0; i < records_.capacity(); ++i) {
    const KeyRecord& record = records_[KeyIndex{i}];
    if (record.id == 0) continue;
    ++found.keys;
    kept += record.kept ? 1 : 0;
    found.bytes += record.length;
    found.texts += static_cast<uint32_t>(TextsOf(record.length));
    const std::string key = TextOf(record);
    TIER_CHECK(key.size() == record.length && record.hash == HashOf(key, 0), "key {:#x} has {} bytes of {}", record.id,
               key.size(), record.length);
    TIER_CHECK(FindId(record.id) == KeyIndex{i} && FindKey(key, record.hash) == KeyIndex{i}, "key {:#x} is not found",
               record.id);
  }
  TIER_CHECK(found.keys == heads_.keys && found.texts == heads_.texts && found.bytes == heads_.bytes,
             "{} keys of {} bytes in {} cells, not {} of {} in {}", found.keys, found.bytes, found.texts, heads_.keys,
             heads_.bytes, heads_.texts);
  TIER_CHECK(records_.used() == found.keys && texts_.used() == found.texts, "{} records and {} cells are used",
             records_.used(), texts_.used());
  TIER_CHECK(CheckAges() + kept == found.keys, "{} keys, of which {} are kept", found.keys, kept);
  by_id_.CheckInvariants([&](KeyIndex index) { return records_[index].id; });
  by_hash_.CheckInvariants([&](KeyIndex index) { return records_[index].hash; });
  TIER_CHECK(by_id_.size() == found.keys && by_hash_.size() == found.keys, "{} keys, {} and {} of them in the tables",
             found.keys, by_id_.size(), by_hash_.size());
}

std::string InternTable::KeyOf(uint64_t id) const {
  const KeyIndex index = FindId(id);
  return index == kNoKey ? std::string() : TextOf(records_[index]);
}

}  // namespace tier::tiering
