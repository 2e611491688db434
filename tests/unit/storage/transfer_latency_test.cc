// How long the requests of a device take, as its TransferEngine notes it: by direction, and by what they are for.
#include <cerrno>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/base/fault_guard.h"
#include "daemon/storage/transfer_engine.h"
#include "tests/support/storage/fake_device.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

using std::chrono::milliseconds;

constexpr WindowIndex kWindow{2};
constexpr uint64_t kWindowSize = kBlockSize;

// A clock that a test moves.
class SetClock final : public base::Clock {
 public:
  base::TimePoint Now() const override { return now; }
  base::TimePoint now;
};

class TransferLatency : public ::testing::Test {
 protected:
  TransferLatency() { engine_.AddWindow(kWindow, memory_.data(), memory_.size()); }
  ~TransferLatency() override { engine_.RemoveWindow(kWindow); }

  Transfer Make(Direction direction, uint16_t page, Purpose purpose) {
    return {.cookie = page,
            .direction = direction,
            .purpose = purpose,
            .extent = {.run = {.block = 0, .page = page, .pages = 1}},
            .window = kWindow,
            .memory = memory_.data() + page * kPageSize,
            .length = kPageSize};
  }
  std::vector<TransferResult> Finish() {
    std::vector<TransferResult> results;
    while (engine_.inflight() != 0) engine_.Poll(&results);  // Checksums are made in place.
    return results;
  }

  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(1, "test").value();
  CompletionSignal signal_;
  SetClock clock_;
  DeviceLatency latency_;
  testing::FakeDevice device_{kBlockSize};
  testing::WindowMemory memory_{kWindowSize};
  base::GuardedRange guard_{memory_.data(), memory_.size()};
  TransferEngine engine_{
      {.place = {.capacity_bytes = kBlockSize}, .inline_bytes_max = UINT32_MAX, .clock = &clock_, .latency = &latency_},
      device_,
      *workers_,
      signal_};
};

TEST_F(TransferLatency, ARequestCountsAsTheMostUrgentThatItIsFor) {
  device_.Hold();
  engine_.Start(Make(Direction::kWrite, 0, Purpose::kAhead));
  engine_.Start(Make(Direction::kWrite, 1, Purpose::kDemand));  // It follows the first: they become one request.
  engine_.Start(Make(Direction::kWrite, 100, Purpose::kBackground));
  engine_.Submit();
  clock_.now = clock_.now + milliseconds(3);
  device_.Release();
  EXPECT_EQ(Finish().size(), 3u);
  const LatencyByPurpose noted = engine_.latency(0);
  EXPECT_EQ(noted.Of(Direction::kWrite, Purpose::kAhead).count(), 0u);
  EXPECT_EQ(noted.Of(Direction::kWrite, Purpose::kDemand).count(), 1u);
  EXPECT_EQ(noted.Of(Direction::kWrite, Purpose::kDemand).bytes, 2 * kPageSize);
  EXPECT_EQ(noted.Of(Direction::kWrite, Purpose::kDemand).sum_ns, 3'000'000u);
  EXPECT_EQ(noted.Of(Direction::kWrite, Purpose::kBackground).count(), 1u);
  EXPECT_EQ(noted.Of(Direction::kRead).count(), 0u);
}

TEST_F(TransferLatency, TimeBeforeTheDeviceIsGivenARequestIsNotItsOwn) {
  engine_.Start(Make(Direction::kWrite, 0, Purpose::kDemand));
  clock_.now = clock_.now + milliseconds(50);
  engine_.Submit();
  (void)Finish();
  EXPECT_EQ(latency_.Read().Of(Direction::kWrite).sum_ns, 0u);
}

TEST_F(TransferLatency, ARequestThatFailsIsNotedToo) {
  device_.Inject({.direction = Direction::kWrite, .error = EIO}, 2);
  engine_.Start(Make(Direction::kWrite, 0, Purpose::kDemand));
  engine_.Submit();
  EXPECT_EQ(Finish().at(0).outcome, TransferOutcome::kDeviceError);
  EXPECT_EQ(latency_.Read().Of(Direction::kWrite).count(), 2u) << "once more for its retry";
  EXPECT_EQ(latency_.Read().Of(Direction::kWrite).bytes, 0u);
}

}  // namespace
}  // namespace tier::storage
