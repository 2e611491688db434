// Events in the daemon's log: one client in a loop does not fill it, and hides no fault.
#include "daemon/session/event_log_limiter.h"

#include <gtest/gtest.h>

namespace tier::session {
namespace {

constexpr base::TimePoint kStart{std::chrono::seconds(1000)};

Event Of(const std::string& kind) { return {.kind = kind, .job = "train", .message = "session 7 of job 'train'"}; }

TEST(EventLogLimiter, AClientThatConnectsInALoopIsCounted) {
  EventLogLimiter limiter;
  uint32_t told = 0;
  for (int i = 0; i < 1000; ++i) {
    for (const char* kind : {"session_attached", "session_ended"}) told += limiter.Pass(Of(kind), kStart) ? 1 : 0;
  }
  EXPECT_EQ(told, kEventLinesPerPeriodMax);
  const auto next = limiter.Pass(Of("session_attached"), kStart + kWarningPeriod);
  ASSERT_TRUE(next);
  EXPECT_FALSE(next->fault);
  EXPECT_EQ(next->text, "session_attached: session 7 of job 'train' (1800 lines before this one were left out)");
}

TEST(EventLogLimiter, PressureIsToldOnceAMinuteWithWhatWasLeftOut) {
  EventLogLimiter limiter;
  uint32_t told = 0;
  for (int second = 0; second < 60; second += 3)
    told += limiter.Pass(Of("pressure"), kStart + std::chrono::seconds(second)) ? 1 : 0;
  EXPECT_EQ(told, 1u);
  const auto next = limiter.Pass(Of("pressure"), kStart + kPressurePeriod);
  ASSERT_TRUE(next);
  EXPECT_FALSE(next->fault);
  EXPECT_EQ(next->text, "pressure: session 7 of job 'train' (19 lines before this one were left out)");
  EXPECT_TRUE(limiter.Pass(Of("session_attached"), kStart)) << "other events have a limit of their own";
}

TEST(EventLogLimiter, AReloadLogsItself) {
  EventLogLimiter limiter;
  EXPECT_FALSE(limiter.Pass(Of("config_reloaded"), kStart));
  EXPECT_FALSE(limiter.Pass(Of("config_reload_failed"), kStart));
  EXPECT_TRUE(limiter.Pass(Of("config_changed"), kStart))
      << "that an administrator set an option is not logged otherwise";
}

TEST(EventLogLimiter, ASessionThatIsEndedByForceIsAWarningAndCounted) {
  EventLogLimiter limiter;
  const auto first = limiter.Pass(Of("session_revoked"), kStart);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->fault);
  uint32_t told = 1;
  for (int i = 0; i < 1000; ++i) told += limiter.Pass(Of("session_revoked"), kStart) ? 1 : 0;
  EXPECT_EQ(told, kEventLinesPerPeriodMax) << "a client that breaks the protocol in a loop";
}

TEST(EventLogLimiter, FaultsAreToldWhateverClientsDo) {
  EventLogLimiter limiter;
  while (limiter.Pass(Of("session_attached"), kStart)) continue;
  for (const char* kind : {"io_error", "corrupt", "torn", "unpinned", "forced_return", "degraded", "device"}) {
    const auto line = limiter.Pass(Of(kind), kStart);
    ASSERT_TRUE(line) << kind;
    EXPECT_TRUE(line->fault);
    EXPECT_EQ(line->text, std::string(kind) + ": session 7 of job 'train'");
  }
}

TEST(EventLogLimiter, ThatADeviceIsOnlineAgainAndWhatAnAdministratorAskedForIsNoFault) {
  EventLogLimiter limiter;
  const auto line = limiter.Pass({.kind = "device", .job = "", .message = "device 0 (/a) is online again"}, kStart);
  ASSERT_TRUE(line);
  EXPECT_FALSE(line->fault);
  for (const char* kind : {"drain", "retry", "device_purged", "draining", "undrained", "recovered"})
    EXPECT_FALSE(limiter.Pass(Of(kind), kStart)->fault) << kind;
}

}  // namespace
}  // namespace tier::session
