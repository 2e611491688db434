// ControlApi over a live engine thread: who may do what, and what is told.
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/event_log_limiter.h"
#include "tests/support/session/control_callers.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Collector;
using ::testing::Contains;
using testing::DataClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kAdmin;
using testing::kAlice;
using testing::kBob;
using testing::MakeHello;
using testing::ManualClock;
using testing::ScriptedReply;
using testing::SessionWorld;
using testing::SubmittedRequest;

TEST(ControlServer, OpensJobsByTheRulesOfTheHandshake) {
  SessionWorld world;
  const auto job = world.control().OpenJob(kAlice, {.name = "train", .guarantee_bytes = 5, .limit_bytes = 9 * kMiB});
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->name, "train");
  EXPECT_EQ(job->uid, 1000u);
  EXPECT_TRUE(IsToken(job->token));
  EXPECT_EQ(world.OnEngine([&] { return world.engine.jobs.begin()->second.guarantee_bytes; }), 5u);
  EXPECT_EQ(world.control().OpenJob(kAlice, {.name = "a b"}).error().code, Code::kInvalid);
  EXPECT_EQ(world.control().OpenJob(kAlice, {.name = "train"}).error().code, Code::kAlreadyExists);
  EXPECT_EQ(world.control().OpenJob(Caller{}, {.name = "x"}).error().code, Code::kDenied);
}

TEST(ControlServer, OnlyOwnerTokenOrAdminTouchAJob) {
  SessionWorld world;
  const auto job = world.control().OpenJob(kAlice, {.name = "train"}).value();
  EXPECT_EQ(world.control().SetJob(kBob, "train", {.guarantee_bytes = 1}).error().code, Code::kNotFound);
  EXPECT_EQ(world.control().CloseJob(kAdmin, "absent", {}).error().message,
            "no job 'absent' among the 1 that you may see (tierctl job list)");
  EXPECT_EQ(world.control().ListStalls(kBob, "train").error().message,
            "no job 'train' among the 0 that you may see (tierctl job list)");
  EXPECT_EQ(world.control().CloseJob(kBob, "train", {}).error().code, Code::kNotFound);
  EXPECT_EQ(world.control().ListTensors(kBob, "train", 0, 10).error().code, Code::kNotFound);
  EXPECT_EQ(world.control().Drain(kBob, "train", milliseconds(10)).error().code, Code::kNotFound);
  EXPECT_TRUE(world.control().ListJobs(kBob)->empty());
  const Caller by_token{.uid = kUnknownUid, .admin = false, .token = job.token};
  EXPECT_TRUE(world.control().SetJob(by_token, "train", {.guarantee_bytes = 7, .limit_bytes = 8}));
  EXPECT_EQ(world.OnEngine([&] { return world.engine.jobs.begin()->second.limit_bytes; }), 8u);
  EXPECT_EQ(world.control().ListTensors(kAlice, "train", 0, 2)->tensors.size(), 2u);
  EXPECT_EQ(world.control().ListJobs(kAdmin)->size(), 1u);
  EXPECT_TRUE(world.control().CloseJob(kAdmin, "train", {.purge = true}));
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("close 1 purge")));
}

// The engine gives one tensor of three at a time.
TEST(ControlServer, APageOfTensorsIsFullAndTellsWhetherThereIsAnother) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  const auto ids = [](const tiering::TensorPage& page) {
    std::vector<uint64_t> found;
    for (const auto& tensor : page.tensors) found.push_back(tensor.tensor);
    return found;
  };
  const auto first = world.control().ListTensors(kAlice, "train", 0, 2).value();
  EXPECT_THAT(ids(first), ElementsAre(0, 1));
  ASSERT_NE(first.next, 0u);
  const auto second = world.control().ListTensors(kAlice, "train", first.next, 2).value();
  EXPECT_THAT(ids(second), ElementsAre(2));
  EXPECT_EQ(second.next, 0u);
  const auto whole = world.control().ListTensors(kAlice, "train", 0, 3).value();
  EXPECT_THAT(ids(whole), ElementsAre(0, 1, 2));
  EXPECT_EQ(whole.next, 0u) << "no empty page follows one that holds the last tensor";
}

