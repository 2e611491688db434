// Random histories of a device: it always finds its way back, and never asks to be looked at in the past.
#include "daemon/storage/device_health.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace tier::storage {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Whatever happened: once everything succeeds it is online again within the longest probe and trial delays, and no
// deadline lies in the past when nothing was due.
TEST(DeviceHealthProperty, ComesBackWhenTheDeviceDoes) {
  const bool holds = rc::check("health", [] {
    DeviceHealth health;
    base::TimePoint now{seconds(1)};
    bool probing = false;
    std::vector<Direction> under_way;
    const auto settle = [&](int error) {
      for (const Direction direction : under_way) health.OnEnded(direction, error, now);
      under_way.clear();
      if (std::exchange(probing, false)) health.OnProbeEnded(error, now);
    };
    const auto look = [&] {
      health.OnTime(now);
      if (health.ProbeDue(now)) {
        health.OnProbeStarted(now);
        probing = true;
      }
    };
    const auto steps = *rc::gen::inRange(0, 60);
    for (int i = 0; i < steps; ++i) {
      switch (*rc::gen::inRange(0, 5)) {
        case 0:
          if (!health.TakesReads()) break;
          under_way.push_back(Direction::kRead);
          health.OnStarted(Direction::kRead, now);
          break;
        case 1:
          if (!health.TakesWrites(now)) break;
          under_way.push_back(Direction::kWrite);
          health.OnStarted(Direction::kWrite, now);
          break;
        case 2: settle(*rc::gen::element(0, EIO, ETIMEDOUT)); break;
        case 3:
          if (const auto next = health.NextDeadline(now)) now = std::max(now, *next);
          break;
        case 4: now = now + milliseconds(*rc::gen::inRange(0, 40'000)); break;
      }
      look();
      if (const auto next = health.NextDeadline(now)) RC_ASSERT(*next >= now);
    }
    const base::TimePoint healed = now;
    while (health.state() != DeviceState::kOnline) {
      settle(0);
      look();
      if (health.TakesWrites(now)) {
        health.OnStarted(Direction::kWrite, now);
        health.OnEnded(Direction::kWrite, 0, now);
      }
      if (health.state() == DeviceState::kOnline) break;
      now = now + milliseconds(1);
      RC_ASSERT(now - healed <= kOfflineProbeMax + kTrialMax + kProbeAgain);
    }
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

}  // namespace
}  // namespace tier::storage
