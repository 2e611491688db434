// The line by which systemd shows how the service is.
#include "daemon/service_status.h"

#include <gtest/gtest.h>

namespace tier {
namespace {

session::Event Of(const std::string& kind, const std::string& message) {
  return {.kind = kind, .job = {}, .message = message};
}

TEST(ServiceStatus, ShowsWhatHoldsForAsLongAsItHolds) {
  ServiceStatus status;
  status.SetServing("serving");
  EXPECT_EQ(status.Line(), "serving");
  EXPECT_TRUE(status.OnEvent(Of("draining", "no new job is taken")));
  EXPECT_TRUE(status.SetDegraded("device 0 offline"));
  EXPECT_EQ(status.Line(), "serving; degraded: device 0 offline; no new job is taken");
  EXPECT_TRUE(status.OnEvent(Of("undrained", "new jobs are taken again")));
  EXPECT_EQ(status.Line(), "serving; degraded: device 0 offline");
  EXPECT_TRUE(status.SetDegraded("device 1 offline; torn tensors: 2")) << "by something else";
  EXPECT_FALSE(status.SetDegraded("device 1 offline; torn tensors: 2"));
  EXPECT_EQ(status.Line(), "serving; degraded: device 1 offline; torn tensors: 2");
  EXPECT_TRUE(status.SetDegraded(""));
  EXPECT_EQ(status.Line(), "serving");
}

TEST(ServiceStatus, GivesAReasonOnceThoughTheDaemonIsDegradedForIt) {
  const std::string shortage = "no SSD tier, tensors stay in RAM: the disk is full";
  ServiceStatus status;
  status.SetServing("serving");
  status.SetShortage(shortage);
  EXPECT_EQ(status.Line(), "serving; " + shortage) << "the engine was not asked yet";
  EXPECT_TRUE(status.SetDegraded(shortage + "; torn tensors: 3"));
  EXPECT_EQ(status.Line(), "serving; degraded: " + shortage + "; torn tensors: 3");
  EXPECT_TRUE(status.OnEvent(Of("draining", "no new job is taken")));
  EXPECT_EQ(status.Line(), "serving; degraded: " + shortage + "; torn tensors: 3; no new job is taken");
}

TEST(ServiceStatus, WhatTakesLongAsksForMicroseconds) {
  EXPECT_EQ(ExtensionOfTime(std::chrono::seconds(10)), "EXTEND_TIMEOUT_USEC=10000000\n");
  EXPECT_EQ(ExtensionOfTime(base::Duration{1}), "EXTEND_TIMEOUT_USEC=1\n") << "never none";
}

TEST(ServiceStatus, ALaterNoteOfAKindTakesThePlaceOfTheEarlier) {
  ServiceStatus status;
  status.SetServing("serving");
  EXPECT_TRUE(status.OnEvent(Of("prefault", "half is there")));
  EXPECT_TRUE(status.OnEvent(Of("prefault", "all is there")));
  EXPECT_FALSE(status.OnEvent(Of("prefault", "all is there"))) << "nothing is new";
  EXPECT_EQ(status.Line(), "serving; all is there");
}

TEST(ServiceStatus, ShowsThatAConfigurationWasRefusedAndNothingOfTheFile) {
  ServiceStatus status;
  EXPECT_TRUE(status.SetServing("serving"));
  EXPECT_FALSE(status.SetServing("serving")) << "nothing is new";
  EXPECT_TRUE(status.OnEvent(Of("config_reload_failed", "the reload failed: tierd.toml:2: [quota.user.alice] …")));
  EXPECT_EQ(status.Line(),
            "serving; the new configuration was refused, the log says why; all settings stay as they are");
  EXPECT_FALSE(status.OnEvent(Of("config_reload_failed", "the reload failed: tierd.toml:3: …"))) << "the line is so";
  EXPECT_FALSE(status.OnEvent(Of("config_changed", "uid 0 set log.level")));
  EXPECT_TRUE(status.OnEvent(Of("config_reloaded", "tierd.toml was read again")));
  EXPECT_EQ(status.Line(), "serving");
}

TEST(ServiceStatus, IsAboutWhatChangesTheLineAndNothingElse) {
  for (const char* kind : {"draining", "undrained", "prefault", "host_memory", "pinned", "unpinned"})
    EXPECT_TRUE(ServiceStatus::IsAbout(kind)) << kind;
  for (const char* kind : {"session_attached", "job_opened", "drain", "degraded", "recovered"})
    EXPECT_FALSE(ServiceStatus::IsAbout(kind)) << kind;
}

TEST(ServiceStatus, OtherEventsAreNoPartOfIt) {
  ServiceStatus status;
  status.SetServing("serving");
  for (const char* kind : {"drain", "job_opened", "", "undrained", "degraded", "recovered"})
    EXPECT_FALSE(status.OnEvent(Of(kind, "job 'train' is being drained"))) << kind;
  EXPECT_EQ(status.Line(), "serving");
}

}  // namespace
}  // namespace tier