TEST(ControlServer, StoredManifestsAreListedBehindAName) {
  SessionWorld world;
  world.OnEngine([&] {
    world.engine.kept = {
        {.key = "1000/a", .damage = {}}, {.key = "1000/b", .damage = {}}, {.key = "1001/a", .damage = {}}};
    return 0;
  });
  const auto names = [&](const Caller& caller, const std::string& after, size_t max) {
    std::vector<std::string> found;
    const auto listed = world.control().ListStoredManifests(caller, after, max);
    for (const auto& each : *listed) found.push_back(each.QualifiedName());
    return found;
  };
  EXPECT_THAT(names(kAdmin, "", 2), ElementsAre("1000/a", "1000/b"));
  EXPECT_THAT(names(kAdmin, "1000/b", 2), ElementsAre("1001/a"));
  EXPECT_THAT(names(kAdmin, "1000/aa", 9), ElementsAre("1000/b", "1001/a")) << "also where that one has gone";
  EXPECT_THAT(names(kAlice, "1000/a", 9), ElementsAre("1000/b"));
  EXPECT_TRUE(names(kAdmin, "1001/a", 9).empty());
}

TEST(ControlServer, WhatAClosedJobPersistedIsItsOwnersToSeeAndToRemove) {
  SessionWorld world;
  world.OnEngine([&] {
    world.engine.kept = {{.key = "1000/train", .ssd_bytes = 7, .damage = {}},
                         {.key = "1001/train", .damage = "bad checksum"},
                         {.key = "1001/other", .ssd_bytes = 9, .damage = {}}};
    return 0;
  });
  const auto kept = world.control().ListStoredManifests(kAlice, "", 100).value();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].uid, 1000u);
  EXPECT_EQ(kept[0].name, "train");
  EXPECT_EQ(kept[0].ssd_bytes, 7u);
  EXPECT_EQ(world.control().ListStoredManifests(kAdmin, "", 100)->size(), 3u);
  EXPECT_TRUE(world.control().ListStoredManifests({.uid = 1000, .token = std::string(64, 'a')}, "", 100)->empty())
      << "its job's, no more";
  EXPECT_EQ(world.control().CloseJob(kAlice, "other", {.purge = true}).error().code, Code::kNotFound);
  EXPECT_EQ(world.control().CloseJob(kAlice, "1001/other", {.purge = true}).error().code, Code::kNotFound);
  EXPECT_EQ(world.control().CloseJob(kAdmin, "train", {.purge = true}).error().code, Code::kInvalid) << "of whom?";
  const Status open = world.control().CloseJob(kAlice, "train", {});
  EXPECT_EQ(open.error().code, Code::kNotFound);
  EXPECT_THAT(open.error().message, HasSubstr("--purge"));
  Collector collector;
  const auto watching = world.control().Watch(kAlice, collector.callback()).value();
  EXPECT_TRUE(world.control().CloseJob(kAlice, "train", {.purge = true}));
  EXPECT_EQ(collector.Wait(0).kind, "job_purged");
  EXPECT_TRUE(world.control().CloseJob(kAdmin, "1001/train", {.purge = true}));
  EXPECT_EQ(world.control().ListStoredManifests(kAdmin, "", 100)->size(), 1u);
}

TEST(ControlServer, PurgeTakesNoLiveJobForAPersistedOne) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train", .named = true}));
  ASSERT_TRUE(world.control().OpenJob(kBob, {.name = "brief"}));
  ASSERT_TRUE(world.control().OpenJob(kBob, {.name = "1000/train", .named = true}).has_value());
  world.OnEngine([&] {
    world.engine.kept = {{.key = "1000/1001/train"}, {.key = "1001/brief"}, {.key = "1001/train"}};
    return 0;
  });
  EXPECT_EQ(world.control().CloseJob(kAdmin, "train", {.purge = true}).error().code, Code::kInvalid) << "of whom?";
  const Status live = world.control().CloseJob(kBob, "brief", {.purge = true});
  EXPECT_EQ(live.error().code, Code::kInvalid);
  EXPECT_THAT(live.error().message, HasSubstr("an earlier run's"));
  const std::string token = world.control().ListJobs(kBob)->front().token;
  const Caller by_token{.uid = 1001, .token = token};
  EXPECT_EQ(world.control().CloseJob(by_token, "brief", {.purge = true}).error().code, Code::kInvalid)
      << "nor by its token";
  EXPECT_EQ(world.control().ListJobs(kAdmin)->size(), 3u);
  EXPECT_EQ(world.control().ListStoredManifests(kAdmin, "", 100)->size(), 3u);
  EXPECT_TRUE(world.control().CloseJob(kAdmin, "1001/train", {.purge = true})) << "not that of 1000 with such a name";
  EXPECT_EQ(world.control().ListStoredManifests(kBob, "", 100)->size(), 1u);
  EXPECT_TRUE(world.control().CloseJob(kAdmin, "1000/train", {.purge = true}));
  EXPECT_TRUE(world.control().ListJobs(kAlice)->empty());
  EXPECT_TRUE(world.control().CloseJob(kBob, "brief", {}));
  EXPECT_TRUE(world.control().CloseJob(kBob, "brief", {.purge = true}));
  EXPECT_TRUE(world.control().ListStoredManifests(kBob, "", 100)->empty());
}

