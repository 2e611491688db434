// Jobs by name over a live engine thread: which are closed, which are meant, and that no list is empty by mistake.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::DataClient;
using ::testing::HasSubstr;
using testing::kAdmin;
using testing::kAlice;
using testing::kBob;
using testing::MakeHello;
using testing::SessionWorld;

TEST(ControlServer, AJobWithProcessesIsClosedOnlyByWhoMeansThat) {
  SessionWorld world;
  DataClient client(world.socket_path());
  ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
  const std::string name = std::to_string(::getuid()) + "/train";
  const Status refused = world.control().CloseJob(kAdmin, name, {.unless_attached = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("has 1 process attached, and closing it ends what these run"));
  EXPECT_EQ(world.control().CloseJob(kAdmin, name, {.purge = true, .unless_attached = true}).error().code,
            Code::kDenied);
  EXPECT_EQ(world.control().CloseJob(kAdmin, "0" + name, {}).error().code, Code::kNotFound) << "one way to write a uid";
  EXPECT_EQ(world.control().ListJobs(kAdmin)->size(), 1U);
  EXPECT_TRUE(world.control().CloseJob(kAdmin, name, {}));
  EXPECT_TRUE(world.control().ListJobs(kAdmin)->empty());
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "resting", .named = true}));
  EXPECT_TRUE(world.control().CloseJob(kAdmin, "1000/resting", {.unless_attached = true}));
}

TEST(ControlServer, NoListIsEmptyBecauseTheEngineDoesNotAnswer) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  const auto blocked = world.BlockEngine();
  EXPECT_EQ(world.control().ListJobs(kAdmin).error().code, Code::kTimeout);
  EXPECT_EQ(world.control().ListStoredManifests(kAdmin, "", 9).error().code, Code::kTimeout);
  EXPECT_EQ(world.control().ListUnopenedReservations(kAdmin, "", 9).error().code, Code::kTimeout);
}

TEST(ControlServer, AUserMayWriteTheOwnUidBeforeAJob) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  ASSERT_TRUE(world.control().OpenJob(kBob, {.name = "1000/train"})) << "a name that looks like hers";
  EXPECT_TRUE(world.control().SetJob(kAlice, "1000/train", {.guarantee_bytes = 1}));
  EXPECT_EQ(world.control().SetJob(kAlice, "1001/train", {.guarantee_bytes = 1}).error().code, Code::kNotFound);
  EXPECT_TRUE(world.control().SetJob(kBob, "1000/train", {.guarantee_bytes = 2})) << "his own";
  EXPECT_EQ(world.control().ListJobs(kAlice)->front().counters.guarantee_bytes, 1U);
  EXPECT_TRUE(world.control().CloseJob(kAlice, "1000/train", {}));
  EXPECT_EQ(world.control().ListJobs(kBob)->size(), 1U);
}

}  // namespace
}  // namespace tier::session
