#include "daemon/control/convert.h"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "daemon/session/control_api.h"
#include "tier/v1/error_details.pb.h"

namespace tier::control {
namespace {

TEST(Convert, EveryCodeHasAGrpcCodeOfItsKind) {
  for (uint16_t i = 1; i < kCodeCount; ++i) {
    const auto code = ToGrpcCode(static_cast<Code>(i));
    EXPECT_NE(code, grpc::StatusCode::OK) << CodeName(static_cast<Code>(i));
    EXPECT_NE(code, grpc::StatusCode::UNKNOWN) << CodeName(static_cast<Code>(i));
  }
  EXPECT_EQ(ToGrpcCode(Code::kOk), grpc::StatusCode::OK);
  EXPECT_EQ(ToGrpcCode(static_cast<Code>(4711)), grpc::StatusCode::UNKNOWN);
}

TEST(Convert, StatusKeepsTheSentence) {
  const grpc::Status status = ToStatus(Error{Code::kNoMemory, "asked 3, has 2"}, nullptr);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "asked 3, has 2");
}

TEST(Convert, DetailsNameTheReasonOfEveryCode) {
  for (uint16_t i = 1; i < kCodeCount; ++i) {
    const auto code = static_cast<Code>(i);
    const grpc::Status refused = ToStatus(Error{code, "why"}, nullptr);
    v1::RpcStatus details;
    ASSERT_TRUE(details.ParseFromString(refused.error_details()));
    EXPECT_EQ(details.code(), refused.error_code()) << "a client takes no details of another status";
    EXPECT_EQ(details.message(), refused.error_message());
    ASSERT_EQ(details.details_size(), 1);
    EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
    v1::ErrorInfo reason;
    ASSERT_TRUE(reason.ParseFromString(details.details(0).value()));
    EXPECT_EQ(reason.reason(), CodeName(code));
    EXPECT_EQ(reason.domain(), "tierd");
  }
}

TEST(Convert, ASentenceTooLongForMetadataIsCutBetweenCharacters) {
  const std::string fits(1500, 'x');
  EXPECT_EQ(ToStatus(Error{Code::kInvalid, fits}, nullptr).error_message(), fits);
  for (size_t before = 0; before < 3; ++before) {
    std::string text(before, 'x');
    while (text.size() < 60'000) text += "\u20ac";
    const grpc::Status refused = ToStatus(Error{Code::kInvalid, text}, nullptr);
    const std::string& sentence = refused.error_message();
    ASSERT_TRUE(sentence.ends_with("...")) << sentence;
    EXPECT_TRUE(text.starts_with(sentence.substr(0, sentence.size() - 3)));
    EXPECT_EQ((sentence.size() - 3 - before) % 3, 0u) << "whole characters";
    EXPECT_LT(3 * sentence.size() + refused.error_details().size() * 4 / 3, 7u << 10) << "of 8 KiB";
  }
}

TEST(Convert, RankCountsOnlyWithinAWorld) {
  v1::OpenJobRequest message;
  EXPECT_EQ(FromMessage(message).rank, -1);
  message.set_world_size(2);
  EXPECT_EQ(FromMessage(message).rank, 0);
}

TEST(Convert, OpenJobKeepsEveryField) {
  v1::OpenJobRequest message;
  message.set_name("run-7");
  message.set_token("t");
  message.set_mode(v1::OPEN_MODE_RESUME);
  message.set_named(true);
  message.set_rank(3);
  message.set_world_size(8);
  message.set_guarantee_bytes(1);
  message.set_limit_bytes(2);
  EXPECT_FALSE(FromMessage(message).owner) << "the caller's";
  message.set_uid(0);
  const session::OpenJobRequest request = FromMessage(message);
  EXPECT_EQ(request.name, "run-7");
  EXPECT_EQ(request.token, "t");
  EXPECT_EQ(request.mode, proto::OpenMode::kResume);
  EXPECT_TRUE(request.named);
  EXPECT_EQ(request.rank, 3);
  EXPECT_EQ(request.world_size, 8);
  EXPECT_EQ(request.owner, 0u);
  EXPECT_EQ(request.guarantee_bytes, 1u);
  EXPECT_EQ(request.limit_bytes, 2u);
}

TEST(Convert, EveryOpenModeIsTheHandshakesAndNoneIsToAttach) {
  const std::pair<v1::OpenMode, proto::OpenMode> modes[] = {
      {v1::OPEN_MODE_UNSPECIFIED, proto::OpenMode::kAttach},
      {v1::OPEN_MODE_ATTACH, proto::OpenMode::kAttach},
      {v1::OPEN_MODE_CREATE, proto::OpenMode::kCreate},
      {v1::OPEN_MODE_JOIN, proto::OpenMode::kJoin},
      {v1::OPEN_MODE_RESUME, proto::OpenMode::kResume},
      {v1::OPEN_MODE_RESUME_OR_CREATE, proto::OpenMode::kResumeOrCreate}};
  for (const auto& [named, meant] : modes) {
    v1::OpenJobRequest message;
    message.set_mode(named);
    EXPECT_EQ(FromMessage(message).mode, meant) << named;
  }
}

TEST(Convert, AModeOfMoreThanSixteenBitsIsRefused) {
  for (const int mode : {-1, 6, 65'535, 65'536, 65'537, -65'536}) {
    v1::OpenJobRequest message;
    message.set_name("run-7");
    message.set_mode(static_cast<v1::OpenMode>(mode));
    const auto valid = session::ValidateOpenJob(FromMessage(message));
    ASSERT_FALSE(valid.has_value()) << mode;
    EXPECT_EQ(valid.error().code, Code::kInvalid) << mode;
  }
}

v1::DrainRequest DrainOf(int64_t seconds, int32_t nanoseconds) {
  v1::DrainRequest message;
  message.mutable_timeout()->set_seconds(seconds);
  message.mutable_timeout()->set_nanos(nanoseconds);
  return message;
}

TEST(Convert, ADrainTimeoutIsRoundedUpAndBounded) {
  using std::chrono::milliseconds;
  EXPECT_EQ(DrainTimeoutOf({}), kDrainTimeoutDefault) << "none is given";
  EXPECT_EQ(DrainTimeoutOf(DrainOf(0, 0)), kDrainTimeoutDefault);
  EXPECT_EQ(DrainTimeoutOf(DrainOf(0, 1)), milliseconds(1)) << "a short one is not the default";
  EXPECT_EQ(DrainTimeoutOf(DrainOf(2, 500'000'000)), milliseconds(2500));
  EXPECT_EQ(DrainTimeoutOf(DrainOf(3599, 999'999'999)), kDrainTimeoutMax);
  EXPECT_EQ(DrainTimeoutOf(DrainOf(INT64_MAX, 999'999'999)), kDrainTimeoutMax);
}

TEST(Convert, ADrainTimeoutThatIsNoneIsRefused) {
  const std::pair<int64_t, int32_t> refused[] = {{-1, 0}, {0, -1}, {INT64_MIN, 0},
                                                 {1, -1}, {-1, 1}, {0, 1'000'000'000}};
  for (const auto& [seconds, nanoseconds] : refused) {
    const auto timeout = DrainTimeoutOf(DrainOf(seconds, nanoseconds));
    ASSERT_FALSE(timeout) << seconds << " " << nanoseconds;
    EXPECT_EQ(timeout.error().code, Code::kInvalid);
    EXPECT_NE(timeout.error().message.find(std::to_string(seconds) + " s"), std::string::npos);
  }
}

// The words are the engine's, the metrics' and the configuration's: each has its enumerator.
TEST(Convert, EveryWordOfAModeHasItsEnumerator) {
  session::DaemonDescription daemon;
  v1::NodeStatus message;
  const auto told = [&] {
    message.Clear();
    ToMessage(daemon, &message);
    return message;
  };
  const auto expect = [&](std::string* word, auto read, std::initializer_list<const char*> words) {
    int number = 0;
    for (const char* each : words) {
      *word = each;
      EXPECT_EQ(read(told()), ++number) << each;
    }
    *word = "of another release";
    EXPECT_EQ(read(told()), 0);
  };
  expect(&daemon.io_mode, [](const auto& m) { return m.io_mode(); }, {"io_uring", "threads"});
  expect(&daemon.memory_mode, [](const auto& m) { return m.memory_mode(); }, {"pinned", "unpinned"});
  expect(&daemon.spin_mode, [](const auto& m) { return m.spin_mode(); }, {"auto", "always", "never"});
  expect(&daemon.huge_page_mode, [](const auto& m) { return m.huge_page_mode(); }, {"hugetlb", "thp", "small", "none"});
  expect(&daemon.ssd_mode, [](const auto& m) { return m.ssd_mode(); }, {"full", "reduced", "none"});
  for (const auto state : {storage::DeviceState::kOnline, storage::DeviceState::kSuspect,
                           storage::DeviceState::kOffline, storage::DeviceState::kGone}) {
    session::DeviceDescription device;
    device.now.state = state;
    v1::Device shown;
    ToMessage(device, &shown);
    EXPECT_NE(shown.state(), v1::DEVICE_STATE_UNSPECIFIED) << storage::DeviceStateName(state);
  }
}

TEST(Convert, TimesKeepTheirMilliseconds) {
  session::DaemonDescription daemon;
  daemon.uptime_seconds = 12.25;
  v1::NodeStatus status;
  ToMessage(daemon, &status);
  EXPECT_EQ(status.uptime().seconds(), 12);
  EXPECT_EQ(status.uptime().nanos(), 250'000'000);
  session::Event event;
  event.unix_time_ms = 1'763'985'601'250;
  v1::Event message;
  ToMessage(event, &message);
  EXPECT_EQ(message.event_time().seconds(), 1'763'985'601);
  EXPECT_EQ(message.event_time().nanos(), 250'000'000);
}

TEST(Convert, ARefusedReloadHasItsTime) {
  const session::ReloadFailure failure{.unix_time_ms = 1'763'985'601'250, .why = "line 3", .for_others = "refused"};
  v1::NodeStatus status;
  ToMessage(session::DaemonDescription{}, &status);
  EXPECT_FALSE(status.has_reload_failure_time()) << "none was";
  AddReloadFailure(failure, true, &status);
  EXPECT_EQ(status.reload_failure(), "line 3");
  EXPECT_EQ(status.reload_failure_time().seconds(), 1'763'985'601);
  EXPECT_EQ(status.reload_failure_time().nanos(), 250'000'000);
}

TEST(Convert, AnEventHasTheUserOfItsJob) {
  session::Event event;
  v1::Event message;
  ToMessage(event, &message);
  EXPECT_FALSE(message.has_uid()) << "of no job, which is not root's";
  event.uid = 0;
  event.owner = "pod-a";
  ToMessage(event, &message);
  EXPECT_TRUE(message.has_uid());
  EXPECT_EQ(message.uid(), 0u);
  EXPECT_EQ(message.owner(), "pod-a");
}

v1::SetJobRequest ChangeOf(std::initializer_list<const char*> paths) {
  v1::SetJobRequest message;
  message.set_guarantee_bytes(1);
  message.set_ssd_limit_bytes(4);
  message.mutable_update_mask();
  for (const char* path : paths) message.mutable_update_mask()->add_paths(path);
  return message;
}

TEST(Convert, WithoutAMaskTheTermsThatAreSetChange) {
  v1::SetJobRequest message = ChangeOf({});
  message.clear_update_mask();
  message.set_limit_bytes(0);
  EXPECT_EQ(TermsChangeOf(message).value(),
            (tiering::TermsChange{.guarantee_bytes = 1, .limit_bytes = 0, .ssd_limit_bytes = 4}));
}

TEST(Convert, WithAMaskTheTermsThatItNamesChange) {
  EXPECT_EQ(TermsChangeOf(ChangeOf({"guarantee_bytes"})).value(), tiering::TermsChange{.guarantee_bytes = 1});
  EXPECT_EQ(TermsChangeOf(ChangeOf({"ssd_limit_bytes", "limit_bytes"})).value(),
            (tiering::TermsChange{.limit_bytes = 0, .ssd_limit_bytes = 4}))
      << "named and not set: 0";
  EXPECT_EQ(TermsChangeOf(ChangeOf({"ssd_guarantee_bytes"})).value(), tiering::TermsChange{.ssd_guarantee_bytes = 0});
  EXPECT_EQ(
      TermsChangeOf(ChangeOf({"*"})).value(),
      (tiering::TermsChange{.guarantee_bytes = 1, .limit_bytes = 0, .ssd_guarantee_bytes = 0, .ssd_limit_bytes = 4}));
  EXPECT_FALSE(TermsChangeOf(ChangeOf({})).value().any()) << "an empty mask names nothing";
}

TEST(Convert, AMaskThatNamesNoTermIsRefused) {
  std::string endless;
  while (endless.size() < 5000) endless += "\u20ac";
  for (const char* path :
       {"name", "", "guarantee", "Limit_bytes", "limit_bytes.x", "**", "update_mask", endless.c_str()}) {
    const auto refused = TermsChangeOf(ChangeOf({"limit_bytes", path}));
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_NE(refused.error().message.find("it takes guarantee_bytes"), std::string::npos);
    EXPECT_LT(refused.error().message.size(), 300u);
    EXPECT_TRUE(path != endless || refused.error().message.find("\u20ac...'") != std::string::npos)
        << "whole characters";
  }
}

TEST(Convert, JobCarriesCountersAndRanks) {
  session::JobDescription job;
  job.name = "j";
  job.uid = 7;
  job.ranks = {0, 1};
  job.sessions = {{.id = 5, .rank = 1, .client_pid = 4711}, {.id = 6, .rank = 0, .client_pid = 0}};
  job.counters.ram_bytes = 10;
  job.counters.stall_ns = 1'500'000'000;
  job.counters.guarantee_bytes = 8;
  job.counters.own_guarantee_bytes = 3;
  job.counters.pool.borrowed_bytes = 4;
  job.counters.pool.owed_bytes = 5;
  v1::Job message;
  ToMessage(job, Tokens::kWithout, &message);
  EXPECT_EQ(message.name(), "j");
  EXPECT_EQ(message.ranks_size(), 2);
  ASSERT_EQ(message.sessions_size(), 2);
  EXPECT_EQ(message.sessions(0).id(), 5u);
  EXPECT_EQ(message.sessions(0).rank(), 1);
  EXPECT_EQ(message.sessions(0).client_pid(), 4711);
  EXPECT_EQ(message.sessions(1).client_pid(), 0) << "of another pid namespace";
  EXPECT_EQ(message.ram_bytes(), 10u);
  EXPECT_DOUBLE_EQ(message.stall_seconds_total(), 1.5);
  EXPECT_EQ(message.promised_bytes(), 8u);
  EXPECT_EQ(message.guarantee_bytes(), 3u);
  EXPECT_EQ(message.borrowed_bytes(), 4u);
  EXPECT_EQ(message.owed_bytes(), 5u);
}

TEST(Convert, ATokenGoesOutOnlyWhereItIsAskedFor) {
  session::JobDescription job;
  job.token = "secret";
  v1::Job without;
  ToMessage(job, Tokens::kWithout, &without);
  EXPECT_EQ(without.token(), "");
  v1::Job with;
  ToMessage(job, Tokens::kWith, &with);
  EXPECT_EQ(with.token(), "secret");
}

TEST(Convert, AWindowsNodeIsToldWhereTheHostHasSeveral) {
  session::PoolDescription pool;
  pool.windows = {{.now = {.node = 1}, .owner = 0}, {.now = {}, .owner = 0}};
  v1::GetPoolMapResponse message;
  ToMessage(pool, &message);
  EXPECT_EQ(message.windows(0).numa_node(), 1u);
  EXPECT_FALSE(message.windows(1).has_numa_node());
}

TEST(Convert, WhatProcessesKeepIsToldOfEachJobAndOfAll) {
  session::PoolDescription pool;
  pool.kept_bytes = 12;
  pool.owners = {{.job = "train", .figures = {.kept_bytes = 11}}};
  v1::GetPoolMapResponse message;
  ToMessage(pool, &message);
  EXPECT_EQ(message.kept_bytes(), 12u);
  EXPECT_EQ(message.owners(0).kept_bytes(), 11u);
}

TEST(Convert, WhatIsMadeAheadOfNeedIsToldBesideTheArena) {
  session::PoolDescription pool;
  pool.stock_bytes = 3;
  v1::GetPoolMapResponse map;
  ToMessage(pool, &map);
  EXPECT_EQ(map.arena_stock_bytes(), 3u);
  session::DaemonDescription daemon;
  daemon.engine.stock_bytes = 4;
  v1::NodeStatus status;
  ToMessage(daemon, &status);
  EXPECT_EQ(status.arena_stock_bytes(), 4u);
}

TEST(Convert, PoolKeepsEveryFigureInBytes) {
  session::PoolDescription pool;
  pool.arena_bytes = 1;
  pool.arena_max_bytes = 2;
  pool.owners = {{.job = "train",
                  .uid = 1000,
                  .figures = {.requested_bytes = {10, 20, 30},
                              .held_bytes = {100, 50},
                              .free_bytes = 60,
                              .largest_run_bytes = 40,
                              .borrowed_bytes = 7,
                              .owed_bytes = 8,
                              .returning_bytes = 9}},
                 {.kind = session::PoolOwnerKind::kOtherUsers, .job = {}, .figures = {}},
                 {.kind = session::PoolOwnerKind::kEnded, .job = {}, .figures = {}}};
  for (size_t condition = 0; condition < tiering::kPoolConditions; ++condition) {
    pool.windows.push_back({.now = {.index = WindowIndex{3},
                                    .kind = WindowKind::kSlot,
                                    .condition = static_cast<tiering::PoolCondition>(condition),
                                    .size = 1 << 21,
                                    .place = 1 << 22,
                                    .used_pages = {512, 2, 3}},
                            .owner = 1});
  }
  v1::GetPoolMapResponse message;
  ToMessage(pool, &message);
  EXPECT_EQ(message.arena_bytes(), 1u);
  EXPECT_EQ(message.arena_max_bytes(), 2u);
  const v1::PoolOwner& owner = message.owners(0);
  EXPECT_EQ(owner.kind(), v1::POOL_OWNER_KIND_JOB);
  EXPECT_EQ(owner.job(), "train");
  EXPECT_EQ(owner.uid(), 1000u);
  EXPECT_EQ(owner.held_bytes(), 150u);
  EXPECT_EQ(owner.requested_bytes(), 60u);
  EXPECT_EQ(owner.waste_bytes(), 90u);
  EXPECT_EQ(owner.free_bytes(), 60u);
  EXPECT_EQ(owner.largest_run_bytes(), 40u);
  EXPECT_EQ(owner.borrowed_bytes(), 7u);
  EXPECT_EQ(owner.owed_bytes(), 8u);
  EXPECT_EQ(owner.returning_bytes(), 9u);
  EXPECT_EQ(owner.held_block_bytes(), 100u);
  EXPECT_EQ(owner.held_slot_bytes(), 50u);
  EXPECT_EQ(owner.requested_block_bytes(), 10u);
  EXPECT_EQ(owner.requested_tail_bytes(), 20u);
  EXPECT_EQ(owner.requested_slot_bytes(), 30u);
  EXPECT_EQ(message.owners(1).kind(), v1::POOL_OWNER_KIND_OTHER_USERS);
  EXPECT_EQ(message.owners(2).kind(), v1::POOL_OWNER_KIND_ENDED);
  for (int i = 0; i < message.windows_size(); ++i) {
    EXPECT_EQ(message.windows(i).condition(), i + 1) << "in the order of the engine's, none unspecified";
  }
  const v1::PoolWindow& window = message.windows(0);
  EXPECT_EQ(window.index(), 3u);
  EXPECT_EQ(window.owner(), 1u);
  EXPECT_EQ(window.kind(), v1::POOL_WINDOW_KIND_SLOT);
  EXPECT_EQ(window.size_bytes(), 1u << 21);
  EXPECT_EQ(window.place_bytes(), 1u << 22);
  EXPECT_EQ(window.block_bytes(), 512u * 4096);
  EXPECT_EQ(window.tail_bytes(), 2u * 4096);
  EXPECT_EQ(window.slot_bytes(), 3u * 4096);
}

TEST(Convert, DeviceKeepsEveryFigureOfItsTraffic) {
  session::DeviceDescription device;
  device.index = 3;
  device.now.traffic = {
      .read_bytes = 1, .written_bytes = 2, .errors = 3, .corrupt = 4, .window_faults = 5, .inflight = 6};
  device.now.state = storage::DeviceState::kOffline;
  device.now.reason = "Input/output error";
  device.now.space.doubtful = 7;
  v1::Device message;
  ToMessage(device, &message);
  EXPECT_EQ(message.index(), 3u);
  EXPECT_EQ(message.state(), v1::DEVICE_STATE_OFFLINE);
  EXPECT_EQ(message.state_reason(), "Input/output error");
  EXPECT_EQ(message.doubtful_bytes(), 7u);
  EXPECT_EQ(message.read_bytes_total(), 1u);
  EXPECT_EQ(message.written_bytes_total(), 2u);
  EXPECT_EQ(message.errors_total(), 3u);
  EXPECT_EQ(message.corrupt_total(), 4u);
  EXPECT_EQ(message.window_faults_total(), 5u);
  EXPECT_EQ(message.inflight_count(), 6u);
}

TEST(Convert, ADeviceTellsItsLatencyAndWear) {
  session::DeviceDescription device;
  device.drive_writes_per_day = 0.7;
  auto& writes = device.now.latency.figures[static_cast<size_t>(storage::Direction::kWrite)];
  writes[static_cast<size_t>(storage::Purpose::kAhead)].requests[0] = 98;
  writes[static_cast<size_t>(storage::Purpose::kDemand)].requests[15] = 2;  // 0.5 to 1 s.
  v1::Device message;
  ToMessage(device, &message);
  EXPECT_EQ(message.drive_writes_per_day(), 0.7);
  EXPECT_EQ(message.read_seconds_p99(), 0) << "there was none";
  EXPECT_LT(message.write_seconds_p50(), 1e-4);
  EXPECT_GT(message.write_seconds_p99(), 0.5);
  EXPECT_FALSE(message.has_smart());
}

TEST(Convert, ADeviceTellsItsHealthWhereItIsKnown) {
  session::DeviceDescription device;
  device.smart = {.figures = {.warnings = 1u << static_cast<unsigned>(storage::SmartWarning::kReliability),
                              .temperature_kelvin = 311,
                              .available_spare = 90,
                              .spare_threshold = 10,
                              .percentage_used = 150,
                              .written_bytes = 7,
                              .media_errors = 4},
                  .read_time = 1000,
                  .stale = true};
  v1::Device message;
  ToMessage(device, &message);
  const v1::DeviceSmart& smart = message.smart();
  ASSERT_EQ(smart.warnings_size(), 1);
  EXPECT_EQ(smart.warnings(0), "reliability");
  EXPECT_EQ(smart.temperature_celsius(), 38);
  EXPECT_EQ(smart.available_spare_ratio(), 0.9);
  EXPECT_EQ(smart.spare_threshold_ratio(), 0.1);
  EXPECT_EQ(smart.used_ratio(), 1.5);
  EXPECT_EQ(smart.written_bytes_total(), 7u);
  EXPECT_EQ(smart.media_errors_total(), 4u);
  EXPECT_EQ(smart.read_time().seconds(), 1000);
  EXPECT_TRUE(smart.stale());
  device.smart->figures.temperature_kelvin = 0;
  message.Clear();
  ToMessage(device, &message);
  EXPECT_FALSE(message.smart().has_temperature_celsius()) << "it does not tell";
}

}  // namespace
}  // namespace tier::control
