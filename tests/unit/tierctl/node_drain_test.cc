// A drain that waits, of a scripted daemon and by a clock of its own.
#include "tools/tierctl/node_drain.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/tierctl/interruption.h"

namespace tier::tierctl {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr seconds kPause{30};

TEST(ParseTimeout, TakesSecondsWithOrWithoutAUnitAndLongerOnes) {
  EXPECT_EQ(ParseTimeout("10"), seconds(10));
  EXPECT_EQ(ParseTimeout("10s"), seconds(10));
  EXPECT_EQ(ParseTimeout("5min"), seconds(300));
  EXPECT_EQ(ParseTimeout("2h"), hours(2));
  EXPECT_EQ(ParseTimeout("31536000"), hours(365 * 24));
  for (const char* text :
       {"", "0", "0s", "-1", "1.5s", "10ms", "10 elephants", "s", "99999h", "99999999999999999999", "nan", "inf"})
    EXPECT_EQ(ParseTimeout(text), std::nullopt) << text;
}

struct Node {
  uint64_t sessions = 0;
  uint64_t epoch = 7;
  bool draining = true;
  uint64_t jobs = 0;
  std::string index_failure = "";
};

Result<v1::NodeStatus> StatusOf(const Node& node) {
  v1::NodeStatus status;
  status.set_session_count(node.sessions);
  status.set_epoch(node.epoch);
  status.set_draining(node.draining);
  status.set_job_count(node.jobs);
  status.set_index_failure(node.index_failure);
  return status;
}

Result<v1::DrainResponse> Written(bool stays_in_ram = false) {
  v1::DrainResponse answer;
  answer.set_stays_in_ram(stays_in_ram);
  return answer;
}

v1::ListJobsResponse OneAttached() {
  v1::ListJobsResponse jobs;
  v1::Job* const job = jobs.add_jobs();
  job->set_name("llama");
  job->set_uid(1000);
  job->add_sessions()->set_client_pid(4711);
  job->mutable_sessions(0)->set_rank(-1);
  return jobs;
}

class DrainAndWaitTest : public ::testing::Test {
 protected:
  Result<DrainedNode> Run(std::optional<seconds> timeout = {}) {
    return DrainAndWait({.drain =
                             [this](seconds time) {
                               write_times_.push_back(time);
                               return Next(drains_);
                             },
                         .status = [this] { return Next(states_); },
                         .jobs = [this](const std::string& page_token) { return Page(page_token); },
                         .now = [this] { return now_; },
                         .pause = [this] { now_ += kPause; },
                         .tell = [this](const std::string& sentence) { told_.push_back(sentence); },
                         .warn = [this](const std::string& sentence) { warned_.push_back(sentence); }},
                        timeout);
  }
  // As the daemon gives them, a token being the number of the first job of its page.
  Result<v1::ListJobsResponse> Page(const std::string& token) const {
    const int begin = token.empty() ? 0 : std::stoi(token);
    v1::ListJobsResponse page;
    for (int i = begin; i < std::min(begin + jobs_in_page_, jobs_.jobs_size()); ++i) *page.add_jobs() = jobs_.jobs(i);
    if (begin + jobs_in_page_ < jobs_.jobs_size()) page.set_next_page_token(std::to_string(begin + jobs_in_page_));
    return page;
  }
  // The last one is answered from then on.
  template <typename T>
  static T Next(std::deque<T>& script) {
    T next = script.front();
    if (script.size() > 1) script.pop_front();
    return next;
  }

  std::deque<Result<v1::DrainResponse>> drains_ = {Written()};
  std::deque<Result<v1::NodeStatus>> states_ = {StatusOf({})};
  v1::ListJobsResponse jobs_ = OneAttached();  // "1000/llama: 4711".
  int jobs_in_page_ = 1000;
  std::chrono::steady_clock::time_point now_{};
  std::vector<seconds> write_times_;
  std::vector<std::string> told_;
  std::vector<std::string> warned_;
};

TEST_F(DrainAndWaitTest, WaitsForAsLongAsAProcessIsAttached) {
  states_.assign(2 * 24 * 120, StatusOf({.sessions = 3}));  // Two days.
  states_.push_back(StatusOf({}));
  const auto node = Run();
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_GT(now_.time_since_epoch(), hours(47));
  EXPECT_THAT(told_,
              ElementsAre(HasSubstr("what was dirty is on SSD"), "waiting for 3 processes to leave: 1000/llama: 4711"));
  EXPECT_THAT(warned_, IsEmpty());
}

TEST_F(DrainAndWaitTest, WaitsOnWhereNotAllCanBeWritten) {
  drains_ = {Fail(Code::kNoSpace, "the SSD tier is full"), Written()};
  states_ = {StatusOf({.sessions = 1}), StatusOf({.sessions = 1}), StatusOf({})};
  const auto node = Run();
  ASSERT_TRUE(node) << "all that is left is written: " << node.error().message;
  EXPECT_THAT(warned_, ElementsAre("drained; not all written: NO_SPACE: the SSD tier is full"));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("waiting for 1 process")));
}

