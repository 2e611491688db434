// What events and listings say of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::Collector;
using ::testing::EndsWith;
using testing::kAlice;
using testing::SessionWorld;

TEST(JobWords, ANamedJobThatCannotPersistSaysSoWhenItOpens) {
  for (const bool has_ssd : {true, false}) {
    SessionWorld world({.jobs = {.has_ssd = has_ssd}});
    Collector events({"job_opened"});
    const auto watch = world.control().Watch(kAlice, events.callback());
    ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train", .named = true}));
    ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "brief"}));
    EXPECT_EQ(events.Wait(0).message.find("this daemon has no SSD tier") == std::string::npos, has_ssd)
        << events.Wait(0).message;
    EXPECT_THAT(events.Wait(1).message, EndsWith(" opened")) << "nothing of it outlives the job anyway";
  }
}

}  // namespace
}  // namespace tier::session
