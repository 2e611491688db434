#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using proto::Op;

class SwapTest : public ClientTest {
 protected:
  int Out(uint64_t tensor, std::span<const std::byte> bytes, const tier_copy_options* options = nullptr,
          tier_copy_outcome* outcome = nullptr) {
    tier_op* op = nullptr;
    const int code = tier_swap_out(client_, tensor, bytes.data(), bytes.size(), options, &op);
    return code != TIER_OK ? code : tier_wait(op, 0, outcome);
  }
  int In(uint64_t tensor, std::span<std::byte> bytes, const tier_copy_options* options = nullptr,
         tier_copy_outcome* outcome = nullptr) {
    tier_op* op = nullptr;
    const int code = tier_swap_in(client_, tensor, bytes.data(), bytes.size(), options, &op);
    return code != TIER_OK ? code : tier_wait(op, 0, outcome);
  }
  uint64_t Requests(Op op) const { return daemon_->counters().requests[static_cast<size_t>(op)].load(); }
};

class SwapSizes : public SwapTest, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(SwapSizes, ComeBackBitForBit) {
  Start({.windows = 20, .scatter = true});
  const auto content = Random(GetParam(), GetParam());
  std::vector<std::byte> back(content.size());
  tier_copy_outcome outcome{};
  outcome.struct_size = sizeof outcome;
  ASSERT_TIER_OK(Out(1, content, nullptr, &outcome));
  EXPECT_EQ(outcome.bytes, content.size());
  ASSERT_TIER_OK(In(1, back, nullptr, &outcome));
  EXPECT_EQ(outcome.bytes, content.size());
  EXPECT_EQ(back, content);
  EXPECT_EQ(Stats().copied_to_tensors_bytes, content.size());
  EXPECT_EQ(Stats().copied_from_tensors_bytes, content.size());
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
}

INSTANTIATE_TEST_SUITE_P(Bytes, SwapSizes,
                         ::testing::Values(1, 4095, 4096, kMiB - 1, kMiB, kBlockSize, kBlockSize + 1, 9 * kMiB + 4097,
                                           50 * kMiB));

TEST_F(SwapTest, AnOutcomeWithoutItsSizeIsRefusedBeforeItIsLost) {
  Start();
  const auto content = Random(4096, 1);
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content.data(), content.size(), nullptr, &op));
  tier_copy_outcome outcome{};
  EXPECT_TIER_ERROR(tier_wait(op, 0, &outcome), TIER_INVALID, "struct_size");
  outcome.struct_size = sizeof outcome;
  EXPECT_TIER_OK(tier_wait(op, 0, &outcome));
  EXPECT_EQ(outcome.bytes, content.size());
}

TEST_F(SwapTest, ReplacesATensorOfTheSameSizeInPlace) {
  Start({.windows = 20});
  ASSERT_TIER_OK(Out(1, Random(5 * kMiB, 1)));
  const auto content = Random(5 * kMiB, 2);
  ASSERT_TIER_OK(Out(1, content));
  std::vector<std::byte> back(content.size());
  ASSERT_TIER_OK(In(1, back));
  EXPECT_EQ(back, content);
  EXPECT_EQ(Requests(Op::kCreate), 1u);
  EXPECT_EQ(Requests(Op::kFree), 0u);
}

TEST_F(SwapTest, ReplacesATensorOfAnotherSize) {
  Start({.windows = 20});
  ASSERT_TIER_OK(Out(1, Random(5 * kMiB, 1)));
  const auto content = Random(100, 2);
  ASSERT_TIER_OK(Out(1, content));
  std::vector<std::byte> back(content.size());
  ASSERT_TIER_OK(In(1, back));
  EXPECT_EQ(back, content);
  EXPECT_EQ(Requests(Op::kCreate), 2u);
}

