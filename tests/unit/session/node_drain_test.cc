// A drain, of one job or of the node, by a live engine thread: what it writes, whom it refuses, and that it can end.
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Collector;
using testing::DataClient;
using ::testing::HasSubstr;
using testing::kAdmin;
using testing::kAlice;
using testing::kBob;
using testing::MakeHello;
using testing::ManualClock;
using testing::ScriptedReply;
using testing::SessionWorld;
using testing::SessionWorldOptions;
using testing::SubmittedRequest;

TEST(ControlServer, DrainFlushesEverySessionOfTheJobAndNoOther) {
  SessionWorld world;
  DataClient first(world.socket_path());
  DataClient other(world.socket_path());
  const auto welcome = first.Attach(MakeHello("train"));
  ASSERT_EQ(other.Attach(MakeHello("other")).code, 0);
  EXPECT_TRUE(world.control().Drain(kAdmin, "train", seconds(10)));
  const auto submitted = world.OnEngine([&] { return world.engine.submitted; });
  ASSERT_EQ(submitted.size(), 2u) << "what is the session's own and what is the job's";
  EXPECT_EQ(static_cast<uint64_t>(submitted[0].session), welcome.session);
  EXPECT_EQ(submitted[1].session, tiering::kInternalSession);
  EXPECT_EQ(submitted[1].argument, welcome.job);
  for (const SubmittedRequest& request : submitted) {
    EXPECT_EQ(request.op, proto::Op::kFlush);
    EXPECT_EQ(request.timeout_ms, 10'000u);
    EXPECT_GE(request.sequence, kInternalSequenceFirst);
  }
  EXPECT_TRUE(first.ring().Receive().empty()) << "the client asked nothing and is answered nothing";
}

TEST(ControlServer, DrainWritesWhatJobsWithoutSessionsHold) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "resting", .named = true}));
  world.OnEngine([&] {
    world.engine.answer = [](const SubmittedRequest&) {
      return ScriptedReply{.code = Code::kNoSpace, .detail = "the SSD tier is full"};
    };
  });
  EXPECT_EQ(world.control().Drain(kAlice, "resting", seconds(10)).error().code, Code::kNoSpace);
  EXPECT_EQ(world.control().Drain(kAdmin, "", seconds(10)).error().code, Code::kNoSpace) << "with all of the daemon";
  EXPECT_EQ(world.OnEngine([&] { return world.engine.submitted.size(); }), 2u);
}

TEST(ControlServer, DrainTellsTheFirstFailure) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  world.OnEngine([&] {
    world.engine.answer = [](const SubmittedRequest&) {
      return ScriptedReply{.code = Code::kNoSpace, .detail = "the SSD tier is full"};
    };
  });
  const auto drained = world.control().Drain(kAdmin, "train", seconds(10));
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().code, Code::kNoSpace);
  EXPECT_EQ(drained.error().message, "the SSD tier is full");
}

TEST(ControlServer, WithoutAnSsdTierADrainWritesNothingAndSaysSo) {
  SessionWorld world({.ssd_mode = "none"});
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  for (const char* const job : {"train", ""}) {
    const auto drained = world.control().Drain(kAdmin, job, seconds(10));
    ASSERT_TRUE(drained) << drained.error().message;
    EXPECT_TRUE(drained->stays_in_ram);
  }
  EXPECT_TRUE(world.OnEngine([&] { return world.engine.submitted.empty(); })) << "a write could only fail";
  EXPECT_TRUE(world.control().Describe()->draining);
}

TEST(ControlServer, ADrainWhoseWritesFailClosesTheNodeAllTheSame) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  world.OnEngine([&] {
    world.engine.answer = [](const SubmittedRequest&) { return ScriptedReply{.code = Code::kIoError, .detail = "x"}; };
  });
  EXPECT_EQ(world.control().Drain(kAdmin, "", seconds(10)).error().code, Code::kIoError);
  EXPECT_TRUE(world.control().Describe()->draining);
}