TEST(ControlServer, ClosingAJobEndsItsSessions) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  ASSERT_TRUE(world.control().CloseJob(kAdmin, "train", {}));
  const auto end = client.Receive().As<proto::SessionEnd>();
  EXPECT_EQ(end.code, static_cast<uint16_t>(Code::kRevoked));
  EXPECT_TRUE(world.WaitForSessions(0));
}

TEST(ControlServer, DescribesRanksOfLiveSessions) {
  SessionWorld world;
  proto::Hello hello = MakeHello("train");
  hello.rank = 3;
  hello.world_size = 4;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(hello).code, 0);
  const auto jobs = world.control().ListJobs(kAdmin).value();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_THAT(jobs[0].ranks, ElementsAre(3));
  EXPECT_EQ(jobs[0].world_size, 4);
  EXPECT_EQ(jobs[0].token.size(), 64u);
}

TEST(ControlServer, DescribesTheDaemonWithTheEnginesFigures) {
  SessionWorld world;
  world.OnEngine([&] {
    world.engine.snapshot.tensor_count = 42;
    world.engine.snapshot.devices.resize(1);
    world.engine.snapshot.devices[0].space.capacity = 99;
    world.engine.snapshot.devices[0].traffic.written_bytes = 17;
  });
  const auto description = world.control().Describe();
  ASSERT_TRUE(description);
  EXPECT_EQ(description->version, "test");
  EXPECT_EQ(description->engine.tensor_count, 42u);
  EXPECT_EQ(description->devices.at(0).now.space.capacity, 99u);
  EXPECT_EQ(description->devices.at(0).now.traffic.written_bytes, 17u);
  EXPECT_GE(description->uptime_seconds, 0);
  EXPECT_FALSE(description->draining);
}

TEST(ControlServer, WatchersAreToldOnceOfACauseAndOfItsEnd) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  Collector events({"degraded", "recovered"});
  const auto watch = world.control().Watch(kAdmin, events.callback());
  const auto see = [&](storage::DeviceState state, uint64_t quarantined) {
    world.OnEngine([&] {
      world.engine.snapshot.devices = {{.space = {.quarantined = quarantined}, .state = state, .reason = "it is slow"}};
      world.control().EmitChanges();
      clock.now = clock.now + std::chrono::minutes(1);  // Its figures are taken again.
    });
  };
  see(storage::DeviceState::kOnline, 0);
  see(storage::DeviceState::kOffline, 0);
  see(storage::DeviceState::kOffline, kBlockSize);  // The same cause.
  see(storage::DeviceState::kOnline, 0);
  EXPECT_EQ(events.Wait(0).kind, "degraded");
  EXPECT_EQ(events.Wait(0).message, "device 0 offline: it is slow");
  EXPECT_EQ(events.Wait(1).kind, "recovered");
  EXPECT_EQ(events.count(), 2u);
}

TEST(ControlServer, WatchersAreToldOnceThatNothingCanBePersistedAnyMore) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  Collector events({"degraded", "recovered"});
  const auto watch = world.control().Watch(kAdmin, events.callback());
  const std::string failure = "nothing can be persisted or resumed until tierd is restarted: the index was cut short";
  for (int second = 0; second < 3; ++second) {
    world.OnEngine([&] {
      world.engine.snapshot.index_failure = failure;
      world.control().EmitChanges();
      clock.now = clock.now + std::chrono::minutes(1);  // Its figures are taken again.
    });
  }
  EXPECT_EQ(events.Wait(0).kind, "degraded");
  EXPECT_EQ(events.Wait(0).message, failure);
  EXPECT_EQ(events.count(), 1u);
}

