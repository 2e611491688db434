// What an operator sees at log level debug: changes, a line for each kind, and nothing where nothing happens.
#include "daemon/activity_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

tiering::EngineSnapshot Idle() {
  tiering::EngineSnapshot snapshot;
  snapshot.arena_max_bytes = 64 * kMiB;
  snapshot.devices.resize(1);
  return snapshot;
}

TEST(ActivityReport, ADaemonThatDoesNothingSaysNothing) {
  ActivityReport report;
  EXPECT_THAT(report.Note(Idle()), IsEmpty());
  EXPECT_THAT(report.Note(Idle()), IsEmpty());
}

TEST(ActivityReport, ChangesAreToldOnce) {
  ActivityReport report;
  (void)report.Note(Idle());
  tiering::EngineSnapshot busy = Idle();
  busy.window_count = 3;
  busy.arena_bytes = 6 * kMiB;
  busy.waiting_count = 2;
  busy.requests[1][static_cast<size_t>(Code::kOk)] = 7;
  busy.requests[2][static_cast<size_t>(Code::kOk)] = 1;
  busy.requests[2][static_cast<size_t>(Code::kTimeout)] = 4;
  busy.devices[0].traffic = {.read_bytes = 2 * kMiB, .read_requests = 1, .errors = 1, .retries = 5};
  EXPECT_THAT(report.Note(busy),
              ElementsAre("windows: 3 (+3), 6 MiB of 64 MiB", "requests: answered 8 OK, 4 TIMEOUT; 2 wait",
                          "device 0: read 2 MiB in 1 requests, wrote 0 bytes in 0; 5 retried, 1 failed, 0 with a wrong "
                          "checksum, 0 without their memory; 0 under way"));
  EXPECT_THAT(report.Note(busy), IsEmpty());
  EXPECT_THAT(report.Note(Idle()).front(), "windows: 0 (-3), 0 bytes of 64 MiB");
}

TEST(ActivityReport, SessionsAreToldWithTheirTensors) {
  ActivityReport report;
  (void)report.Note(Idle());
  tiering::EngineSnapshot attached = Idle();
  attached.session_count = 2;
  attached.jobs.resize(1);
  attached.tensor_count = 5;
  attached.lease_count = 1;
  EXPECT_THAT(report.Note(attached), ElementsAre("sessions: 2 of 1 job, with 5 tensors and 1 lease"));
}

TEST(ActivityReport, AfterAPauseItSaysHowThingsStand) {
  ActivityReport report;
  tiering::EngineSnapshot busy = Idle();
  busy.window_count = 3;
  (void)report.Note(busy);
  report.Restart();
  EXPECT_THAT(report.Note(busy), ElementsAre("windows: 3 (+3), 0 bytes of 64 MiB"));
}

}  // namespace
}  // namespace tier
