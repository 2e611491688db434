// Slab: records of one kind under 32-bit ids, in chunks that never move. The lowest free id is given out first, so that
// after many were freed the chunks of high ids become empty; such a chunk goes back to the system (ShrinkOne), and is
// made again when no other chunk has a free id. One empty chunk is kept.
//
// A record has a fixed size and no pointers, and every change of one goes through Edit: there an undo
// list can keep what the record was. No allocation in steady state. Freed records keep their bytes: the owner resets
// what the next user must not see. An id whose chunk was given back reads as a new record T{}, so an id that is out of
// date may be looked up, and who looks at all records skips what is not held (NextHeld). A member `salt`, which tells
// the users of an id apart, goes on from the highest one that its chunk has seen, from 1 at first: no pair of id and
// salt that was in use comes again because a chunk was given back.
//
// Invariants: used() = Σ used of the chunks; `open_` holds the chunks with a free record, `lowest_` is the first of
// them, `empty_` those without a used one, `held_` all that there are, and `gone_` those that were given back.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/index_set.h"

namespace tier::tiering {

template <typename T, typename Id, uint32_t kChunkSize = 1024>
class Slab {
  static_assert((kChunkSize & (kChunkSize - 1)) == 0 && kChunkSize >= 64 && kChunkSize <= 64 * 64);
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr uint32_t kChunk = kChunkSize;  // Records that are made at once.

  Id Allocate() {
    if (lowest_ == IndexSet::kNone) Grow();
    Chunk& chunk = *chunks_[lowest_];
    const auto word = static_cast<uint32_t>(std::countr_zero(chunk.open_words));
    const auto bit = static_cast<uint32_t>(std::countr_zero(chunk.free[word]));
    chunk.free[word] &= chunk.free[word] - 1;
    if (chunk.free[word] == 0) chunk.open_words &= chunk.open_words - 1;
    const uint32_t id = lowest_ * kChunkSize + word * 64 + bit;
    if (chunk.used++ == 0) empty_.Remove(lowest_);
    if (chunk.used == kChunkSize) {
      open_.Remove(lowest_);
      lowest_ = open_.First();
    }
    ++used_;
    return static_cast<Id>(id);
  }
  void Free(Id id) {  // REQUIRES: in use.
    const uint32_t number = NumberOf(id) / kChunkSize;
    const uint32_t word = NumberOf(id) % kChunkSize / 64;
    const uint64_t bit = uint64_t{1} << (NumberOf(id) % 64);
    TIER_CHECK(number < chunks_.size() && chunks_[number] != nullptr && (chunks_[number]->free[word] & bit) == 0,
               "id {} of {} is not in use", NumberOf(id), capacity());
    Chunk& chunk = *chunks_[number];
    chunk.free[word] |= bit;
    chunk.open_words |= uint64_t{1} << word;
    if (chunk.used == kChunkSize) open_.Add(number);
    lowest_ = std::min(lowest_, number);
    if (--chunk.used == 0) empty_.Add(number);
    --used_;
  }
  const T& operator[](Id id) const {
    const Chunk* const chunk = chunks_[NumberOf(id) / kChunkSize].get();
    return chunk == nullptr ? kNew : chunk->records[NumberOf(id) % kChunkSize];
  }
  T& Edit(Id id) { return chunks_[NumberOf(id) / kChunkSize]->records[NumberOf(id) % kChunkSize]; }
  bool Contains(Id id) const { return NumberOf(id) < capacity(); }                          // Given out at some time.
  uint32_t capacity() const { return static_cast<uint32_t>(chunks_.size()) * kChunkSize; }  // It never falls.
  uint32_t used() const { return used_; }
  uint32_t held() const { return held_.size() * kChunkSize; }  // Records in memory, used or not.
  // The first id from `number` on whose record is in memory; capacity(): there is none. REQUIRES: at most capacity().
  uint32_t NextHeld(uint32_t number) const {
    const uint32_t chunk = held_.FirstFrom(number / kChunkSize);
    return chunk == IndexSet::kNone ? capacity() : std::max(number, chunk * kChunkSize);
  }
  // visit(id, record) for each that is in use, from the lowest on. Those that are free cost a bit each.
  template <typename Visit>
  void ForEachUsed(Visit visit) const {
    for (uint32_t number = 0; number < chunks_.size(); ++number) {
      if (chunks_[number] == nullptr) continue;
      const Chunk& chunk = *chunks_[number];
      for (uint32_t word = 0; word < kWords; ++word) {
        for (uint64_t used = ~chunk.free[word]; used != 0; used &= used - 1) {
          const uint32_t at = word * 64 + static_cast<uint32_t>(std::countr_zero(used));
          visit(static_cast<Id>(number * kChunkSize + at), chunk.records[at]);
        }
      }
    }
  }
  // The same for each that is free and in memory.
  template <typename Visit>
  void ForEachFree(Visit visit) const {
    for (uint32_t number = 0; number < chunks_.size(); ++number) {
      if (chunks_[number] == nullptr) continue;
      const Chunk& chunk = *chunks_[number];
      for (uint32_t at = 0; at < kChunkSize; ++at) {
        const bool free = (chunk.free[at / 64] >> (at % 64) & 1) != 0;
        if (free) visit(static_cast<Id>(number * kChunkSize + at), chunk.records[at]);
      }
    }
  }
  uint64_t bytes() const {  // That it takes.
    return (chunks_.size() - gone_.size()) * sizeof(Chunk) + chunks_.capacity() * sizeof(chunks_[0]) +
           salts_.capacity() * sizeof(uint32_t) + open_.bytes() + empty_.bytes() + held_.bytes() + gone_.bytes();
  }

