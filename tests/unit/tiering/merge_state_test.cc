// Which windows are looked at for merges, and how long a job is left alone after one that came to nothing.
#include "daemon/tiering/tables/merge_state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "daemon/tiering/tables/merge_pause.h"

namespace tier::tiering {
namespace {

using std::chrono::seconds;
constexpr uint32_t kWindows = 8;

// The jobs that a walk tries, where each window is of the job with its index.
std::vector<uint32_t> WalkOver(MergeState& state, const std::vector<uint32_t>& jobs) {
  std::vector<uint32_t> tried;
  while (state.any_left()) {
    const uint32_t job = jobs[Value(state.window())];
    if (!state.tried(JobIndex{job}, WindowKind::kBlock)) tried.push_back(job);
    state.NoteTried(JobIndex{job}, WindowKind::kBlock);
    state.Advance(kWindows);
  }
  return tried;
}

TEST(MergeState, EachJobIsTriedOnceInAWalk) {
  MergeState state;
  state.LookAgain(kWindows);
  EXPECT_EQ(WalkOver(state, {0, 0, 32, 32, 64, 64, 0, 32}), (std::vector<uint32_t>{0, 32, 64}));
}

TEST(MergeState, ANewWalkTriesAllOfThem) {
  const std::vector<uint32_t> jobs = {0, 0, 0, 1, 1, 1, 2, 2};
  MergeState state;
  for (uint32_t begin = 0; begin < kWindows; ++begin) {
    state.LookAgain(kWindows);
    EXPECT_EQ(WalkOver(state, jobs).size() >= 3, true) << "from window " << begin;
    state.LookAgain(1);  // The next walk begins one window behind that.
    state.Advance(kWindows);
  }
}

TEST(MergeState, WhatWasTriedIsTriedAgainAfterAChange) {
  const std::vector<uint32_t> jobs = {0, 1, 2, 3, 4, 5, 6, 7};
  for (uint32_t seen = 1; seen < kWindows; ++seen) {
    MergeState state;
    state.LookAgain(kWindows);
    for (uint32_t i = 0; i < seen; ++i) {
      state.NoteTried(JobIndex{jobs[Value(state.window())]}, WindowKind::kBlock);
      state.Advance(kWindows);
    }
    state.LookAgain(kWindows);
    EXPECT_EQ(WalkOver(state, jobs).size(), kWindows) << seen;
  }
}

TEST(MergeState, TheFirstPauseThatEndsIsTheNextDeadline) {
  const base::TimePoint now{seconds(1)};
  MergeState state;
  EXPECT_FALSE(state.NextDeadline().has_value());
  state.NotePaused(now + seconds(5));
  state.NotePaused(now + seconds(2));
  state.NotePaused(now + seconds(9));
  EXPECT_EQ(state.NextDeadline(), now + seconds(2));
  EXPECT_FALSE(state.retry_due(now + seconds(1)));
  EXPECT_TRUE(state.retry_due(now + seconds(2)));
  state.Start({.job = JobId{1}, .kind = WindowKind::kBlock, .target = MergeState::kNoTarget});
  EXPECT_FALSE(state.NextDeadline().has_value()) << "its end is looked at anyway";
  state.End();
  state.LookAgain(kWindows);
  EXPECT_FALSE(state.NextDeadline().has_value()) << "all are looked at again";
}

TEST(MergePause, BecomesTwiceAsLongEachTime) {
  base::TimePoint now{seconds(1)};
  MergePause pause;
  EXPECT_TRUE(pause.over(now, {}));
  for (base::Duration length = kMergePauseFirst; length < kMergePauseLongest; length *= 2) {
    pause.Extend(now);
    EXPECT_EQ(pause.until(), now + length);
    EXPECT_FALSE(pause.over(now, {}));
    now = pause.until();
    EXPECT_TRUE(pause.over(now, {}));
  }
  pause.Extend(now);
  EXPECT_EQ(pause.until(), now + kMergePauseLongest);
  pause.Begin(now);
  EXPECT_EQ(pause.until(), now + kMergePauseFirst);
  pause.Extend(now);
  EXPECT_EQ(pause.until(), now + kMergePauseLongest) << "the row goes on";
  pause.Reset();
  pause.Extend(now);
  EXPECT_EQ(pause.until(), now + kMergePauseFirst);
}

TEST(MergePause, TheLongestEndsOnlyOnceTheJobHasChanged) {
  const MergeGrounds grounds{
      .requested_at{seconds(1)}, .sessions = 2, .used_pages = 3, .free_pages = 4, .wished_bytes = 5};
  base::TimePoint now{seconds(1)};
  MergePause pause;
  while (pause.until() - now != kMergePauseLongest) {
    now = pause.until();
    pause.Extend(now);
  }
  pause.NoteInVain(grounds);
  std::vector<MergeGrounds> changed(5, grounds);
  changed[0].requested_at = now;
  changed[1].sessions = 1;
  changed[2].used_pages = 2;
  changed[3].free_pages = 5;
  changed[4].wished_bytes = 6;
  for (const MergeGrounds& each : changed) {
    EXPECT_FALSE(pause.over(now, each)) << "not before its end";
    EXPECT_TRUE(pause.over(pause.until(), each));
  }
  EXPECT_FALSE(pause.over(pause.until() + std::chrono::hours(1000), grounds));
  pause.Reset();
  EXPECT_TRUE(pause.over(pause.until(), grounds));
}

TEST(MergePause, TheLastTargetIsKeptForSomeTime) {
  const base::TimePoint now{seconds(1)};
  MergePause pause;
  EXPECT_EQ(pause.kept_target(now), MergePause::kNone);
  pause.KeepTarget(WindowIndex{7}, now);
  EXPECT_EQ(pause.kept_target(now), WindowIndex{7});
  EXPECT_EQ(pause.kept_target(now + kMergeTargetKept), MergePause::kNone);
}

}  // namespace
}  // namespace tier::tiering