TEST_F(SwapTest, UpdatesAPart) {
  Start({.windows = 20});
  auto content = Random(10 * kMiB, 1);
  ASSERT_TIER_OK(Out(1, content));
  const auto part = Random(5 * kMiB, 2);
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.whole = 0;
  options.offset = kMiB + 4;
  ASSERT_TIER_OK(Out(1, part, &options));
  std::ranges::copy(part, content.begin() + kMiB + 4);
  std::vector<std::byte> back(content.size());
  ASSERT_TIER_OK(In(1, back));
  EXPECT_EQ(back, content);
  std::vector<std::byte> middle(part.size());
  ASSERT_TIER_OK(In(1, middle, &options));
  EXPECT_EQ(middle, part);
}

TEST_F(SwapTest, ASwapInAsksForTheWholeTensor) {
  Start({.windows = 20});
  ASSERT_TIER_OK(Out(1, Random(5 * kMiB, 1)));
  std::vector<std::byte> shorter(kMiB + 1);
  EXPECT_TIER_ERROR(In(1, shorter), TIER_INVALID, "has 5242880 bytes");
  EXPECT_TIER_ERROR(In(2, shorter), TIER_NOT_FOUND, "no tensor 2");
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
}

TEST_F(SwapTest, FreeAfterTakesTheTensorWithIt) {
  Start({.windows = 20});
  ASSERT_TIER_OK(Out(1, Random(20 * kMiB, 1)));
  std::vector<std::byte> back(20 * kMiB);
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_FREE_AFTER;
  ASSERT_TIER_OK(In(1, back, &options));
  EXPECT_TIER_ERROR(In(1, back), TIER_NOT_FOUND, "no tensor 1");
}

TEST_F(SwapTest, ASwapInBehindItsOwnSwapOutGetsTheNewBytes) {
  Start({.windows = 20});
  ASSERT_TIER_OK(Out(1, Random(30 * kMiB, 1)));
  const auto content = Random(30 * kMiB, 2);
  std::vector<std::byte> back(content.size());
  daemon_->Hold(Op::kAcquire);
  tier_op* out = nullptr;
  tier_op* in = nullptr;
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content.data(), content.size(), nullptr, &out));
  ASSERT_TIER_OK(tier_swap_in(client_, 1, back.data(), back.size(), nullptr, &in));
  EXPECT_EQ(tier_done(in), 0);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(in, 0, nullptr));
  EXPECT_TIER_OK(tier_wait(out, 0, nullptr));
  EXPECT_EQ(back, content);
}

TEST_F(SwapTest, AnAcquireBehindASwapOutWaitsForIt) {
  Start({.windows = 20});
  const auto content = Random(30 * kMiB, 2);
  tier_op* out = nullptr;
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content.data(), content.size(), nullptr, &out));
  tier_lease* const lease = Acquire(1);
  EXPECT_TRUE(std::ranges::equal(Bytes(lease), content));
  tier_release(lease, 0);
  EXPECT_TIER_OK(tier_wait(out, 0, nullptr));
}