TEST_F(DrainAndWaitTest, SaysThatACrashWouldEndIt) {
  v1::DrainResponse unmarked;
  unmarked.set_unmarked("cannot make /run/tierd/drained: Read-only file system");
  drains_ = {unmarked};
  const auto node = Run();
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->unmarked, unmarked.unmarked());
  EXPECT_THAT(warned_, ElementsAre("where tierd crashes now, the next one takes jobs again: cannot make "
                                   "/run/tierd/drained: Read-only file system"));
}

TEST_F(DrainAndWaitTest, SaysSoAlsoWhereTheFirstWritesFailed) {
  v1::DrainResponse unmarked;
  unmarked.set_unmarked("cannot make the mark");
  drains_ = {Fail(Code::kTimeout, "not everything was written"), unmarked};
  states_ = {StatusOf({.sessions = 1}), StatusOf({})};
  const auto node = Run();
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->unmarked, "cannot make the mark");
  EXPECT_THAT(warned_.back(), HasSubstr("cannot make the mark"));
}

TEST_F(DrainAndWaitTest, WritesWhatJobsHoldOnceNobodyWritesAnyMore) {
  states_ = {StatusOf({.sessions = 1}), StatusOf({.jobs = 1})};
  ASSERT_TRUE(Run());
  EXPECT_THAT(write_times_, ElementsAre(kWriteTime, kWriteTimeMax));
}

TEST_F(DrainAndWaitTest, NamesTheJobsThatWouldLoseAllTheyHave) {
  states_ = {StatusOf({.jobs = 3})};
  jobs_.clear_jobs();
  for (const char* name : {"never", "empty", "persisted"}) {
    v1::Job* const job = jobs_.add_jobs();
    job->set_name(name);
    job->set_uid(1000);
    job->set_tensor_count(std::string(name) == "empty" ? 0 : 2);
    job->set_logical_bytes(5 << 20);
    job->set_persisted(std::string(name) == "persisted");
  }
  auto node = Run();
  ASSERT_TRUE(node);
  EXPECT_THAT(node->unpersisted, "1000/never (5 MiB)");
  EXPECT_TRUE(node->some_persisted);
  EXPECT_EQ(node->jobs, 2u) << "the empty one keeps no tensors";
  jobs_.mutable_jobs()->Mutable(0)->set_persisted(true);
  node = Run();
  ASSERT_TRUE(node);
  EXPECT_THAT(node->unpersisted, IsEmpty());
}

TEST_F(DrainAndWaitTest, AsksForAllPagesOfJobs) {
  jobs_in_page_ = 2;
  states_ = {StatusOf({.sessions = 1}), StatusOf({.jobs = 5})};
  jobs_.clear_jobs();
  for (int i = 0; i < 5; ++i) {
    v1::Job* const job = jobs_.add_jobs();
    job->set_name("job-" + std::to_string(i));
    job->set_uid(1000);
    job->set_tensor_count(1);
    job->set_logical_bytes(5 << 20);
    job->set_persisted(i < 4);
  }
  jobs_.mutable_jobs(4)->add_sessions()->set_client_pid(4711);
  jobs_.mutable_jobs(4)->mutable_sessions(0)->set_rank(-1);
  const auto node = Run();
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->unpersisted, "1000/job-4 (5 MiB)");
  EXPECT_EQ(node->jobs, 5u);
  EXPECT_THAT(told_, ::testing::Contains("waiting for 1 process to leave: 1000/job-4: 4711"));
}

TEST_F(DrainAndWaitTest, FailsInTheEndWhereJobsHoldWhatCannotBeWritten) {
  drains_ = {Fail(Code::kIoError, "device 0 fails")};
  states_ = {StatusOf({.sessions = 1}), StatusOf({.jobs = 1})};
  const auto node = Run();
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, Code::kIoError);
  EXPECT_THAT(node.error().message, HasSubstr("no process is attached any more"));
  EXPECT_THAT(node.error().message, HasSubstr("device 0 fails"));
  EXPECT_EQ(write_times_.size(), 2u);
}

// What follows behind && is a restart, which ends what could not be persisted and may be refused by a damaged index.
TEST_F(DrainAndWaitTest, FailsWhereWhatJobsPersistedCannotBeReliedUpon) {
  const std::string failure = "nothing can be persisted: the index was cut short";
  states_ = {StatusOf({.sessions = 1, .index_failure = failure}), StatusOf({.jobs = 1, .index_failure = failure})};
  const auto node = Run();
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, Code::kIoError);
  EXPECT_THAT(node.error().message, HasSubstr("no process is attached any more, and the node stays drained"));
  EXPECT_THAT(node.error().message, HasSubstr("the index was cut short. What jobs persisted last cannot be relied"));
  EXPECT_THAT(warned_, ElementsAre(HasSubstr("cannot be relied upon"))) << "at once too: jobs may save it elsewhere";
}

