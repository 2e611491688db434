// How long failed transfers and corrupt pieces of a device make the daemon degraded, and whose they are.
#include "daemon/session/device_faults.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/degraded.h"
#include "tests/support/session/control_callers.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using std::chrono::minutes;
using testing::Collector;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kAdmin;
using testing::kAlice;
using testing::kBob;
using testing::ManualClock;
using testing::SessionWorld;

constexpr base::TimePoint After(base::Duration passed) { return {passed}; }

TEST(DeviceFaults, AreRecentForAnHourBehindTheLastOfThem) {
  DeviceFaults faults;
  faults.Note({.errors = 1}, After(minutes(0)));
  faults.Note({.errors = 1}, After(minutes(30)));
  faults.Note({.errors = 1, .corrupt = 2}, After(minutes(50)));
  EXPECT_EQ(faults.Recent(After(minutes(109))).errors, 1u);
  EXPECT_EQ(faults.Recent(After(minutes(109))).corrupt, 2u);
  EXPECT_EQ(faults.Recent(After(minutes(110))).errors, 0u) << "an hour behind the last";
  EXPECT_EQ(faults.Recent(After(minutes(110))).corrupt, 0u);
  faults.Note({.errors = 1, .corrupt = 5}, After(minutes(200)));
  EXPECT_EQ(faults.Recent(After(minutes(201))).errors, 0u) << "those before the quiet hour are not recent again";
  EXPECT_EQ(faults.Recent(After(minutes(201))).corrupt, 3u);
}

TEST(DeviceFaults, EndAtOnceWhereAnAdministratorAcknowledgesThem) {
  DeviceFaults faults;
  faults.Note({.corrupt = 187}, After(minutes(0)));
  faults.Acknowledge();
  EXPECT_EQ(faults.Recent(After(minutes(0))).corrupt, 0u);
  faults.Note({.corrupt = 187}, After(minutes(1)));
  EXPECT_EQ(faults.Recent(After(minutes(1))).corrupt, 0u) << "none of them is new";
  faults.Note({.corrupt = 188}, After(minutes(2)));
  EXPECT_EQ(faults.Recent(After(minutes(2))).corrupt, 1u);
}

class DegradedByFaults : public ::testing::Test {
 protected:
  std::vector<std::string> Causes() {
    std::vector<std::string> texts;
    for (const Degradation& each : DegradedBy(*world_.control().Describe())) texts.push_back(each.text);
    std::erase_if(texts, [](const std::string& text) { return !text.starts_with("device "); });
    return texts;
  }
  void Look() {
    world_.OnEngine([&] { world_.control().EmitChanges(); });
  }
  void Pass(base::Duration time) {
    world_.OnEngine([&] { clock_.now = clock_.now + time; });
  }
  void Corrupt(uint64_t pieces) {
    world_.OnEngine([&] {
      world_.engine.snapshot.devices.resize(1);
      world_.engine.snapshot.devices[0].traffic.corrupt += pieces;
    });
    Pass(minutes(1));  // The figures are taken again.
  }

  ManualClock clock_;
  SessionWorld world_{{.clock = &clock_}};
};

TEST_F(DegradedByFaults, EndsAnHourBehindTheLastWithoutARestart) {
  Collector events({"degraded", "recovered"});
  const auto watch = world_.control().Watch(kAdmin, events.callback());
  Corrupt(187);
  Look();
  EXPECT_THAT(Causes(), ElementsAre("device 0 corrupt pieces: 187"));
  Pass(minutes(59));
  Look();
  EXPECT_THAT(Causes(), ElementsAre("device 0 corrupt pieces: 187"));
  Pass(minutes(1));
  Look();
  EXPECT_THAT(Causes(), IsEmpty());
  EXPECT_EQ(events.Wait(0).kind, "degraded");
  EXPECT_EQ(events.Wait(1).kind, "recovered");
  EXPECT_EQ(events.count(), 2u);
}