TEST_F(SwapTest, ManySwapsOfManyTensorsRunAtOnce) {
  Start({.windows = 60}, 2, /*copy_threads=*/3);
  constexpr int kCount = 100;
  std::vector<std::vector<std::byte>> contents, backs;
  std::vector<tier_op*> ops;
  for (int i = 0; i < kCount; ++i) {
    contents.push_back(Random(static_cast<size_t>(i) * 20'000 + 1, static_cast<uint64_t>(i)));
    backs.emplace_back(contents.back().size());
  }
  for (int i = 0; i < kCount; ++i) {
    const auto id = static_cast<uint64_t>(i);
    ASSERT_TIER_OK(tier_swap_out(client_, id, contents[id].data(), contents[id].size(), nullptr, &ops.emplace_back()));
    ASSERT_TIER_OK(tier_swap_in(client_, id, backs[id].data(), backs[id].size(), nullptr, &ops.emplace_back()));
  }
  for (tier_op* op : ops) EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_EQ(backs, contents);
}

TEST_F(SwapTest, ChecksAndSumsOverAllRanges) {
  Start({.windows = 20, .scatter = true}, 2, 2);
  std::vector<float> values(4'000'001, 2.0f);
  values[0] = std::numeric_limits<float>::infinity();
  values[3'000'000] = std::nanf("");
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.memory_type = options.tensor_type = TIER_FP32;
  options.check_finite = 1;
  tier_copy_outcome outcome{};
  outcome.struct_size = sizeof outcome;
  ASSERT_TIER_OK(Out(1, std::as_bytes(std::span(values)), &options, &outcome));
  EXPECT_EQ(outcome.non_finite_count, 2u);
  values[0] = values[3'000'000] = 0;
  options.sum_squares = 1;
  ASSERT_TIER_OK(Out(1, std::as_bytes(std::span(values)), &options, &outcome));
  EXPECT_EQ(outcome.non_finite_count, 0u);
  EXPECT_EQ(outcome.sum_of_squares, 4.0 * 3'999'999);
  std::vector<float> back(values.size());
  ASSERT_TIER_OK(In(1, std::as_writable_bytes(std::span(back)), &options, &outcome));
  EXPECT_EQ(outcome.sum_of_squares, 4.0 * 3'999'999);
  EXPECT_EQ(back, values);
}

TEST_F(SwapTest, SumsAreTheSameBitsInEveryArena) {
  std::mt19937 engine(1);
  std::vector<float> values(5'000'001);
  for (float& value : values) value = static_cast<float>(engine()) * 0x1p-32f;
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.memory_type = options.tensor_type = TIER_FP32;
  options.sum_squares = 1;
  tier_copy_outcome outcome{};
  outcome.struct_size = sizeof outcome;
  std::set<double> sums;
  const FakeOptions arenas[] = {
      {.windows = 10, .scatter = true}, {.windows = 64}, {.windows = 8, .window_size = 32 * kMiB}};
  for (const FakeOptions& arena : arenas) {
    Start(arena, 2, 2);
    ASSERT_TIER_OK(Out(1, std::as_bytes(std::span(values)), &options, &outcome));
    sums.insert(outcome.sum_of_squares);
    ASSERT_TIER_OK(In(1, std::as_writable_bytes(std::span(values)), &options, &outcome));
    sums.insert(outcome.sum_of_squares);
    tier_close(std::exchange(client_, nullptr));
  }
  EXPECT_EQ(sums.size(), 1u);
}

TEST_F(SwapTest, CastsHalveTheTensor) {
  Start({.windows = 20});
  std::vector<float> values(3'000'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 256);  // Exact in bf16.
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.memory_type = TIER_FP32;
  options.tensor_type = TIER_BF16;
  ASSERT_TIER_OK(Out(1, std::as_bytes(std::span(values)), &options));
  tier_tensor_view view{};
  view.struct_size = sizeof view;
  ASSERT_TIER_OK(tier_tensor(client_, 1, 0, &view));
  EXPECT_EQ(view.size, values.size() * 2);
  std::vector<float> back(values.size());
  ASSERT_TIER_OK(In(1, std::as_writable_bytes(std::span(back)), &options));
  EXPECT_EQ(back, values);
}

TEST_F(SwapTest, SmallSwapsNeedNoThread) {
  Start({.windows = 20}, /*spin=*/2);
  const auto content = Random(1000, 1);
  ASSERT_TIER_OK(Out(1, content));
  tier_op* op = nullptr;
  std::vector<std::byte> back(1000);
  ASSERT_TIER_OK(tier_swap_in(client_, 1, back.data(), back.size(), nullptr, &op));
  ASSERT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_EQ(back, content);
}

TEST_F(SwapTest, SharedTensorsHaveTheirOwnOrder) {
  Start({.windows = 20});
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_SHARED;
  const auto content = Random(3 * kMiB, 5);
  ASSERT_TIER_OK(Out(1, content, &options));
  std::vector<std::byte> back(content.size());
  ASSERT_TIER_OK(In(1, back, &options));
  EXPECT_EQ(back, content);
}

}  // namespace
}  // namespace tier::session_fake
