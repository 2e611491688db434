// What events and listings say of a job and its processes.
#include "daemon/session/job_words.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::Collector;
using testing::DataClient;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::kAdmin;
using testing::kAlice;
using testing::MakeHello;
using ::testing::Not;
using testing::SessionWorld;
using ::testing::StartsWith;

TEST(JobWords, ChangedTermsAreSaidInReadableUnitsAndNoneIsNone) {
  tiering::JobCounters has;
  has.guarantee_bytes = 7;  // What it is promised without having asked for any.
  EXPECT_EQ(TermsText(has), "RAM guarantee none, RAM limit none, SSD guarantee none, SSD limit none");
  has.own_guarantee_bytes = 8 * kGiB;
  has.limit_bytes = 512 * kMiB;
  has.ssd_limit_bytes = 3 * kGiB / 2;
  EXPECT_EQ(TermsText(has), "RAM guarantee 8 GiB, RAM limit 512 MiB, SSD guarantee none, SSD limit 1.5 GiB");
}

TEST(JobWords, TheEventOfAChangeSaysTheNewTerms) {
  SessionWorld world;
  Collector events({"job_changed"});
  const auto watch = world.control().Watch(kAlice, events.callback());
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  ASSERT_TRUE(world.control().SetJob(kAlice, "train", {.limit_bytes = 16 * kGiB}));
  EXPECT_THAT(events.Wait(0).message, StartsWith("job 'train' has now RAM guarantee "));
  EXPECT_THAT(events.Wait(0).message, Not(HasSubstr("bytes")));
}

// Whom to look for on the host, when a process keeps what a job or a drain waits for.
TEST(JobWords, AListedJobAndItsEventsNameTheProcessThatTheKernelSees) {
  SessionWorld world;
  Collector events({"session_attached", "session_ended"});
  const auto watch = world.control().Watch(kAdmin, events.callback());
  {
    proto::Hello hello = MakeHello("train");
    hello.pid = 1;  // What it says of itself counts for nothing.
    hello.rank = 3;
    hello.world_size = 4;
    DataClient client(world.socket_path());
    ASSERT_EQ(client.Attach(hello).code, 0);
    const auto jobs = world.control().ListJobs(kAdmin).value();
    ASSERT_EQ(jobs.size(), 1u);
    ASSERT_EQ(jobs[0].sessions.size(), 1u);
    EXPECT_EQ(jobs[0].sessions[0].client_pid, ::getpid());
    EXPECT_EQ(jobs[0].sessions[0].rank, 3);
    EXPECT_GT(jobs[0].sessions[0].id, 0u);
  }
  const std::string process = fmt::format("process {}", ::getpid());
  EXPECT_THAT(events.Wait(0).message, HasSubstr(fmt::format("(rank 3, {})", process)));
  EXPECT_THAT(events.Wait(1).message, HasSubstr(fmt::format("of job 'train', {} ended: ", process)));
}

TEST(JobWords, WhoAttachedIsSaidWithoutWhatThereIsNot) {
  EXPECT_EQ(AttachedText(3, ProcessText(77)), " (rank 3, process 77)");
  EXPECT_EQ(AttachedText(0, ProcessText(0)), " (rank 0)");
  EXPECT_EQ(AttachedText(-1, ProcessText(77)), " (process 77)");
  EXPECT_EQ(AttachedText(-1, ProcessText(0)), "");
}

TEST(JobWords, AProcessOfAnotherNamespaceHasNoNumber) {
  EXPECT_EQ(ProcessText(0), "");
  Job job;
  job.members = {{.session = tiering::SessionId{5}, .rank = 0, .client_pid = 77}};
  EXPECT_EQ(ProcessText(job, tiering::SessionId{5}), ", process 77");
  EXPECT_EQ(ProcessText(job, tiering::SessionId{6}), "");
}

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
