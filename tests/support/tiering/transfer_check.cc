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

struct Owner {
  base::PageRun run;
  std::optional<uint64_t> transfer;  // That moves the piece.
  std::string name;
};

// Runs by block: a run lies within one.
class Owners {
 public:
  void Add(uint16_t device, const Owner& owner) {
    if (owner.run) blocks_[KeyOf(device, owner.run)].push_back(owner);
  }
  // Who else has pages of this run. `transfer`: one whose own piece does not count.
  const Owner* Find(uint16_t device, base::PageRun run, std::optional<uint64_t> transfer) const {
    const auto block = blocks_.find(KeyOf(device, run));
    if (block == blocks_.end()) return nullptr;
    for (const Owner& owner : block->second) {
      const bool own = transfer && owner.transfer == transfer;
      const bool meets = owner.run.page < run.page + run.pages && run.page < owner.run.page + owner.run.pages;
      if (meets && !own) return &owner;
    }
    return nullptr;
  }

 private:
  static uint64_t KeyOf(uint16_t device, base::PageRun run) { return uint64_t{device} << 32 | run.block; }
  std::unordered_map<uint64_t, std::vector<Owner>> blocks_;
};

std::string NameOf(const PiecePlace& place, const char* when) {
  return fmt::format("belongs to tensor {:#x} piece {} generation {} {}", place.tensor, place.piece, place.generation,
                     when);
}

void AddExtents(const std::vector<PiecePlace>& places, const char* when, Owners* owners) {
  for (const PiecePlace& place : places) {
    for (const base::PageRun run : place.runs) {
      owners->Add(place.extent.device, {run, std::nullopt, NameOf(place, when)});
    }
  }
}

void AddManifest(const std::vector<std::byte>& bytes, Owners* owners) {
  const auto manifest = DecodeManifest(bytes);
  if (!manifest) return;  // A test damaged it.
  for (const ManifestTensor& tensor : manifest->tensors) {
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
      const base::PageRun one{.block = piece.block, .page = piece.page, .pages = piece.pages};
      const auto several = RunsIn(*manifest, piece);
      for (const base::PageRun run : several.empty() ? std::span(&one, 1) : several) {
        owners->Add(piece.device,
                    {run, std::nullopt, fmt::format("a manifest names for tensor {:#x}", tensor.record.tensor)});
      }
    }
  }
}

std::optional<std::string> FindOverwrite(const Moves& moves, Direction direction, const Owners& owners) {
  for (const auto& move : moves) {
    if (move.direction != direction) continue;
    const bool write = direction == Direction::kWrite;
    for (const base::PageRun run : write ? move.runs : move.memory) {
      const Owner* owner =
          write ? owners.Find(move.extent.device, run, std::nullopt) : owners.Find(0, run, move.cookie);
      if (owner == nullptr) continue;
      return fmt::format("a {} goes to block {} page {} + {}, which {}", write ? "write" : "read", run.block, run.page,
                         run.pages, owner->name);
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindOverwrite(const Moves& moves, const std::vector<PiecePlace>& places,
                                         const FakeManifestStore& manifests) {
  if (moves.empty()) return std::nullopt;
  Owners extents;
  Owners ram;
  AddExtents(places, "at the end of the turn", &extents);
  manifests.ForEachThatMayBeFound([&](const std::vector<std::byte>& manifest) { AddManifest(manifest, &extents); });
  for (const PiecePlace& place : places) {
    for (const base::PageRun run : place.ram) {
      ram.Add(0, {run, place.transfer, NameOf(place, "at the end of the turn")});
    }
  }
  if (auto found = FindOverwrite(moves, Direction::kWrite, extents)) return found;
  return FindOverwrite(moves, Direction::kRead, ram);
}

}  // namespace

std::optional<std::string> TransferCheck::AtSubmit(const std::vector<PiecePlace>& places,
                                                   const FakeTransferPort& transfers,
                                                   const FakeManifestStore& manifests) const {
  Moves moves = transfers.moves();
  if (auto found = FindOverwrite(moves, places, manifests)) return found;
  std::erase_if(moves, [](const auto& move) { return move.submitted; });
  Owners extents;
  AddExtents(last_turn_, "at the end of the last turn", &extents);
  return FindOverwrite(moves, Direction::kWrite, extents);
}

std::optional<std::string> TransferCheck::AfterTurn(std::vector<PiecePlace> places, const FakeTransferPort& transfers,
                                                    const FakeManifestStore& manifests) {
  last_turn_ = std::move(places);
  return FindOverwrite(transfers.moves(), last_turn_, manifests);
}

}  // namespace tier::tiering::testing
