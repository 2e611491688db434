// See transfer_check.h.
#include "tests/support/tiering/transfer_check.h"

#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "daemon/tiering/durability/manifest_codec.h"

namespace tier::tiering::testing {
namespace {

using Moves = std::vector<storage::testing::FakeTransferPort::Move>;
using storage::Direction;
using storage::testing::FakeManifestStore;
using storage::testing::FakeTransferPort;

// The places that transfers write to, by block: a run lies within one. There are few of them, and many places of pieces
// to compare with each.
class Targets {
 public:
  // Of writes: extents. Of reads: RAM.
  Targets(const Moves& moves, Direction direction) : direction_(direction) {
    for (const auto& move : moves) {
      if (move.direction != direction) continue;
      const bool write = direction == Direction::kWrite;
      for (const base::PageRun run : write ? move.runs : move.memory) {
        blocks_[KeyOf(write ? move.extent.device : uint16_t{0}, run)].push_back({run, move.cookie});
      }
    }
  }
  bool empty() const { return blocks_.empty(); }

  // The first transfer to pages of this run, except that of the cookie; `name()`: of what lies there.
  template <typename Name>
  std::optional<std::string> Find(uint16_t device, base::PageRun run, std::optional<uint64_t> own,
                                  const Name& name) const {
    const auto block = run ? blocks_.find(KeyOf(device, run)) : blocks_.end();
    if (block == blocks_.end()) return std::nullopt;
    for (const Target& target : block->second) {
      const bool meets = target.run.page < run.page + run.pages && run.page < target.run.page + target.run.pages;
      if (!meets || target.cookie == own) continue;
      return fmt::format("a {} goes to block {} page {} + {}, which {}",
                         direction_ == Direction::kWrite ? "write" : "read", target.run.block, target.run.page,
                         target.run.pages, name());
    }
    return std::nullopt;
  }

 private:
  struct Target {
    base::PageRun run;
    uint64_t cookie = 0;
  };
  static uint64_t KeyOf(uint16_t device, base::PageRun run) { return uint64_t{device} << 32 | run.block; }

  const Direction direction_;
  std::unordered_map<uint64_t, std::vector<Target>> blocks_;
};

std::string NameOf(const PiecePlace& place, const char* when) {
  return fmt::format("belongs to tensor {:#x} piece {} generation {} {}", place.tensor, place.piece, place.generation,
                     when);
}

std::optional<std::string> FindInExtents(const Targets& writes, const std::vector<PiecePlace>& places,
                                         const char* when) {
  if (writes.empty()) return std::nullopt;
  for (const PiecePlace& place : places) {
    for (const base::PageRun run : place.runs) {
      auto found = writes.Find(place.extent.device, run, std::nullopt, [&] { return NameOf(place, when); });
      if (found) return found;
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindInRam(const Targets& reads, const std::vector<PiecePlace>& places, const char* when) {
  if (reads.empty()) return std::nullopt;
  for (const PiecePlace& place : places) {
    for (const base::PageRun run : place.ram) {
      if (auto found = reads.Find(0, run, place.transfer, [&] { return NameOf(place, when); })) return found;
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindInManifest(const Targets& writes, const std::vector<std::byte>& bytes) {
  const auto manifest = DecodeManifest(bytes);
  if (!manifest) return std::nullopt;  // A test damaged it.
  for (const ManifestTensor& tensor : manifest->tensors) {
    const auto name = [&] { return fmt::format("a manifest names for tensor {:#x}", tensor.record.tensor); };
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
      const base::PageRun one{.block = piece.block, .page = piece.page, .pages = piece.pages};
      const auto several = RunsIn(*manifest, piece);
      for (const base::PageRun run : several.empty() ? std::span(&one, 1) : several) {
        if (auto found = writes.Find(piece.device, run, std::nullopt, name)) return found;
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindOverwrite(const Moves& moves, const std::vector<PiecePlace>& places,
                                         const FakeManifestStore& manifests) {
  constexpr const char* kWhen = "at the end of the turn";
  const Targets writes(moves, Direction::kWrite);
  auto found = FindInExtents(writes, places, kWhen);
  manifests.ForEachThatMayBeFound([&](const std::vector<std::byte>& manifest) {
    if (!found && !writes.empty()) found = FindInManifest(writes, manifest);
  });
  return found ? found : FindInRam(Targets(moves, Direction::kRead), places, kWhen);
}

}  // namespace

std::optional<std::string> TransferCheck::AtSubmit(const std::vector<PiecePlace>& places,
                                                   const FakeTransferPort& transfers,
                                                   const FakeManifestStore& manifests) const {
  Moves moves = transfers.moves();
  if (auto found = FindOverwrite(moves, places, manifests)) return found;
  std::erase_if(moves, [](const auto& move) { return move.submitted; });
  return FindInExtents(Targets(moves, Direction::kWrite), last_turn_, "at the end of the last turn");
}

std::optional<std::string> TransferCheck::AfterTurn(std::vector<PiecePlace> places, const FakeTransferPort& transfers,
                                                    const FakeManifestStore& manifests) {
  last_turn_ = std::move(places);
  return FindOverwrite(transfers.moves(), last_turn_, manifests);
}

}  // namespace tier::tiering::testing
