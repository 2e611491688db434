// The states of a device, from what comes back from it and from the time that passes.
#include "daemon/storage/device_health.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <gtest/gtest.h>

namespace tier::storage {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class DeviceHealthTest : public ::testing::Test {
 protected:
  void Write(int error) {
    health_.OnStarted(Direction::kWrite, now_);
    health_.OnEnded(Direction::kWrite, error, now_);
  }
  void Read(int error) {
    health_.OnStarted(Direction::kRead, now_);
    health_.OnEnded(Direction::kRead, error, now_);
  }
  void Probe(int error) {
    ASSERT_TRUE(health_.ProbeDue(now_));
    health_.OnProbeStarted(now_);
    EXPECT_FALSE(health_.ProbeDue(now_));
    health_.OnProbeEnded(error, now_);
  }
  // Moves the time on to the next thing that is due.
  void Wait() {
    const auto next = health_.NextDeadline(now_);
    ASSERT_TRUE(next.has_value());
    now_ = std::max(now_, *next);
    health_.OnTime(now_);
  }
  void GoOffline(int error) {
    Write(error);
    for (uint32_t i = 0; i < kProbesBeforeOffline; ++i) {
      while (!health_.ProbeDue(now_)) Wait();
      Probe(error);
    }
    ASSERT_EQ(health_.state(), DeviceState::kOffline);
  }

  DeviceHealth health_;
  base::TimePoint now_{seconds(100)};
};

TEST_F(DeviceHealthTest, IsOnlineWhileEverythingSucceeds) {
  Write(0);
  Read(0);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
  EXPECT_TRUE(health_.TakesWrites(now_) && health_.TakesReads() && health_.quiet());
  EXPECT_FALSE(health_.NextDeadline(now_).has_value());
}

TEST_F(DeviceHealthTest, AFailedWriteMakesItSuspectUntilOneSucceeds) {
  Write(EIO);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  EXPECT_EQ(health_.ErrorText(), "Input/output error");
  EXPECT_TRUE(health_.TakesReads());
  EXPECT_FALSE(health_.TakesWrites(now_)) << "the trial comes a little later";
  Probe(0);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect) << "that it is read says nothing of writes";
  Read(0);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  now_ = now_ + kTrialMin;
  ASSERT_TRUE(health_.TakesWrites(now_));
  health_.OnStarted(Direction::kWrite, now_);
  EXPECT_FALSE(health_.TakesWrites(now_)) << "one trial at a time";
  health_.OnEnded(Direction::kWrite, 0, now_);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
}

TEST_F(DeviceHealthTest, TrialsOfADeviceThatCanOnlyBeReadComeLaterAndLater) {
  base::TimePoint last = now_;
  Write(EROFS);
  Probe(0);
  base::Duration between{};
  for (int trial = 0; trial < 20; ++trial) {
    if (health_.ProbeDue(now_)) Probe(0);
    while (!health_.TakesWrites(now_)) Wait();
    EXPECT_GE(now_ - last, between);
    between = now_ - last;
    last = now_;
    Write(EROFS);
    ASSERT_EQ(health_.state(), DeviceState::kSuspect);
  }
  EXPECT_EQ(between, kTrialMax);
}

TEST_F(DeviceHealthTest, AFailedReadIsSettledByTheProbe) {
  Read(EIO);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  Probe(0);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
}

TEST_F(DeviceHealthTest, ADeviceThatDoesNotAnswerGoesOfflineAndComesBackBySuspicion) {
  GoOffline(EIO);
  EXPECT_FALSE(health_.TakesWrites(now_) || health_.TakesReads());
  base::Duration between{};
  for (int probe = 0; probe < 10; ++probe) {
    const base::TimePoint before = now_;
    while (!health_.ProbeDue(now_)) Wait();
    EXPECT_GE(now_ - before, between);
    between = now_ - before;
    Probe(EIO);
    EXPECT_EQ(health_.state(), DeviceState::kOffline);
  }
  EXPECT_EQ(between, kOfflineProbeMax);
  while (!health_.ProbeDue(now_)) Wait();
  Probe(0);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  ASSERT_TRUE(health_.TakesReads());
  while (!health_.TakesWrites(now_)) Wait();
  Write(0);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
}

TEST_F(DeviceHealthTest, WhatComesBackFromBeforeDoesNotBringAnOfflineDeviceBack) {
  health_.OnStarted(Direction::kWrite, now_);
  GoOffline(EIO);
  health_.OnEnded(Direction::kWrite, 0, now_);
  EXPECT_EQ(health_.state(), DeviceState::kOffline) << "only a probe does";
}

