#include "daemon/storage/device_latency.h"

#include <gtest/gtest.h>

namespace tier::storage {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(DeviceLatency, CountsByDirectionAndPurpose) {
  DeviceLatency latency;
  latency.Note(Direction::kRead, Purpose::kDemand, microseconds(80), 4096);
  latency.Note(Direction::kRead, Purpose::kAhead, microseconds(300), 8192);
  latency.Note(Direction::kWrite, Purpose::kBackground, seconds(100), 1);
  const LatencyByPurpose all = latency.Read();
  const LatencyFigures& demand = all.Of(Direction::kRead, Purpose::kDemand);
  EXPECT_EQ(demand.requests[3], 1u) << "within 100 us";
  EXPECT_EQ(demand.sum_ns, 80'000u);
  EXPECT_EQ(demand.bytes, 4096u);
  EXPECT_EQ(all.Of(Direction::kRead, Purpose::kAhead).requests[5], 1u) << "within 500 us";
  EXPECT_EQ(all.Of(Direction::kWrite, Purpose::kBackground).requests.back(), 1u) << "longer than every bound";
  EXPECT_EQ(all.Of(Direction::kWrite, Purpose::kDemand).count(), 0u);
  const LatencyFigures reads = all.Of(Direction::kRead);
  EXPECT_EQ(reads.count(), 2u);
  EXPECT_EQ(reads.sum_ns, 380'000u);
  EXPECT_EQ(reads.bytes, 4096u + 8192u);
}

TEST(DeviceLatency, ABoundBelongsToItsBucket) {
  DeviceLatency latency;
  latency.Note(Direction::kRead, Purpose::kDemand, microseconds(100), 0);
  latency.Note(Direction::kRead, Purpose::kDemand, microseconds(101), 0);
  const LatencyFigures figures = latency.Read().Of(Direction::kRead);
  EXPECT_EQ(figures.requests[3], 1u);
  EXPECT_EQ(figures.requests[4], 1u);
}

// 8, 20, 40 and 80 us would be one bucket, and each quantile of them between 0 and 100 us.
TEST(DeviceLatency, TellsFastDevicesApart) {
  DeviceLatency latency;
  for (const int took : {8, 20, 40, 80}) {
    for (int i = 0; i < 100; ++i) latency.Note(Direction::kRead, Purpose::kDemand, microseconds(took), 4096);
  }
  const LatencyFigures figures = latency.Read().Of(Direction::kRead);
  for (size_t bucket = 0; bucket < 4; ++bucket) EXPECT_EQ(figures.requests[bucket], 100u) << "bucket " << bucket;
  EXPECT_NEAR(figures.Quantile(0.5), 25e-6, 1e-9);
  EXPECT_GT(figures.Quantile(0.99), 50e-6);
}

TEST(DeviceLatency, QuantilesLieInTheBucketOfTheirRequest) {
  LatencyFigures figures;
  EXPECT_EQ(figures.Quantile(0.99), 0) << "there was none";
  figures.requests[6] = 99;  // 0.5 to 1 ms.
  figures.requests[9] = 1;   // 5 to 10 ms.
  EXPECT_NEAR(figures.Quantile(0.5), 5e-4 + 5e-4 * 50 / 99, 1e-9);
  EXPECT_NEAR(figures.Quantile(0.99), 1e-3, 1e-9);
  EXPECT_NEAR(figures.Quantile(0.995), 7.5e-3, 1e-9);
  figures.requests.back() = 1000;
  EXPECT_EQ(figures.Quantile(0.5), kLatencyBucketsSeconds.back()) << "at least so long";
}

TEST(DeviceLatencyDeathTest, TimeDoesNotGoBack) {
  DeviceLatency latency;
  EXPECT_DEATH(latency.Note(Direction::kRead, Purpose::kDemand, microseconds(-1), 0), "took -1000 ns");
}

}  // namespace
}  // namespace tier::storage
