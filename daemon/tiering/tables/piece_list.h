// PieceList: the pieces of a tensor of more than one, by number. Pieces are made when a range that holds them is first
// leased, so a tensor of terabytes is created, and freed, without going over numbers that nobody ever leased. Engine
// thread only.
//
// Numbers come in chunks of 1,024. A chunk is allocated with its first piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "daemon/tiering/tables/piece.h"

namespace tier::tiering {

class PieceList {
 public:
  static constexpr uint32_t kChunk = 1024;
  static constexpr uint32_t ChunksOf(uint32_t count) { return count / kChunk + (count % kChunk != 0 ? 1 : 0); }

  // For `count` pieces, none of which is made.
  void Open(uint32_t count) {
    chunks_ = std::make_unique<Chunk[]>(ChunksOf(count));
    chunk_size_ = std::min(count, kChunk);
  }
  void Close() { chunks_.reset(); }
  bool open() const { return chunks_ != nullptr; }

  // kNoPiece: not made.
  PieceId Find(uint32_t number) const {
    const Chunk& chunk = chunks_[number / kChunk];
    return chunk == nullptr ? kNoPiece : chunk[number % kChunk];
  }
  void Set(uint32_t number, PieceId id) {
    Chunk& chunk = chunks_[number / kChunk];
    if (chunk == nullptr) {
      chunk = std::make_unique_for_overwrite<PieceId[]>(chunk_size_);
      std::fill_n(chunk.get(), chunk_size_, kNoPiece);
    }
    chunk[number % kChunk] = id;
  }
  // At most `end`, with no piece made between the two; it goes down by one chunk at most. REQUIRES: end > 0.
  uint32_t EndOfMade(uint32_t end) const {
    const uint32_t begin = (end - 1) / kChunk * kChunk;
    const Chunk& chunk = chunks_[begin / kChunk];
    if (chunk == nullptr) return begin;
    while (end != begin && chunk[end - 1 - begin] == kNoPiece) --end;
    return end;
  }

 private:
  using Chunk = std::unique_ptr<PieceId[]>;
  std::unique_ptr<Chunk[]> chunks_;
  uint32_t chunk_size_ = 0;
};

}  // namespace tier::tiering
