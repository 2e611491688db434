// Which jobs have series of their own, and what these count: over any history of jobs, no counter ever falls, and all
// rows together are what the daemon counted.
#include "daemon/metrics/job_rows.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace tier::metrics {
namespace {

using session::JobDescription;
using tiering::JobCounters;

JobDescription Job(uint64_t id, uint64_t ram_bytes, uint64_t swapped = 0) {
  JobDescription job;
  job.id = id;
  job.name = "job" + std::to_string(id);
  job.uid = 1000;
  job.counters.ram_bytes = ram_bytes;
  job.counters.swap_out_bytes = swapped;
  return job;
}

std::vector<JobDescription> Jobs(size_t count) {
  std::vector<JobDescription> jobs;
  for (size_t i = 0; i < count; ++i) jobs.push_back(Job(i + 1, i + 1, 10));
  return jobs;
}

JobCounters Swapped(uint64_t bytes) { return {.swap_out_bytes = bytes}; }

TEST(JobRows, AreBoundedAndTheRestIsOneRow) {
  JobRows rows;
  const auto shown = rows.Of(Jobs(kJobRowsMax + 50), Swapped(10 * (kJobRowsMax + 50)));
  ASSERT_EQ(shown.size(), kJobRowsMax + 1);
  EXPECT_EQ(shown.back().name, kOtherJobs);
  EXPECT_EQ(shown.back().uid, "");
  EXPECT_EQ(shown.back().counters.swap_out_bytes, 500u);
  EXPECT_EQ(shown.back().counters.ram_bytes, 50u * 51 / 2) << "the smallest have no row";
}

TEST(JobRows, TheRowOfTheOthersIsThereWithoutAny) {
  JobRows rows;
  const auto shown = rows.Of({}, Swapped(7));
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].counters.swap_out_bytes, 7u) << "of jobs that have ended";
}

TEST(JobRows, JobsOfOneNameAreToldApartByTheirUsers) {
  JobRows rows;
  auto first = Job(1, 5), second = Job(2, 9);
  second.name = first.name;
  second.uid = 2000;
  const auto shown = rows.Of({second, first}, {});
  ASSERT_EQ(shown.size(), 3u);
  EXPECT_EQ(shown[0].uid, "1000");
  EXPECT_EQ(shown[1].uid, "2000");
  EXPECT_EQ(shown[0].name, shown[1].name) << "never folded into the name";
}

TEST(JobRows, WhatAnEndedJobCountedStaysWithTheOthers) {
  JobRows rows;
  (void)rows.Of({Job(1, 5, 100)}, Swapped(100));
  const auto shown = rows.Of({}, Swapped(130));  // It wrote 30 more before it ended.
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].counters.swap_out_bytes, 30u) << "its own row had shown 100";
}

TEST(JobRows, RefusalsAreCountedAsTheOtherCountersAre) {
  JobRows rows;
  auto jobs = Jobs(kJobRowsMax + 1);  // The first has no row.
  JobCounters totals;
  for (auto& job : jobs) {
    job.counters.refusals[3] = 2;
    tiering::AddCounters(job.counters, &totals);
  }
  totals.refusals[3] += 7;  // Of jobs that have ended.
  auto shown = rows.Of(jobs, totals);
  EXPECT_EQ(shown.front().counters.refusals[3], 2u);
  EXPECT_EQ(shown.back().counters.refusals[3], 9u);
  EXPECT_EQ(shown.back().counters.refusals[4], 0u);
  shown = rows.Of({}, totals);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].counters.refusals[3], 9u) << "rows that have ended had shown the rest";
}

TEST(JobRows, OneThatGetsItsRowLaterCountsFromThere) {
  JobRows rows;
  auto jobs = Jobs(kJobRowsMax + 1);  // The first has no row.
  const uint64_t total = 10 * jobs.size();
  EXPECT_EQ(rows.Of(jobs, Swapped(total)).back().counters.swap_out_bytes, 10u);
  jobs[0].counters.ram_bytes = 1 << 20;
  auto shown = rows.Of(jobs, Swapped(total));
  const auto row = std::ranges::find(shown, "job1", &JobRow::name);
  ASSERT_NE(row, shown.end());
  EXPECT_EQ(row->counters.swap_out_bytes, 0u);
  EXPECT_EQ(shown.back().counters.swap_out_bytes, 10u) << "what it counted before";
  jobs[0].counters.swap_out_bytes += 5;
  shown = rows.Of(jobs, Swapped(total + 5));
  EXPECT_EQ(std::ranges::find(shown, "job1", &JobRow::name)->counters.swap_out_bytes, 5u);
}

