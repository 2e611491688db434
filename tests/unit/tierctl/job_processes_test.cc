// Processes of jobs in words.
#include "tools/tierctl/job_processes.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"

namespace tier::tierctl {
namespace {

constexpr uint32_t kNoUser = 4'000'000'000;  // Shown as its number.

void Add(v1::ListJobsResponse* jobs, const std::string& name, const std::vector<int64_t>& pids) {
  v1::Job* const job = jobs->add_jobs();
  job->set_name(name);
  job->set_uid(kNoUser);
  for (const int64_t pid : pids) {
    v1::JobSession* const session = job->add_sessions();
    session->set_rank(-1);
    session->set_client_pid(pid);
  }
}

TEST(JobProcesses, AreNamedWithTheirRanks) {
  v1::ListJobsResponse jobs;
  Add(&jobs, "llama", {4711, 0});
  EXPECT_EQ(ProcessesText(jobs.jobs(0)), "4711, of another pid namespace");
  jobs.mutable_jobs(0)->mutable_sessions(0)->set_rank(0);
  EXPECT_EQ(ProcessesText(jobs.jobs(0)), "4711 (rank 0), of another pid namespace");
  EXPECT_EQ(ProcessesText(v1::Job()), "none");
}

TEST(JobProcesses, AreCalledStoppedWhereTheKernelSaysSoOfTheJobsUser) {
  const session::testing::TemporaryDirectory root;
  const auto write = [&](int64_t pid, const std::string& stat) {
    const std::filesystem::path folder = fmt::format("{}/proc/{}", root.path(), pid);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "stat") << stat;
  };
  write(11, "11 (a) T (b) T 1 11\n");
  write(12, "12 (a) T (b) S 1 12\n");
  write(13, "13 (python) t 1 13\n");
  write(14, "14 (python)");
  v1::ListJobsResponse jobs;
  Add(&jobs, "llama", {11, 12, 13, 14, 15, 0});
  v1::Job& job = *jobs.mutable_jobs(0);
  job.set_uid(::geteuid());
  job.mutable_sessions(2)->set_rank(3);
  EXPECT_EQ(ProcessesText(job, root.path()),
            "11 (stopped), 12, 13 (rank 3, stopped), 14, 15, of another pid namespace");
  EXPECT_THAT(AttachedText(jobs, root.path()), ::testing::HasSubstr("llama: 11 (stopped), 12, "));
  job.set_uid(::geteuid() + 1);
  EXPECT_THAT(ProcessesText(job, root.path()), ::testing::StartsWith("11, 12, ")) << "of another user: another process";
  job.set_owner("pod-a");
  EXPECT_THAT(ProcessesText(job, root.path()), ::testing::StartsWith("11 (stopped), "));
}

TEST(JobProcesses, OfAllJobsAreSaidByJob) {
  v1::ListJobsResponse jobs;
  EXPECT_EQ(AttachedText(jobs), "");
  Add(&jobs, "idle", {});
  EXPECT_EQ(AttachedText(jobs), "");
  Add(&jobs, "llama", {11, 12});
  Add(&jobs, "gpt", {21});
  jobs.mutable_jobs(2)->set_owner("pod");
  EXPECT_EQ(AttachedText(jobs), "4000000000/llama: 11, 12; pod/gpt: 21");
}

TEST(JobProcesses, AreEightAtMostAndTheNumberOfTheOthers) {
  v1::ListJobsResponse jobs;
  Add(&jobs, "a", {1, 2, 3, 4, 5, 6, 7});
  Add(&jobs, "b", {8, 9});
  Add(&jobs, "c", {10});
  EXPECT_EQ(AttachedText(jobs), "4000000000/a: 1, 2, 3, 4, 5, 6, 7; 4000000000/b: 8, and 2 more");
  jobs.mutable_jobs()->RemoveLast();
  jobs.mutable_jobs(1)->mutable_sessions()->RemoveLast();
  EXPECT_EQ(AttachedText(jobs), "4000000000/a: 1, 2, 3, 4, 5, 6, 7; 4000000000/b: 8");
}

}  // namespace
}  // namespace tier::tierctl
