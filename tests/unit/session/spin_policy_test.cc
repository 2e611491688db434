// When the engine looks for work and when it sleeps.
#include <gtest/gtest.h>

#include "daemon/session/spin_policy.h"

namespace tier::session {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

base::TimePoint Time(base::Duration since_start) { return {since_start}; }

TEST(SpinPolicy, AutoSpinsTwentyMicrosecondsAfterAMessage) {
  SpinPolicy policy(SpinMode::kAuto, 8);
  const base::TimePoint now = Time(std::chrono::seconds(5));
  EXPECT_FALSE(policy.ShouldSpin(now));
  policy.OnMessage(now);
  EXPECT_TRUE(policy.ShouldSpin(now + microseconds(19)));
  EXPECT_FALSE(policy.ShouldSpin(now + microseconds(20)));
}

TEST(SpinPolicy, AutoNeverSpinsWithFewCpus) {
  for (const unsigned cpus : {1u, 2u, 3u}) {
    SpinPolicy policy(SpinMode::kAuto, cpus);
    policy.OnMessage(Time(std::chrono::seconds(5)));
    EXPECT_FALSE(policy.ShouldSpin(Time(std::chrono::seconds(5)))) << cpus;
  }
}

TEST(SpinPolicy, AlwaysAndNeverNeedNoMessage) {
  SpinPolicy always(SpinMode::kAlways, 1);
  EXPECT_TRUE(always.ShouldSpin(Time(std::chrono::hours(1))));
  SpinPolicy never(SpinMode::kNever, 64);
  never.OnMessage(Time(std::chrono::seconds(1)));
  EXPECT_FALSE(never.ShouldSpin(Time(std::chrono::seconds(1))));
}

TEST(SpinPolicy, AnotherModeHoldsAtOnceAndCountsTheSameCpus) {
  SpinPolicy policy(SpinMode::kNever, 8);
  const base::TimePoint now = Time(std::chrono::seconds(5));
  policy.OnMessage(now);
  EXPECT_FALSE(policy.ShouldSpin(now));
  policy.SetMode(SpinMode::kAlways);
  EXPECT_TRUE(policy.ShouldSpin(now + microseconds(30)));
  policy.SetMode(SpinMode::kAuto);
  EXPECT_FALSE(policy.ShouldSpin(now + microseconds(60)));
  policy.OnMessage(now + microseconds(60));
  EXPECT_TRUE(policy.ShouldSpin(now + microseconds(60)));
  policy.SetMode(SpinMode::kNever);
  EXPECT_FALSE(policy.ShouldSpin(now + microseconds(60)));
}

TEST(SpinPolicy, ThereIsAtLeastOneCpu) { EXPECT_GE(AllowedCpus(), 1u); }

// A spinning engine's passes, a microsecond apart.
class Spinner {
 public:
  explicit Spinner(SpinMode mode, unsigned cpus = 1) : policy_(mode, cpus) {}

  // Looks for `span`; false as soon as the policy wants sleep.
  bool SpinsFor(base::Duration span) {
    for (const base::TimePoint end = now_ + span; now_ < end; now_ = now_ + microseconds(1)) {
      if (!policy_.ShouldSpin(now_)) return false;
    }
    return true;
  }
  // How long it sleeps until it would spin again, if it is woken every millisecond.
  base::Duration Pause() {
    const base::TimePoint begin = now_;
    for (; !policy_.ShouldSpin(now_); now_ = now_ + milliseconds(1)) {
    }
    return now_ - begin;
  }
  void Pass(base::Duration span) { now_ = now_ + span; }
  SpinPolicy& policy() { return policy_; }
  base::TimePoint now() const { return now_; }

 private:
  SpinPolicy policy_;
  base::TimePoint now_{std::chrono::hours(1)};
};

TEST(SpinPolicy, AlwaysSleepsForAWhileWhereAnotherThreadHadItsProcessor) {
  Spinner spinner(SpinMode::kAlways);
  EXPECT_TRUE(spinner.SpinsFor(milliseconds(50)));
  spinner.Pass(kProcessorLost);
  EXPECT_FALSE(spinner.SpinsFor(microseconds(1)));
  EXPECT_EQ(spinner.Pause(), kSpinPauseFirst);
  EXPECT_TRUE(spinner.SpinsFor(milliseconds(50))) << "nobody was there any more";
  EXPECT_EQ(spinner.policy().pauses(), 1u);
}

TEST(SpinPolicy, InterruptsAreNotOtherThreads) {
  Spinner spinner(SpinMode::kAlways);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(spinner.SpinsFor(microseconds(100)));
    spinner.Pass(kProcessorLost - microseconds(2));
  }
}

TEST(SpinPolicy, TheTimeOfWorkIsNotLost) {
  Spinner spinner(SpinMode::kAlways);
  EXPECT_TRUE(spinner.SpinsFor(microseconds(5)));
  spinner.policy().OnWork();
  spinner.Pass(milliseconds(7));
  EXPECT_TRUE(spinner.SpinsFor(microseconds(5)));
}

TEST(SpinPolicy, TriesLessOftenWhileTheProcessorStaysWanted) {
  Spinner spinner(SpinMode::kAlways);
  base::Duration expected = kSpinPauseFirst;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(spinner.SpinsFor(microseconds(5)));
    spinner.Pass(milliseconds(3));
    EXPECT_FALSE(spinner.SpinsFor(microseconds(1)));
    EXPECT_EQ(spinner.Pause(), expected) << i;
    expected = std::min(2 * expected, kSpinPauseMax);
  }
  EXPECT_TRUE(spinner.SpinsFor(kSpinPauseMax));
  spinner.Pass(milliseconds(3));
  EXPECT_FALSE(spinner.SpinsFor(microseconds(1)));
  EXPECT_EQ(spinner.Pause(), kSpinPauseFirst) << "one that lasted for long is forgotten";
}

TEST(SpinPolicy, ASleepIsNotALoss) {
  Spinner spinner(SpinMode::kAuto, 8);
  spinner.policy().OnMessage(spinner.now());
  EXPECT_FALSE(spinner.SpinsFor(milliseconds(1)));
  spinner.Pass(std::chrono::seconds(1));
  spinner.policy().OnMessage(spinner.now());
  EXPECT_TRUE(spinner.SpinsFor(microseconds(15)));
}

}  // namespace
}  // namespace tier::session