TEST(ControlServer, DeviceDrainIsForAdminsAndKnownDevices) {
  SessionWorld world;
  EXPECT_EQ(world.control().DrainDevice(kAlice, 0, true).error().code, Code::kDenied);
  EXPECT_EQ(world.control().DrainDevice(kAdmin, 1, true).error().code, Code::kNotFound);
  EXPECT_TRUE(world.control().DrainDevice(kAdmin, 0, true));
  EXPECT_TRUE(world.control().Describe()->devices.at(0).now.draining);
  EXPECT_TRUE(world.control().DrainDevice(kAdmin, 0, false));
  EXPECT_FALSE(world.control().Describe()->devices.at(0).now.draining);
}

// By whom it was told so: `status` right behind the command, and the line that systemd shows.
TEST(ControlServer, WatchersAreToldThatTheLastDeviceIsDrainedAndThatOneIsUsedAgain) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  Collector events({"degraded", "recovered"});
  const auto watch = world.control().Watch(kAdmin, events.callback());
  const auto drain = [&](bool on) {
    EXPECT_TRUE(world.control().DrainDevice(kAdmin, 0, on));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(world.control().Describe()->devices.at(0).now.draining, on);
    world.OnEngine([&] { world.control().EmitChanges(); });
  };
  drain(true);
  drain(true);
  drain(false);
  EXPECT_THAT(events.Wait(0).message, HasSubstr("no SSD device takes new tensors"));
  EXPECT_EQ(events.Wait(1).kind, "recovered");
  EXPECT_EQ(events.count(), 2u);
}

TEST(ControlServer, QuarantinedPlacesAreRetriedForAdminsOnKnownDevices) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  world.OnEngine([&] { world.engine.snapshot.devices = {{.space = {.quarantined = kBlockSize}}}; });
  EXPECT_EQ(world.control().RetryDevice(kAlice, 0).error().code, Code::kDenied);
  EXPECT_EQ(world.control().RetryDevice(kAdmin, 1).error().code, Code::kNotFound);
  const auto quarantined = [&] { return world.control().Describe()->devices.at(0).now.space.quarantined; };
  for (int i = 0; i < 20; ++i) EXPECT_EQ(quarantined(), kBlockSize);
  EXPECT_TRUE(world.control().RetryDevice(kAdmin, 0));
  EXPECT_EQ(quarantined(), 0u) << "by whom it was told so";
}

TEST(ControlServer, AnObservationHasEachJobWithTheCountersOfTheSameFigures) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  const auto one = world.control().OpenJob(kAlice, {.name = "one"});
  const auto two = world.control().OpenJob(kBob, {.name = "two"});
  ASSERT_TRUE(one && two);
  const auto view = [](uint64_t id, uint64_t ram) {
    return tiering::JobView{.id = tiering::JobId{id}, .counters = {.ram_bytes = ram}};
  };
  world.OnEngine([&] { world.engine.snapshot.jobs = {view(two->id, 7)}; });
  const uint64_t taken = world.OnEngine([&] { return world.engine.snapshots; });
  const auto observed = world.control().Observe();
  ASSERT_TRUE(observed) << observed.error().message;
  EXPECT_EQ(world.OnEngine([&] { return world.engine.snapshots; }), taken + 1);
  ASSERT_EQ(observed->jobs.size(), 1u) << "the other was opened after the figures were taken";
  EXPECT_EQ(observed->jobs[0].name, "two");
  EXPECT_EQ(observed->jobs[0].uid, kBob.uid);
  EXPECT_EQ(observed->jobs[0].token, "");
  EXPECT_EQ(observed->jobs[0].counters.ram_bytes, 7u);
  EXPECT_EQ(observed->daemon.version, world.control().Describe()->version);
}

TEST(ControlServer, AMissingDeviceIsPurgedForAdminsAndItsJobsAreNamed) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  Collector events;
  const auto watch = world.control().Watch(kAdmin, events.callback());
  world.OnEngine([&] {
    world.engine.snapshot.missing = {{.uuid = "1-2", .path = "/dev/b", .reason = "it is gone", .lost_job_count = 1},
                                     {.uuid = "5-6", .path = "/dev/c", .reason = "it is gone", .lost_job_count = 1}};
    world.engine.kept = {{.key = "1001/lost", .damage = "it is gone", .lost_devices = {"1-2"}}};
    world.engine.purge_answer = std::vector<std::string>{"1001/lost"};
  });
  EXPECT_THAT(world.control().ListStoredManifests(kAdmin, "", 100)->at(0).lost_devices, ::testing::ElementsAre("1-2"));
  EXPECT_EQ(world.control().PurgeDevice(kAlice, "1-2").error().code, Code::kDenied);
  EXPECT_EQ(world.control().PurgeDevice(kAdmin, "3-4").error().code, Code::kNotFound);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(world.control().Describe()->engine.missing.size(), 2u);
  EXPECT_THAT(world.control().PurgeDevice(kAdmin, "1-2").value(), ::testing::ElementsAre("1001/lost"));
  EXPECT_EQ(world.control().Describe()->engine.missing.size(), 1u) << "by whom it was told so";
  EXPECT_EQ(events.Wait(0).kind, "device_purged");
  EXPECT_EQ(events.Wait(1).kind, "job_purged");
  EXPECT_EQ(events.Wait(1).job, "lost");
  world.OnEngine([&] { world.engine.purge_answer = Fail(Code::kCorrupt, "a list is damaged"); });
  EXPECT_EQ(world.control().PurgeDevice(kAdmin, "5-6").error().code, Code::kCorrupt);
  EXPECT_EQ(events.count(), 2u) << "nothing has changed";
}