TEST_F(DrainAndWaitTest, FailsWhereTheIndexFailsMeanwhile) {
  states_ = {StatusOf({.sessions = 1}), StatusOf({}), StatusOf({.index_failure = "nothing can be persisted"})};
  EXPECT_EQ(Run().error().code, Code::kIoError);
  EXPECT_THAT(warned_, IsEmpty());
}

TEST_F(DrainAndWaitTest, ANodeWithoutAnSsdTierKeepsAllInRam) {
  drains_ = {Written(true)};
  const auto node = Run();
  ASSERT_TRUE(node);
  EXPECT_TRUE(node->stays_in_ram);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("stays in RAM")));
}

TEST_F(DrainAndWaitTest, ANodeThatWasUndrainedMeanwhileIsNotDrained) {
  states_ = {StatusOf({.sessions = 2}), StatusOf({.sessions = 0, .draining = false})};
  const auto node = Run();
  ASSERT_FALSE(node) << "a job may come before the restart";
  EXPECT_EQ(node.error().code, Code::kRevoked);
  EXPECT_THAT(node.error().message, HasSubstr("undrained"));
}

TEST_F(DrainAndWaitTest, ARestartedDaemonIsNotTheOneThatWasDrained) {
  for (const bool draining : {false, true}) {
    states_ = {StatusOf({.sessions = 2}), StatusOf({.epoch = 8, .draining = draining})};
    const auto node = Run();
    ASSERT_FALSE(node);
    EXPECT_EQ(node.error().code, Code::kStale);
    EXPECT_THAT(node.error().message, HasSubstr("restarted"));
  }
}

TEST_F(DrainAndWaitTest, AnUndrainDuringTheLastWritesCounts) {
  states_ = {StatusOf({}), StatusOf({.sessions = 1, .draining = false})};
  EXPECT_EQ(Run().error().code, Code::kRevoked);
  EXPECT_EQ(write_times_.size(), 2u);
}

TEST_F(DrainAndWaitTest, ADrainThatIsRefusedIsNotWaitedFor) {
  drains_ = {Fail(Code::kDenied, "only an administrator may drain the daemon")};
  EXPECT_EQ(Run().error().code, Code::kDenied) << "though another administrator has drained it";
  drains_ = {Fail(Code::kTimeout, "the engine has too many calls waiting")};
  states_ = {StatusOf({.sessions = 1, .draining = false})};
  EXPECT_EQ(Run().error().message, "the engine has too many calls waiting");
  EXPECT_EQ(now_.time_since_epoch(), seconds(0));
}

TEST_F(DrainAndWaitTest, ATimeoutEndsTheWaitAndNotTheDrain) {
  states_ = {StatusOf({.sessions = 4})};
  const auto node = Run(seconds(7200));
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, Code::kTimeout);
  EXPECT_THAT(node.error().message,
              HasSubstr("4 processes are still attached (1000/llama: 4711); the node stays drained"));
  EXPECT_LE(now_.time_since_epoch(), seconds(7200));
  EXPECT_GT(now_.time_since_epoch(), seconds(7200) - 2 * kPause);
}

TEST_F(DrainAndWaitTest, TheWritesStayWithinTheTimeout) {
  ASSERT_TRUE(Run(seconds(5)));
  EXPECT_THAT(write_times_, ElementsAre(seconds(5), seconds(5)));
}

TEST_F(DrainAndWaitTest, ADaemonThatIsBusyIsAskedAgainAndOneThatIsGoneIsNot) {
  states_ = {StatusOf({.sessions = 1}), Fail(Code::kTimeout, "busy"), StatusOf({})};
  EXPECT_TRUE(Run());
  states_ = {StatusOf({.sessions = 1}), Fail(Code::kDisconnected, "no daemon answers")};
  EXPECT_EQ(Run().error().code, Code::kDisconnected);
}

TEST(InterruptionDeathTest, SaysWhatStaysBehindAndEndsAsTheSignalDoes) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          SayWhenInterrupted("too early\n");
          SayWhenInterrupted("interrupted; it stays\n");
          (void)::raise(signal);
        },
        ::testing::KilledBySignal(signal), "^interrupted; it stays\n$");
  }
  EXPECT_EXIT(
      {
        (void)::signal(SIGINT, SIG_IGN);
        SayWhenInterrupted("interrupted\n");
        (void)::raise(SIGINT);
        ::_exit(7);
      },
      ::testing::ExitedWithCode(7), "^$")
      << "as below nohup";
}

}  // namespace
}  // namespace tier::tierctl