TEST(ControlServer, ADrainOfADrainedNodeWritesAgainAndTellsNobody) {
  SessionWorld world;
  Collector events({"draining", "undrained"});
  const auto watch = world.control().Watch(kAdmin, events.callback());
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "resting", .named = true}));
  EXPECT_FALSE(world.control().Drain(kAdmin, "", seconds(10))->stays_in_ram);
  EXPECT_TRUE(world.control().Drain(kAdmin, "", seconds(10)));
  EXPECT_EQ(world.OnEngine([&] { return world.engine.submitted.size(); }), 2u) << "what is dirty by then";
  EXPECT_TRUE(world.control().Undrain(kAdmin));
  EXPECT_EQ(events.Wait(1).kind, "undrained");
}

TEST(ControlServer, DrainOfASessionThatDiesMeanwhileIsDone) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  world.OnEngine([&] { world.engine.hold = true; });
  auto drained = std::async(std::launch::async, [&] { return world.control().Drain(kAdmin, "train", seconds(20)); });
  while (world.OnEngine([&] { return world.engine.waiting(); }) < 2) {
  }
  client.Close();
  EXPECT_TRUE(drained.get());
}

TEST(ControlServer, DrainOfTheDaemonIsForAdminsAndTakesNoNewJobs) {
  SessionWorld world;
  EXPECT_EQ(world.control().Drain(kAlice, "", seconds(1)).error().code, Code::kDenied);
  EXPECT_TRUE(world.control().Drain(kAdmin, "", seconds(10)));
  EXPECT_TRUE(world.control().Describe()->draining);
  EXPECT_EQ(world.control().OpenJob(kAlice, {.name = "late"}).error().code, Code::kDenied);
  DataClient late(world.socket_path());
  const proto::Welcome refusal = late.Attach(MakeHello("late"));
  EXPECT_EQ(refusal.code, static_cast<uint16_t>(Code::kDenied));
  EXPECT_THAT(refusal.message, HasSubstr("being drained"));
  EXPECT_THAT(refusal.message, HasSubstr("tierctl undrain"));
}

// Who asks afterwards whether a process is attached restarts the daemon by the answer.
TEST(ControlServer, FiguresBehindADrainAreNotOfBeforeIt) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  for (uint32_t i = 0; i < kSnapshotsPerTickMax; ++i) EXPECT_EQ(world.control().Describe()->engine.session_count, 0u);
  world.OnEngine([&] { world.engine.snapshot.session_count = 1; });
  ASSERT_EQ(world.control().Describe()->engine.session_count, 0u) << "as others asked for figures just now";
  EXPECT_TRUE(world.control().Drain(kAdmin, "", seconds(10)));
  EXPECT_EQ(world.control().Describe()->engine.session_count, 1u);
}

TEST(ControlServer, ADrainLeavesTheJobsThatRunUnharmed) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  EXPECT_TRUE(world.control().Drain(kAdmin, "", seconds(10)));
  EXPECT_FALSE(world.OnEngine([&] { return world.engine.draining; })) << "the engine goes on taking requests";
  EXPECT_TRUE(world.control().SetJob(kAdmin, "train", {.limit_bytes = 1 << 30}));
  EXPECT_EQ(world.control().ListJobs(kAdmin)->size(), 1u);
}

TEST(ControlServer, UndrainTakesJobsAgainAndIsForAdmins) {
  SessionWorld world;
  Collector events;
  const auto watch = world.control().Watch(kAdmin, events.callback());
  EXPECT_TRUE(world.control().Undrain(kAdmin)) << "it was not drained";
  EXPECT_TRUE(world.control().Drain(kAdmin, "", seconds(10)));
  EXPECT_EQ(world.control().Undrain(kAlice).error().code, Code::kDenied);
  EXPECT_TRUE(world.control().Describe()->draining);
  EXPECT_TRUE(world.control().Undrain(kAdmin));
  EXPECT_FALSE(world.control().Describe()->draining);
  EXPECT_TRUE(world.control().OpenJob(kAlice, {.name = "early"}));
  EXPECT_EQ(events.Wait(0).kind, "draining");
  EXPECT_EQ(events.Wait(1).kind, "undrained");
  EXPECT_EQ(events.Wait(2).kind, "job_opened");
}