TEST(ControlServer, TellsWatchersWhatBecomesOfADevice) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  Collector events;
  const auto watch = world.control().Watch(kAdmin, events.callback());
  const auto see = [&](const tiering::DeviceView& view) {
    world.OnEngine([&] {
      world.engine.snapshot.devices = {view};
      world.control().EmitChanges();
      world.control().EmitChanges();
      clock.now = clock.now + std::chrono::minutes(1);  // Its figures are taken again.
    });
  };
  see({.state = storage::DeviceState::kOffline, .reason = "Input/output error"});
  see({});
  see({.space = {.quarantined = kBlockSize}});
  see({.space = {.quarantined = kBlockSize}, .failing = true});
  see({.space = {.live = kBlockSize, .quarantined = kBlockSize}, .draining = true});
  see({.space = {.live = kBlockSize, .quarantined = kBlockSize}, .draining = true, .drain_note = "2 MiB stay"});
  see({.space = {.live = kBlockSize, .quarantined = kBlockSize}, .draining = true, .drain_note = "2 MiB still stay"});
  see({.space = {.quarantined = kBlockSize}, .draining = true});
  see({.state = storage::DeviceState::kSuspect, .reason = "nothing came back for 10 s"});
  const std::pair<const char*, bool> kSays[] = {
      // And whether it is a warning in the log.
      {"is offline: Input/output error", true},
      {"is online again", false},
      {"failed twice at places of 2 MiB, which are not used until they are retried", true},
      {"is failing", true},
      {"is not empty yet: 2 MiB stay", false},
      {"is empty: it can be taken out of ssd.devices", false},
      {"is suspect: nothing came back for 10 s", true}};
  EventLogLimiter limiter;
  for (size_t i = 0; i < std::size(kSays); ++i) {
    EXPECT_THAT(events.Wait(i).message, HasSubstr(kSays[i].first));
    EXPECT_EQ(limiter.Pass(events.Wait(i), clock.now)->fault, kSays[i].second) << kSays[i].first;
  }
}

TEST(ControlServer, WatchersSeeWhatTheyMay) {
  SessionWorld world;
  Collector alices;
  Collector bobs;
  const auto first = world.control().Watch(kAlice, alices.callback());
  const auto second = world.control().Watch(kBob, bobs.callback());
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  ASSERT_TRUE(world.control().SetJob(kAlice, "train", {.guarantee_bytes = 1, .limit_bytes = 2}));
  ASSERT_TRUE(world.control().OpenJob(kBob, {.name = "other"}));
  EXPECT_EQ(alices.Wait(0).kind, "job_opened");
  EXPECT_EQ(alices.Wait(1).kind, "job_changed");
  EXPECT_EQ(alices.Wait(1).sequence, 2u);
  EXPECT_EQ(bobs.Wait(0).job, "other");
  EXPECT_EQ(bobs.Wait(0).sequence, 3u) << "one number for all";
  EXPECT_GT(bobs.Wait(0).unix_time_ms, 1'600'000'000'000);
}

TEST(ControlServer, WhoComesBackIsToldWhatHappenedMeanwhile) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  ASSERT_TRUE(world.control().OpenJob(kBob, {.name = "other"}));
  const auto recent = world.control().RecentEvents(kAlice, 0);
  ASSERT_EQ(recent.size(), 1u);
  EXPECT_EQ(recent.front().job, "train");
  ASSERT_TRUE(world.control().CloseJob(kAlice, "train", {}));
  Collector events;
  const auto watch = world.control().WatchFrom(kAlice, recent.front().sequence, events.callback());
  EXPECT_EQ(events.Wait(0).kind, "job_closed");
}

