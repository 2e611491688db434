// Rates from two readings, and the screen that shows them.
#include "tools/tierctl/readings.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// Counters of one job and one device, in units of GiB and of acquires.
Reading MakeReading(double seconds, uint64_t moved, uint64_t hits, uint64_t misses) {
  Reading reading{.seconds = seconds};
  reading.status.set_epoch(7);
  reading.status.set_version("1.2.3");
  v1::Device* device = reading.status.add_devices();
  device->set_path("/dev/nvme0n1");
  device->set_state(v1::DEVICE_STATE_ONLINE);
  device->set_read_bytes_total(moved * kGiB);
  device->set_written_bytes_total(2 * moved * kGiB);
  v1::Job* job = reading.jobs.add_jobs();
  job->set_id(3);
  job->set_name("train");
  job->set_uid(1000);
  job->set_ram_bytes(kGiB);
  job->set_swap_in_bytes_total(moved * kGiB);
  job->set_swap_out_bytes_total(2 * moved * kGiB);
  job->set_acquire_hits_total(hits);
  job->set_acquire_misses_total(misses);
  job->set_stall_seconds_total(static_cast<double>(moved) / 2);
  return reading;
}

TEST(CompareReadings, RatesAreDifferencesByTheTimeBetween) {
  const Reading before = MakeReading(10, 4, 100, 10);
  const TopView view = CompareReadings(&before, MakeReading(12, 10, 130, 20));
  EXPECT_DOUBLE_EQ(view.interval_seconds, 2);
  ASSERT_EQ(view.jobs.size(), 1u);
  EXPECT_DOUBLE_EQ(view.jobs[0].in_rate.value(), 3.0 * kGiB);
  EXPECT_DOUBLE_EQ(view.jobs[0].out_rate.value(), 6.0 * kGiB);
  EXPECT_DOUBLE_EQ(view.jobs[0].hit_ratio.value(), 0.75);
  EXPECT_DOUBLE_EQ(view.jobs[0].stall_share.value(), 1.5);
  EXPECT_DOUBLE_EQ(view.devices.at(0).read_rate.value(), 3.0 * kGiB);
  EXPECT_DOUBLE_EQ(view.devices.at(0).write_rate.value(), 6.0 * kGiB);
}

TEST(CompareReadings, ThereIsNoRateWithoutAnythingToCompareWith) {
  const Reading now = MakeReading(12, 10, 130, 20);
  Reading restarted = MakeReading(10, 4, 100, 10);
  restarted.status.set_epoch(8);
  Reading another = MakeReading(10, 4, 100, 10);
  another.jobs.mutable_jobs(0)->set_id(4);
  another.status.clear_devices();
  Reading began_again = MakeReading(10, 400, 500, 600);
  for (const Reading* before : {static_cast<const Reading*>(nullptr), static_cast<const Reading*>(&restarted),
                                static_cast<const Reading*>(&another), static_cast<const Reading*>(&began_again)}) {
    const TopView view = CompareReadings(before, now);
    EXPECT_FALSE(view.jobs.at(0).in_rate || view.jobs.at(0).hit_ratio || view.jobs.at(0).stall_share);
    EXPECT_FALSE(view.devices.at(0).read_rate);
    EXPECT_EQ(view.jobs.at(0).ram_bytes, kGiB);
  }
  const TopView idle = CompareReadings(&now, MakeReading(13, 10, 130, 20));
  EXPECT_FALSE(idle.jobs.at(0).hit_ratio) << "nothing was asked for";
  EXPECT_EQ(idle.jobs.at(0).in_rate, 0.0);
}

TEST(SortJobs, ByTheFigureOfTheKeyAndThenByName) {
  std::vector<TopJob> jobs = {{.name = "b", .ram_bytes = 1, .held_bytes = 9, .in_rate = 5, .out_rate = {}},
                              {.name = "a", .ram_bytes = 1, .ssd_bytes = 3, .hit_ratio = 0.5},
                              {.name = "c", .ram_bytes = 2, .stall_share = 1, .out_rate = 4}};
  const auto names = [&](char key) {
    SortJobs(&jobs, OrderOfKey(key).value());
    return jobs[0].name + jobs[1].name + jobs[2].name;
  };
  EXPECT_EQ(names('r'), "cab");
  EXPECT_EQ(names('h'), "bac");
  EXPECT_EQ(names('s'), "abc");
  EXPECT_EQ(names('m'), "abc");
  EXPECT_EQ(names('w'), "cab");
  EXPECT_EQ(names('i'), "bac");
  EXPECT_EQ(names('o'), "cab");
  EXPECT_EQ(names('n'), "abc");
  EXPECT_FALSE(OrderOfKey('q') || OrderOfKey('R') || OrderOfKey('\033'));
}