TEST(ControlServer, ADaemonThatStopsIsNeitherDrainedNorUndrained) {
  SessionWorld world;
  world.control().SetStopping();
  EXPECT_EQ(world.control().Undrain(kAdmin).error().code, Code::kDisconnected);
  EXPECT_EQ(world.control().Drain(kAdmin, "", seconds(10)).error().code, Code::kDisconnected);
  EXPECT_TRUE(world.control().Describe()->draining);
}

class DrainOutlives : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tier-drain-XXXXXX";
    directory_ = ::mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  // One daemon behind the other in this directory: each ends without an orderly stop, unless told so.
  SessionWorldOptions Options() const { return {.socket_directory = directory_}; }

  std::string directory_;
};

TEST_F(DrainOutlives, ACrash) {
  {
    SessionWorld world(Options());
    EXPECT_TRUE(world.control().Drain(kAdmin, "", seconds(10)));
  }
  SessionWorld world(Options());
  Collector events;
  world.control().RestoreDrain();
  EXPECT_EQ(world.control().OpenJob(kAlice, {.name = "late"}).error().code, Code::kDenied);
  EXPECT_TRUE(world.control().Describe()->draining);
  const auto watch = world.control().Watch(kAdmin, events.callback());
  world.control().TellRestoredDrain();
  EXPECT_EQ(events.Wait(0).kind, "draining");
  EXPECT_THAT(events.Wait(0).message, HasSubstr("was drained when tierd crashed"));
  EXPECT_TRUE(world.control().Undrain(kAdmin));
  EXPECT_TRUE(world.control().OpenJob(kAlice, {.name = "early"}));
}

TEST_F(DrainOutlives, NoUndrainAndNoOrderlyStop) {
  for (const bool stops : {false, true}) {
    {
      SessionWorld world(Options());
      EXPECT_TRUE(world.control().Drain(kAdmin, "", seconds(10)));
      stops ? world.control().SetStopping() : (void)world.control().Undrain(kAdmin);
    }
    SessionWorld world(Options());
    world.control().RestoreDrain();
    world.control().TellRestoredDrain();
    EXPECT_FALSE(world.control().Describe()->draining) << (stops ? "stopped" : "undrained");
    EXPECT_TRUE(world.control().OpenJob(kAlice, {.name = "next"}));
  }
}

// What is refused, or is of one job, closes no later daemon.
TEST_F(DrainOutlives, NothingWhereTheNodeWasNotDrained) {
  {
    SessionWorld world(Options());
    ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train", .named = true}));
    EXPECT_TRUE(world.control().Drain(kAlice, "train", seconds(10)));
    EXPECT_EQ(world.control().Drain(kAlice, "", seconds(1)).error().code, Code::kDenied);
    world.control().SetStopping();
    EXPECT_EQ(world.control().Drain(kAdmin, "", seconds(1)).error().code, Code::kDisconnected);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(DrainOutlives, ADrainIsNotRefusedWhereItCannotBeMarked) {
  SessionWorld world({.socket_directory = directory_ + "/absent"});
  Collector events;
  const auto watch = world.control().Watch(kAdmin, events.callback());
  const auto drained = world.control().Drain(kAdmin, "", seconds(10));
  ASSERT_TRUE(drained);
  EXPECT_THAT(drained->unmarked, HasSubstr("cannot make")) << "who drains is told";
  const Event told = events.Wait(0);
  EXPECT_EQ(told.kind, "io_error") << "logged as a warning";
  EXPECT_THAT(told.message, HasSubstr("a crash would end the drain: cannot make"));
  EXPECT_EQ(events.Wait(1).kind, "draining");
}

}  // namespace
}  // namespace tier::session