TEST(ControlServer, TellsWatchersWhatBecameWorse) {
  SessionWorld world;
  Collector events;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  const auto watch = world.control().Watch(kAdmin, events.callback());
  world.OnEngine([&] {
    world.engine.snapshot.devices.resize(1);
    world.engine.snapshot.devices[0].traffic.errors = 3;
    world.engine.snapshot.devices[0].traffic.corrupt = 1;
    world.engine.snapshot.devices[0].traffic.window_faults = 5;
    world.engine.snapshot.torn_count = 1;
    world.engine.snapshot.waiting_count = 1;
    world.engine.snapshot.jobs = {{.id = tiering::JobId{1}, .counters = {.torn_count = 1}}};
    world.engine.snapshot.corrupt_pieces = {{.job = tiering::JobId{1}, .key = "1000/train", .count = 1}};
    world.control().EmitChanges();
    world.control().EmitChanges();
  });
  EXPECT_EQ(events.Wait(0).kind, "torn");
  EXPECT_EQ(events.Wait(0).message, "job 'train' has 1 torn tensor");
  EXPECT_EQ(events.Wait(1).kind, "corrupt");
  EXPECT_EQ(events.Wait(2).kind, "io_error");
  EXPECT_EQ(events.Wait(3).kind, "pressure");
  EXPECT_EQ(events.Wait(3).message, "1 request waits for memory, SSD or leases");
  EXPECT_EQ(events.count(), 4u) << "once each";
}

TEST(ControlServer, ManyQuestionsTakeFewSnapshotsOfTheEngine) {
  SessionWorld world;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(world.control().Describe());
  const auto ticks = (std::chrono::steady_clock::now() - begin) / kSnapshotTick + 2;
  EXPECT_LE(world.OnEngine([&] { return world.engine.snapshots; }),
            static_cast<uint64_t>(ticks) * kSnapshotsPerTickMax);
}

TEST(ControlServer, SlowSnapshotsTakeATenthOfTheEnginesTime) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  constexpr auto kSlow = milliseconds(60);
  const base::TimePoint begin = clock.now;
  world.OnEngine([&] { world.engine.on_snapshot = [&] { clock.now = clock.now + kSlow; }; });
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(world.control().Describe());
    world.OnEngine([&] { clock.now = clock.now + milliseconds(5); });
  }
  const auto taken = static_cast<int64_t>(world.OnEngine([&] { return world.engine.snapshots; }));
  EXPECT_GE(taken, 3) << "figures become new";
  EXPECT_LE((taken - 1) * kSlow * kSnapshotTimeShare, clock.now - begin);
}

TEST(ControlServer, JobsAreListedWithTheirFiguresOfNow) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  for (uint64_t bytes = 1; bytes < 2 * kSnapshotsPerTickMax; ++bytes) {
    ASSERT_TRUE(world.control().SetJob(kAlice, "train", {.guarantee_bytes = bytes}));
    EXPECT_EQ(world.control().ListJobs(kAlice)->front().counters.guarantee_bytes, bytes);
  }
  EXPECT_EQ(world.OnEngine([&] { return world.engine.snapshots; }), 0u);
}

TEST(ControlServer, OpeningAndSettingAJobTakeNoSnapshot) {
  SessionWorld world;
  const auto opened = world.control().OpenJob(kAlice, {.name = "train", .guarantee_bytes = 5, .limit_bytes = 9 * kMiB});
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->counters.guarantee_bytes, 5u);
  const auto set = world.control().SetJob(kAlice, "train", {.guarantee_bytes = 6});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->counters.guarantee_bytes, 6u);
  EXPECT_EQ(set->counters.limit_bytes, 9 * kMiB);
  EXPECT_EQ(world.OnEngine([&] { return world.engine.snapshots; }), 0u);
}

TEST(ControlServer, CallsFromManyThreadsAllGetTheirAnswers) {
  SessionWorld world;
  std::vector<std::future<bool>> calls;
  for (int i = 0; i < 16; ++i) {
    calls.push_back(std::async(std::launch::async, [&world, i] {
      const std::string name = "job" + std::to_string(i);
      const Caller caller{.uid = 2000u + static_cast<uint32_t>(i)};
      return world.control().OpenJob(caller, {.name = name}).has_value() && world.control().Describe().has_value() &&
             world.control().CloseJob(caller, name, {}).has_value();
    }));
  }
  for (auto& call : calls) EXPECT_TRUE(call.get());
}

}  // namespace
}  // namespace tier::session