TEST_F(DeviceHealthTest, ADeviceThatSaysItIsNoMoreIsGoneAndLookedAtNowAndThen) {
  Write(EIO);
  Probe(ENODEV);
  EXPECT_EQ(health_.state(), DeviceState::kGone);
  EXPECT_EQ(health_.ErrorText(), "No such device");
  EXPECT_FALSE(health_.TakesWrites(now_) || health_.TakesReads());
  EXPECT_FALSE(health_.ProbeDue(now_ + seconds(59)));
  now_ = now_ + kGoneProbe;
  Probe(ENODEV);
  EXPECT_EQ(health_.state(), DeviceState::kGone);
  now_ = now_ + kGoneProbe;
  Probe(0);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect) << "some come back under the same descriptor";
}

TEST_F(DeviceHealthTest, SilenceMakesItSuspectThenOffline) {
  health_.OnStarted(Direction::kRead, now_);
  const base::TimePoint start = now_;
  Wait();
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  EXPECT_EQ(now_ - start, kSilenceSuspect);
  EXPECT_EQ(health_.ErrorText(), "nothing came back for 10 s");
  EXPECT_FALSE(health_.TakesWrites(now_)) << "a trial would hang too";
  ASSERT_TRUE(health_.ProbeDue(now_));
  health_.OnProbeStarted(now_);
  Wait();
  EXPECT_EQ(health_.state(), DeviceState::kOffline);
  EXPECT_EQ(now_ - start, kSilenceOffline);
  EXPECT_EQ(health_.ErrorText(), "nothing came back for 30 s");
  EXPECT_FALSE(health_.NextDeadline(now_).has_value()) << "its probe hangs";
  health_.OnEnded(Direction::kRead, 0, now_);
  health_.OnProbeEnded(0, now_);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  Write(0);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
}

TEST_F(DeviceHealthTest, ASlowDeviceIsTrustedAgainWithTheFirstThatComesBack) {
  health_.OnStarted(Direction::kRead, now_);
  health_.OnStarted(Direction::kWrite, now_);
  Wait();
  ASSERT_EQ(health_.state(), DeviceState::kSuspect);
  health_.OnEnded(Direction::kRead, 0, now_);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect) << "the write is still silent";
  health_.OnEnded(Direction::kWrite, 0, now_);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
}

TEST_F(DeviceHealthTest, ADeviceThatHangsForWritesOnlyIsReadAndTakesNone) {
  health_.OnStarted(Direction::kWrite, now_);
  Wait();
  ASSERT_EQ(health_.state(), DeviceState::kSuspect);
  Probe(0);
  for (int minute = 0; minute < 5; ++minute) {
    now_ = now_ + seconds(60);
    health_.OnTime(now_);
    EXPECT_EQ(health_.state(), DeviceState::kSuspect);
    EXPECT_TRUE(health_.TakesReads());
    EXPECT_FALSE(health_.TakesWrites(now_));
  }
  health_.OnEnded(Direction::kWrite, 0, now_);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
}

TEST_F(DeviceHealthTest, AShortageOfTheSystemSaysNothingOfTheDevice) {
  Write(EIO);
  for (int probe = 0; probe < 10; ++probe) {
    Probe(EAGAIN);
    now_ = now_ + kProbeAgain;
  }
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
}

// The daemon was stopped for a minute, not the device.
TEST_F(DeviceHealthTest, TimeThatPassedAtOnceDoesNotPutItAside) {
  health_.OnStarted(Direction::kRead, now_);
  now_ = now_ + seconds(60);
  health_.OnTime(now_);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  health_.OnTime(now_ + milliseconds(1));
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  health_.OnEnded(Direction::kRead, 0, now_);
  EXPECT_EQ(health_.state(), DeviceState::kOnline);
}

TEST_F(DeviceHealthTest, WhatTheDeviceHadNoPartInSaysNothing) {
  Write(EIO);
  now_ = now_ + kTrialMin;
  health_.OnStarted(Direction::kWrite, now_);
  health_.OnEndedUnjudged(Direction::kWrite, now_);
  EXPECT_EQ(health_.state(), DeviceState::kSuspect);
  EXPECT_TRUE(health_.TakesWrites(now_)) << "the next one is the trial";
}

}  // namespace
}  // namespace tier::storage