TEST(JobRows, ARowIsNotLostToAJobThatIsALittleLarger) {
  JobRows rows;
  std::vector<JobDescription> jobs;
  for (uint64_t i = 0; i < kJobRowsMax + 1; ++i) jobs.push_back(Job(i + 1, i == 0 ? 99 : 100));
  const auto has_row = [&](const std::string& name) {
    const auto shown = rows.Of(jobs, {});
    return std::ranges::find(shown, name, &JobRow::name) != shown.end();
  };
  EXPECT_FALSE(has_row("job1"));
  jobs[0].counters.ram_bytes = 199;
  EXPECT_FALSE(has_row("job1"));
  jobs[0].counters.ram_bytes = 202;
  EXPECT_TRUE(has_row("job1"));
}

TEST(JobRows, TotalsThatAreOlderThanTheJobsLetNoCounterFall) {
  JobRows rows;
  EXPECT_EQ(rows.Of({Job(1, 1, 40)}, Swapped(100)).back().counters.swap_out_bytes, 60u);
  EXPECT_EQ(rows.Of({Job(1, 1, 90)}, Swapped(100)).back().counters.swap_out_bytes, 60u);
  EXPECT_EQ(rows.Of({Job(1, 1, 90)}, Swapped(155)).back().counters.swap_out_bytes, 65u);
}

TEST(JobRows, ThePoolOfTheOthersIsSummedAndItsLargestRunIsNot) {
  JobRows rows;
  auto jobs = Jobs(kJobRowsMax + 2);
  for (auto& job : jobs) {
    job.counters.pool = {.held_bytes = {10, 1}, .largest_run_bytes = job.counters.ram_bytes};
    job.node_bytes = {{1, 11}};
  }
  const auto shown = rows.Of(jobs, {});
  EXPECT_EQ(shown.front().node_bytes, (std::map<int, uint64_t>{{1, 11}}));
  EXPECT_EQ(shown.back().node_bytes, (std::map<int, uint64_t>{{1, 22}}));
  const auto others = shown.back().counters;
  EXPECT_EQ(others.pool.held_bytes[0], 20u);
  EXPECT_EQ(others.pool.held_bytes[1], 2u);
  EXPECT_EQ(others.pool.largest_run_bytes, 2u);
}

// Prometheus takes a counter that falls for a restart. A row that ends and comes back begins at 0, which is one.
TEST(JobRows, OverAnyHistoryNoCounterFallsAndTheRowsAreTheTotals) {
  std::mt19937_64 random(20261127);
  for (int history = 0; history < 20; ++history) {
    JobRows rows;
    std::vector<JobDescription> jobs;
    JobCounters totals;
    std::map<std::string, uint64_t> last;  // Of rows that were shown in the scrape before.
    uint64_t ended = 0, next_id = 1;
    for (int scrape = 0; scrape < 60; ++scrape) {
      for (int event = 0; event < 40; ++event) {
        if (jobs.empty() || random() % 3 == 0) jobs.push_back(Job(next_id++, random() % 1000));
        JobDescription& job = jobs[random() % jobs.size()];
        const uint64_t bytes = random() % 100;
        job.counters.swap_out_bytes += bytes;
        totals.swap_out_bytes += bytes;
        job.counters.ram_bytes = random() % 1000;
        if (random() % 5 == 0) std::swap(job, jobs.back()), jobs.pop_back();
      }
      uint64_t sum = 0;
      std::map<std::string, uint64_t> now;
      for (const JobRow& row : rows.Of(jobs, totals)) {
        ASSERT_TRUE(now.emplace(row.name, row.counters.swap_out_bytes).second);
        sum += row.counters.swap_out_bytes;
        const auto before = last.find(row.name);
        const uint64_t shown = before == last.end() ? 0 : before->second;
        ASSERT_GE(row.counters.swap_out_bytes, shown) << row.name;
      }
      for (const auto& [name, bytes] : last) ended += now.contains(name) ? 0 : bytes;
      ASSERT_EQ(sum + ended, totals.swap_out_bytes) << "scrape " << scrape;
      last = std::move(now);
    }
    EXPECT_GT(next_id, kJobRowsMax) << "more than have rows";
  }
}

}  // namespace
}  // namespace tier::metrics
