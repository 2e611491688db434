// The legal moves of a piece: one table over (copies × activity), read by every change of state and by the tests.
//
// The idea: what must never happen (bytes dropped while a lease stands, an extent reused while it is being read) is a
// missing row here, so that a wrong turn anywhere in the engine stops at once with both states named.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "daemon/tiering/tables/piece.h"

namespace tier::tiering {

struct PieceState {
  Copies copies = Copies::kFreed;
  Activity activity = Activity::kNone;
  friend bool operator==(const PieceState&, const PieceState&) = default;
};

struct Move {
  PieceState from;
  PieceState to;
};

inline constexpr auto kMoves = [] {
  using enum Copies;
  using enum Activity;
  return std::to_array<Move>({
      // Creation: ranges are leased and sealed until every byte was sealed; or the creator gives up or dies.
      {{kFreed, kNone}, {kCreating, kNone}},
      {{kCreating, kNone}, {kCreating, kLeasedWrite}},
      {{kCreating, kLeasedWrite}, {kCreating, kNone}},
      {{kCreating, kLeasedWrite}, {kRam, kNone}},
      {{kCreating, kNone}, {kRam, kNone}},
      {{kCreating, kNone}, {kFreed, kNone}},
      // A resumed job's pieces begin on SSD.
      {{kFreed, kNone}, {kSsd, kNone}},
      // Dirty: written out, rewritten under a lease, or torn by its writer's death.
      {{kRam, kNone}, {kRam, kWritingOut}},
      {{kRam, kWritingOut}, {kRamSsd, kNone}},
      {{kRam, kWritingOut}, {kRam, kNone}},
      {{kRam, kWritingOut}, {kTorn, kNone}},
      {{kRam, kWritingOut}, {kFreed, kWritingOut}},
      {{kRam, kNone}, {kRam, kLeasedWrite}},
      {{kRam, kLeasedWrite}, {kRam, kNone}},
      {{kRam, kLeasedWrite}, {kTorn, kNone}},
      {{kRam, kNone}, {kTorn, kNone}},
      {{kRam, kNone}, {kFreed, kNone}},
      // Clean: evicted, dirty where the device of its copy does not answer, rewritten (reverting to the SSD copy, or
      // obsoleting it), or rewritten elsewhere on SSD.
      {{kRamSsd, kNone}, {kSsd, kNone}},
      {{kRamSsd, kNone}, {kRam, kNone}},
      {{kRamSsd, kNone}, {kRamSsd, kLeasedWrite}},
      {{kRamSsd, kLeasedWrite}, {kRam, kNone}},
      {{kRamSsd, kLeasedWrite}, {kRamSsd, kNone}},  // Nothing was written.
      {{kRamSsd, kLeasedWrite}, {kSsd, kNone}},
      {{kRamSsd, kNone}, {kFreed, kNone}},
      {{kRamSsd, kNone}, {kRamSsd, kDraining}},
      {{kRamSsd, kDraining}, {kRamSsd, kNone}},
      {{kRamSsd, kDraining}, {kSsd, kNone}},
      {{kRamSsd, kDraining}, {kFreed, kDraining}},
      // Moved in RAM. Where the memory that it moves from is taken away it is torn, or falls back to its SSD copy.
      {{kRam, kNone}, {kRam, kMoving}},
      {{kRam, kMoving}, {kRam, kNone}},
      {{kRam, kMoving}, {kTorn, kNone}},
      {{kTorn, kNone}, {kTorn, kMoving}},
      {{kTorn, kMoving}, {kTorn, kNone}},
      {{kRamSsd, kNone}, {kRamSsd, kMoving}},
      {{kRamSsd, kMoving}, {kRamSsd, kNone}},
      {{kRamSsd, kMoving}, {kSsd, kNone}},
      // On SSD only: read back, or overwritten whole without reading.
      {{kSsd, kNone}, {kSsd, kReadingIn}},
      {{kSsd, kReadingIn}, {kRamSsd, kNone}},
      {{kSsd, kReadingIn}, {kSsd, kNone}},
      {{kSsd, kReadingIn}, {kFreed, kReadingIn}},
      {{kSsd, kNone}, {kRamSsd, kLeasedWrite}},
      {{kSsd, kNone}, {kFreed, kNone}},
      // Torn: rewritten, accepted as it stands, or freed.
      {{kTorn, kNone}, {kTorn, kLeasedWrite}},
      {{kTorn, kLeasedWrite}, {kRam, kNone}},
      {{kTorn, kLeasedWrite}, {kTorn, kNone}},
      {{kTorn, kNone}, {kRam, kNone}},
      {{kTorn, kNone}, {kFreed, kNone}},
      // Freed in the middle of a transfer.
      {{kFreed, kWritingOut}, {kFreed, kNone}},
      {{kFreed, kReadingIn}, {kFreed, kNone}},
      {{kFreed, kDraining}, {kFreed, kNone}},
  });
}();

constexpr uint32_t StateNumber(PieceState state) {
  return static_cast<uint32_t>(state.copies) * kActivityCount + static_cast<uint32_t>(state.activity);
}

// Bit `to` of word `from`: the table as one load and one shift.
inline constexpr auto kLegalMoves = [] {
  std::array<uint64_t, size_t{kCopiesCount} * kActivityCount> legal{};
  for (const Move& move : kMoves) legal[StateNumber(move.from)] |= uint64_t{1} << StateNumber(move.to);
  return legal;
}();

constexpr bool IsLegalMove(PieceState from, PieceState to) {
  return (kLegalMoves[StateNumber(from)] >> StateNumber(to) & 1) != 0;
}

// Whether a piece may ever be in this state.
constexpr bool IsLegalState(PieceState state) {
  if (state == PieceState{}) return true;
  for (const Move& move : kMoves) {
    if (move.to == state) return true;
  }
  return false;
}

constexpr std::string_view CopiesName(Copies copies) {
  constexpr std::string_view kNames[kCopiesCount] = {"creating", "ram", "ssd", "ram+ssd", "torn", "freed"};
  return kNames[static_cast<uint8_t>(copies)];
}
constexpr std::string_view ActivityName(Activity activity) {
  constexpr std::string_view kNames[kActivityCount] = {"none",         "writing_out", "reading_in",
                                                       "leased_write", "draining",    "moving"};
  return kNames[static_cast<uint8_t>(activity)];
}

}  // namespace tier::tiering
