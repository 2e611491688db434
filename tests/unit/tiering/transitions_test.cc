#include "daemon/tiering/tables/transitions.h"

#include <gtest/gtest.h>

#include <set>

namespace tier::tiering {
namespace {

std::vector<PieceState> AllStates() {
  std::vector<PieceState> states;
  for (uint8_t copies = 0; copies < kCopiesCount; ++copies) {
    for (uint8_t activity = 0; activity < kActivityCount; ++activity) {
      states.push_back({static_cast<Copies>(copies), static_cast<Activity>(activity)});
    }
  }
  return states;
}

TEST(Transitions, TheMatrixSaysWhatTheTableSays) {
  for (const PieceState from : AllStates()) {
    for (const PieceState to : AllStates()) {
      bool listed = false;
      for (const Move& move : kMoves) listed = listed || (move.from == from && move.to == to);
      EXPECT_EQ(IsLegalMove(from, to), listed) << CopiesName(from.copies) << "/" << ActivityName(from.activity);
    }
  }
}

TEST(Transitions, NoMoveIsListedTwiceAndNoneStandsStill) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const Move& move : kMoves) {
    EXPECT_TRUE(seen.emplace(StateNumber(move.from), StateNumber(move.to)).second);
    EXPECT_FALSE(move.from == move.to);
  }
}

TEST(Transitions, EveryLegalStateCanBeReachedFromFreedAndCanGetBackThere) {
  const auto reach = [](bool forward) {
    std::set<uint32_t> reached = {StateNumber({Copies::kFreed, Activity::kNone})};
    for (size_t round = 0; round < kMoves.size(); ++round) {
      for (const Move& move : kMoves) {
        const uint32_t from = StateNumber(forward ? move.from : move.to);
        if (reached.contains(from)) reached.insert(StateNumber(forward ? move.to : move.from));
      }
    }
    return reached;
  };
  const std::set<uint32_t> from_freed = reach(true);
  const std::set<uint32_t> to_freed = reach(false);
  for (const PieceState state : AllStates()) {
    if (!IsLegalState(state)) continue;
    EXPECT_TRUE(from_freed.contains(StateNumber(state)))
        << CopiesName(state.copies) << "/" << ActivityName(state.activity);
    EXPECT_TRUE(to_freed.contains(StateNumber(state)))
        << CopiesName(state.copies) << "/" << ActivityName(state.activity);
  }
}

TEST(Transitions, NothingIsEvictedOrFreedUnderAWriteLease) {
  for (const Copies copies : {Copies::kRam, Copies::kRamSsd, Copies::kTorn, Copies::kCreating}) {
    EXPECT_FALSE(IsLegalMove({copies, Activity::kLeasedWrite}, {Copies::kFreed, Activity::kNone}));
    EXPECT_FALSE(IsLegalMove({copies, Activity::kLeasedWrite}, {Copies::kFreed, Activity::kLeasedWrite}));
  }
}

TEST(Transitions, ADirtyPieceNeverLosesItsOnlyCopyWithoutBeingTornOrFreed) {
  for (const Activity activity : {Activity::kNone, Activity::kWritingOut, Activity::kLeasedWrite}) {
    for (const Move& move : kMoves) {
      if (!(move.from == PieceState{Copies::kRam, activity})) continue;
      EXPECT_NE(move.to.copies, Copies::kSsd);
      EXPECT_NE(move.to.copies, Copies::kCreating);
    }
  }
}

TEST(Transitions, APieceInTransferIsFreedOnlyInPlace) {
  for (const Activity activity : {Activity::kWritingOut, Activity::kReadingIn, Activity::kDraining}) {
    for (const Move& move : kMoves) {
      if (move.from.activity != activity || move.from.copies == Copies::kFreed) continue;
      if (move.to.copies == Copies::kFreed) {
        EXPECT_EQ(move.to.activity, activity);
      }
    }
  }
}

TEST(Transitions, EveryStateHasAName) {
  for (const PieceState state : AllStates()) {
    EXPECT_FALSE(CopiesName(state.copies).empty());
    EXPECT_FALSE(ActivityName(state.activity).empty());
  }
}

}  // namespace
}  // namespace tier::tiering