// The engine counts a piece for its job when it takes the result, the device when the read ends.
TEST_F(DegradedByFaults, ACorruptPieceIsToldOfItsJob) {
  const uint64_t train = world_.control().OpenJob(kAlice, {.name = "train"})->id;
  const uint64_t other = world_.control().OpenJob(kBob, {.name = "train"})->id;
  Collector events({"corrupt"});
  const auto watch = world_.control().Watch(kAdmin, events.callback());
  const auto charge = [&](uint64_t of_train, uint64_t of_other) {
    world_.OnEngine([&] {
      world_.engine.snapshot.corrupt_pieces = {{.job = tiering::JobId{train}, .key = "1000/train", .count = of_train},
                                               {.job = tiering::JobId{other}, .key = "1001/train", .count = of_other}};
    });
    Pass(minutes(1));
    Look();
  };
  Corrupt(5);
  Look();
  charge(4, 1);
  charge(4, 1);
  EXPECT_EQ(events.Wait(0).job, "train");
  EXPECT_THAT(events.Wait(0).message, HasSubstr("4 pieces of job 'train' of uid 1000 came back from device 0"));
  EXPECT_THAT(events.Wait(1).message, HasSubstr("1 piece of job 'train' of uid 1001 came back from device 0"));
  EXPECT_EQ(events.count(), 2u) << "and the device is not told of them again";
  Corrupt(2);  // Of what a job persisted that is not open.
  Look();
  charge(4, 1);
  EXPECT_EQ(events.Wait(2).job, "");
  EXPECT_THAT(events.Wait(2).message, HasSubstr("2 pieces of no open job came back from device 0"));
  // No process joined the job in all these minutes: it has ended.
  ASSERT_EQ(world_.control().CloseJob(kAlice, "train", {.purge = true}).error().code, Code::kNotFound);
  Corrupt(3);
  charge(7, 1);
  EXPECT_EQ(events.Wait(3).job, "train");
  EXPECT_EQ(events.Wait(3).uid, std::optional(1000u)) << "also where it ended at once";
  EXPECT_THAT(events.Wait(3).message, HasSubstr("3 pieces of job 'train' of uid 1000"));
}

TEST_F(DegradedByFaults, EndsAtOnceByARetryOfTheDevice) {
  Corrupt(187);
  EXPECT_THAT(Causes(), ElementsAre("device 0 corrupt pieces: 187"));
  Corrupt(3);  // Its figures were not taken since.
  EXPECT_TRUE(world_.control().RetryDevice(kAdmin, 0));
  EXPECT_THAT(Causes(), IsEmpty());
  Pass(minutes(1));
  EXPECT_THAT(Causes(), IsEmpty());
  Corrupt(1);
  EXPECT_THAT(Causes(), ElementsAre("device 0 corrupt pieces: 1"));
}

// Of the same cause, by another device; and of figures that grow.
TEST(Degraded, WhoShowsByWhatItIsDegradedIsToldOfEachChange) {
  ManualClock clock;
  std::vector<std::string> told;  // The engine thread's.
  SessionWorld world(
      {.clock = &clock, .devices = 2, .on_degraded = [&](const std::string& text) { told.push_back(text); }});
  Collector events({"degraded", "recovered"});
  const auto watch = world.control().Watch(kAdmin, events.callback());
  const auto see = [&](storage::DeviceState first, storage::DeviceState second, uint64_t torn) {
    world.OnEngine([&] {
      world.engine.snapshot.devices = {{.state = first, .reason = "it is slow"}, {.state = second, .reason = "gone"}};
      world.engine.snapshot.torn_count = torn;
      world.control().EmitChanges();
      clock.now = clock.now + std::chrono::minutes(1);  // Its figures are taken again.
    });
  };
  constexpr auto kOnline = storage::DeviceState::kOnline;
  constexpr auto kOffline = storage::DeviceState::kOffline;
  see(kOnline, kOnline, 0);
  see(kOffline, kOnline, 0);
  see(kOffline, kOnline, 0);  // Nothing is new.
  see(kOffline, kOffline, 0);
  see(kOnline, kOffline, 1);
  see(kOnline, kOffline, 2);
  see(kOnline, kOnline, 0);
  EXPECT_EQ(world.OnEngine([&] { return told; }),
            (std::vector<std::string>{
                "device 0 offline: it is slow", "device 0 offline: it is slow; device 1 offline: gone",
                "torn tensors: 1; device 1 offline: gone", "torn tensors: 2; device 1 offline: gone", ""}));
  EXPECT_EQ(events.Wait(2).kind, "recovered");
  EXPECT_EQ(events.count(), 3u) << "one for the device, one as tensors are torn, one for the end";
}

}  // namespace
}  // namespace tier::session
