// Stalls as messages.
#include "daemon/control/convert_stalls.h"

#include <gtest/gtest.h>

namespace tier::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tiering::StallCause;

session::StallReport ReportOf(const tiering::Stall& stall) {
  session::StallReport report;
  report.list.stalls.push_back({.stall = stall, .key = "layer0"});
  report.list.ended = 9;
  report.list.threshold = milliseconds(1500);
  report.now = base::TimePoint(seconds(100));
  report.now_unix_ms = 1'764'000'000'500;
  return report;
}

tiering::Stall Read() {
  tiering::Stall stall;
  stall.session = tiering::SessionId{12};
  stall.op = proto::Op::kAcquire;
  stall.code = Code::kTimeout;
  stall.tensor = 7;
  stall.space = 12;
  stall.tensor_count = 2;
  stall.requested_bytes = 4096;
  stall.step = 41;
  stall.began = base::TimePoint(seconds(97));
  stall.waited = milliseconds(2500);
  stall.parts[static_cast<size_t>(StallCause::kRam)] = milliseconds(500);
  stall.parts[static_cast<size_t>(StallCause::kSsdRead)] = milliseconds(2000);
  return stall;
}

TEST(ConvertStalls, HaveTheirTimesAndTheLongestPartFirst) {
  v1::ListStallsResponse message;
  ToMessage(ReportOf(Read()), &message);
  EXPECT_EQ(message.ended_total(), 9u);
  EXPECT_EQ(message.threshold().seconds(), 1);
  EXPECT_EQ(message.threshold().nanos(), 500'000'000);
  ASSERT_EQ(message.stalls_size(), 1);
  const v1::Stall& stall = message.stalls(0);
  EXPECT_EQ(stall.operation(), "acquire");
  EXPECT_EQ(stall.id(), 7u);
  EXPECT_EQ(stall.space(), 12u);
  EXPECT_EQ(stall.key(), "layer0");
  EXPECT_EQ(stall.tensor_count(), 2u);
  EXPECT_EQ(stall.requested_bytes(), 4096u);
  EXPECT_EQ(stall.session(), 12u);
  EXPECT_EQ(stall.step(), 41u);
  EXPECT_EQ(stall.begin_time().seconds(), 1'763'999'997) << "3 s before now";
  EXPECT_EQ(stall.begin_time().nanos(), 500'000'000);
  EXPECT_EQ(stall.duration().seconds(), 2);
  ASSERT_EQ(stall.parts_size(), 2);
  EXPECT_EQ(stall.parts(0).cause(), v1::STALL_CAUSE_SSD_READ);
  EXPECT_EQ(stall.parts(0).duration().seconds(), 2);
  EXPECT_EQ(stall.parts(1).cause(), v1::STALL_CAUSE_RAM);
  EXPECT_EQ(stall.parts(1).duration().nanos(), 500'000'000);
  EXPECT_FALSE(stall.waiting());
  EXPECT_EQ(stall.outcome(), "TIMEOUT");
}

TEST(ConvertStalls, OneThatWaitsHasNoOutcome) {
  tiering::Stall stall = Read();
  stall.waiting = true;
  v1::ListStallsResponse message;
  ToMessage(ReportOf(stall), &message);
  EXPECT_TRUE(message.stalls(0).waiting());
  EXPECT_EQ(message.stalls(0).outcome(), "");
}

TEST(ConvertStalls, NoFigureIsTooLargeForJson) {
  tiering::Stall stall = Read();
  stall.step = UINT64_MAX;
  stall.session = tiering::kInternalSession;
  v1::ListStallsResponse message;
  ToMessage(ReportOf(stall), &message);
  EXPECT_EQ(message.stalls(0).step(), (uint64_t{1} << 53) - 1);
  EXPECT_EQ(message.stalls(0).session(), 0u) << "the daemon itself";
}

}  // namespace
}  // namespace tier::control