  bool can_shrink() const { return empty_.size() > 1; }
  // Gives back the highest of the chunks that are empty. False: there is none but the one that is kept.
  bool ShrinkOne() {
    if (!can_shrink()) return false;
    const uint32_t number = empty_.Last();
    if constexpr (kSalted) {
      for (const T& record : chunks_[number]->records) salts_[number] = std::max(salts_[number], record.salt);
    }
    chunks_[number].reset();
    empty_.Remove(number);
    open_.Remove(number);
    held_.Remove(number);
    gone_.Add(number);
    if (lowest_ == number) lowest_ = open_.First();
    return true;
  }

  void CheckInvariants() const {  // O(capacity / 64).
    uint32_t used = 0;
    uint32_t open = 0;
    uint32_t empty = 0;
    uint32_t gone = 0;
    for (uint32_t number = 0; number < chunks_.size(); ++number) {
      gone += chunks_[number] == nullptr ? 1 : 0;
      if (chunks_[number] == nullptr) continue;
      TIER_CHECK(held_.FirstFrom(number) == number, "chunk {} is not held", number);
      const Chunk& chunk = *chunks_[number];
      uint32_t free = 0;
      for (uint32_t word = 0; word < kWords; ++word) {
        free += static_cast<uint32_t>(std::popcount(chunk.free[word]));
        TIER_CHECK((chunk.free[word] != 0) == ((chunk.open_words >> word & 1) != 0), "word {} of chunk {}", word,
                   number);
      }
      TIER_CHECK(free + chunk.used == kChunkSize, "chunk {}: {} free, {} used", number, free, chunk.used);
      TIER_CHECK(free == 0 || lowest_ <= number, "chunk {} is open, not {} first", number, lowest_);
      used += chunk.used;
      open += free != 0 ? 1 : 0;
      empty += chunk.used == 0 ? 1 : 0;
    }
    TIER_CHECK(used == used_ && open == open_.size() && empty == empty_.size() && gone == gone_.size() &&
                   held_.size() + gone == chunks_.size() && lowest_ == open_.First(),
               "{} used of {}, {} open of {}, {} empty of {}, {} gone of {}, {} held", used, used_, open, open_.size(),
               empty, empty_.size(), gone, gone_.size(), held_.size());
  }

 private:
  static constexpr uint32_t kWords = kChunkSize / 64;
  static constexpr bool kSalted = requires(T& record) { record.salt; };
  static constexpr uint64_t AllWords() { return kWords == 64 ? UINT64_MAX : (uint64_t{1} << kWords) - 1; }
  struct Chunk {
    Chunk() { free.fill(UINT64_MAX); }

    uint32_t used = 0;
    uint64_t open_words = AllWords();   // Words of `free` that are not 0.
    std::array<uint64_t, kWords> free;  // A bit for each record.
    std::array<T, kChunkSize> records;
  };
  static const T kNew;
  static constexpr uint32_t NumberOf(Id id) { return static_cast<uint32_t>(id); }

  void Grow() {
    uint32_t number = gone_.First();
    if (number == IndexSet::kNone) {
      TIER_CHECK(capacity() <= UINT32_MAX - 2 * kChunkSize, "capacity {}", capacity());
      number = static_cast<uint32_t>(chunks_.size());
      chunks_.emplace_back();
      if constexpr (kSalted) salts_.push_back(1);
    } else {
      gone_.Remove(number);
    }
    chunks_[number] = std::make_unique<Chunk>();
    if constexpr (kSalted) {
      for (T& record : chunks_[number]->records) record.salt = salts_[number];
    }
    empty_.Add(number);
    open_.Add(number);
    held_.Add(number);
    lowest_ = number;
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;  // Null: given back.
  std::vector<uint32_t> salts_;                 // With which the records of each chunk begin.
  IndexSet open_;
  IndexSet empty_;
  IndexSet held_;
  IndexSet gone_;
  uint32_t lowest_ = IndexSet::kNone;
  uint32_t used_ = 0;
};

template <typename T, typename Id, uint32_t kChunkSize>
const T Slab<T, Id, kChunkSize>::kNew{};

}  // namespace tier::tiering