TEST(RenderTop, FitsTheScreenAndCountsTheJobsThatDoNot) {
  const Reading before = MakeReading(1, 4, 100, 10);
  TopView view = CompareReadings(&before, MakeReading(2, 5, 100, 10));
  for (int i = 0; i < 50; ++i) {
    TopJob job = view.jobs.front();
    job.name = "job-" + std::to_string(i) + std::string(60, 'x') + "\033[2J";
    view.jobs.push_back(job);
  }
  for (const auto& [columns, lines] :
       {std::pair(80u, 24u), std::pair(80u, 10u), std::pair(200u, 30u), std::pair(40u, 24u)}) {
    const std::string text = RenderTop(view, TopOrder::kRam, lines, {.unicode = true, .width = columns});
    EXPECT_LE(static_cast<size_t>(std::ranges::count(text, '\n')), lines) << text;
    EXPECT_THAT(text, Not(HasSubstr("\033")));
    EXPECT_THAT(text, HasSubstr(" more jobs\n"));
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
      EXPECT_LE(DisplayWidth(text.substr(begin, end - begin)), columns) << text;
    }
  }
  for (int i = 0; i < 30; ++i) view.devices.push_back(view.devices.front());
  const std::string many = RenderTop(view, TopOrder::kRam, 24, {.width = 80});
  EXPECT_LE(std::ranges::count(many, '\n'), 24) << many;
  EXPECT_THAT(many, HasSubstr(" more devices\n"));
  EXPECT_THAT(many, HasSubstr("1000/job")) << "they leave room for jobs";
  const std::string all = RenderTop(view, TopOrder::kRam, 0, {});
  EXPECT_THAT(all, HasSubstr("job-49"));
  EXPECT_THAT(all, Not(HasSubstr("more jobs")));
}

TEST(RenderTop, LeavesOutTheLeastImportantFirst) {
  const Reading before = MakeReading(1, 4, 100, 10);
  const TopView view = CompareReadings(&before, MakeReading(2, 5, 100, 10));
  const auto shown = [&](size_t width) { return RenderTop(view, TopOrder::kRam, 0, {.width = width}); };
  EXPECT_THAT(shown(80), AllOf(HasSubstr("HELD"), HasSubstr("OUT"), Not(HasSubstr("wider terminal"))));
  EXPECT_THAT(shown(60), AllOf(Not(HasSubstr("HELD")), HasSubstr("1000/train"), HasSubstr("OUT")));
  EXPECT_THAT(shown(40), AllOf(HasSubstr("1000/train"), HasSubstr("RAM"), HasSubstr("WAITS"), HasSubstr("STATE"),
                               HasSubstr("wider terminal or --json\n")));
  EXPECT_THAT(shown(40), HasSubstr(" waiting\n")) << "the head is whole";
}

TEST(RenderTop, ShowsRatesAndWhereThereIsNone) {
  const Reading before = MakeReading(1, 4, 100, 10);
  const std::string text = RenderTop(CompareReadings(&before, MakeReading(2, 5, 100, 10)), TopOrder::kRam, 0, {});
  EXPECT_THAT(text, HasSubstr("tierd 1.2.3  up 0 s  ok\n"));
  EXPECT_THAT(text, HasSubstr("1000/train  1.00 GiB   0 B  0 B     -  50.0 %  1.00 GiB/s  2.00 GiB/s\n"));
  EXPECT_THAT(text, HasSubstr("/dev/nvme0n1"));
  EXPECT_THAT(RenderTop(CompareReadings(nullptr, before), TopOrder::kRam, 0, {}), HasSubstr("     -      -"));
}

TEST(RenderTop, NamesTheOwnerOfASocketAsOtherVerbsDo) {
  Reading reading = MakeReading(1, 4, 100, 10);
  reading.jobs.mutable_jobs(0)->set_owner("pod-a");
  const TopView view = CompareReadings(nullptr, reading);
  EXPECT_THAT(RenderTop(view, TopOrder::kRam, 0, {}), AllOf(HasSubstr("pod-a/train"), Not(HasSubstr("1000/"))));
  EXPECT_EQ(TopJson(view)["jobs"][0]["owner"], "pod-a");
  EXPECT_EQ(TopJson(view)["jobs"][0]["uid"], 1000);
}

TEST(TopJson, SaysThatTheNodeIsDrainedOrDegraded) {
  Reading reading = MakeReading(1, 4, 100, 10);
  const Json well = TopJson(CompareReadings(nullptr, reading));
  EXPECT_EQ(well["draining"], false);
  EXPECT_EQ(well["degraded"], false);
  reading.status.set_draining(true);
  reading.status.add_degraded_by("torn tensors: 1");
  const Json drained = TopJson(CompareReadings(nullptr, reading));
  EXPECT_EQ(drained["draining"], true);
  EXPECT_EQ(drained["degraded"], true);
}

TEST(TopJson, WhereThereIsNoRateItIsNull) {
  const Reading before = MakeReading(1, 4, 100, 10);
  const Json first = TopJson(CompareReadings(nullptr, before));
  EXPECT_TRUE(first["jobs"][0]["hit_ratio"].is_null());
  EXPECT_EQ(first["interval_seconds"], 0.0);
  const Json second = TopJson(CompareReadings(&before, MakeReading(2, 5, 101, 10)));
  EXPECT_EQ(second["jobs"][0]["hit_ratio"], 1.0);
  EXPECT_EQ(second["jobs"][0]["id"], "3");
  EXPECT_EQ(second["devices"][0]["read_bytes_per_second"], static_cast<double>(kGiB));
}

}  // namespace
}  // namespace tier::tierctl
