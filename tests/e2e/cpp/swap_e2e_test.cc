#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using SwapEndToEnd = RealDaemon;

TEST_F(SwapEndToEnd, FourTimesTheArenaComesBackBitForBit) {
  Start();
  auto client = Connect();
  std::vector<std::vector<std::byte>> contents;
  std::vector<tier::Operation> operations;
  for (uint64_t i = 0; i < 32; ++i) {
    contents.push_back(Random(8 * kMiB + i * 1237, i));
    operations.push_back(client.SwapOut(i, contents[i]));
  }
  for (auto& operation : operations) operation.Wait();
  for (uint64_t i = 0; i < contents.size(); ++i) {
    std::vector<std::byte> back(contents[i].size());
    EXPECT_EQ(client.SwapIn(i, back).Wait().bytes, back.size());
    EXPECT_EQ(back, contents[i]) << "tensor " << i;
  }
}

TEST_F(SwapEndToEnd, ATensorLargerThanTheArenaStreamsThroughIt) {
  Start();
  auto client = Connect();
  const auto content = Random(200 * kMiB + 12345, 7);
  client.SwapOut(1, content).Wait();
  EXPECT_EQ(client.Tensor(1).size, content.size());
  EXPECT_EQ(client.Tensor(1).sealed, 1);
  std::vector<std::byte> back(content.size());
  client.SwapIn(1, back).Wait();
  EXPECT_EQ(back, content);
}

TEST_F(SwapEndToEnd, ReplacingKeepsTheLastContent) {
  Start();
  auto client = Connect();
  for (uint64_t round = 0; round < 4; ++round) {
    const auto content = Random((round % 2 == 0 ? 90 : 10) * kMiB + round, round);
    client.SwapOut(1, content).Wait();
    client.SwapOut(1, content).Wait();  // The same size: in place.
    std::vector<std::byte> back(content.size());
    client.SwapIn(1, back).Wait();
    EXPECT_EQ(back, content) << "round " << round;
  }
}

TEST_F(SwapEndToEnd, PartsOfATensorOnSsdAreUpdated) {
  Start();
  auto client = Connect();
  auto content = Random(100 * kMiB, 1);
  client.SwapOut(1, content).Wait();
  client.Flush();
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.whole = 0;
  for (const uint64_t offset : {uint64_t{0}, 3 * kMiB + 5, 63 * kMiB + 4096, 96 * kMiB - 1}) {
    const auto part = Random(4 * kMiB + 1, offset);
    options.offset = offset;
    client.SwapOut(1, part, &options).Wait();
    std::ranges::copy(part, content.begin() + static_cast<ptrdiff_t>(offset));
  }
  std::vector<std::byte> back(content.size());
  client.SwapIn(1, back).Wait();
  EXPECT_EQ(back, content);
}

TEST_F(SwapEndToEnd, ASwapInMeetsItsOwnSwapOut) {
  Start();
  auto client = Connect();
  std::vector<std::byte> back(40 * kMiB);
  for (uint64_t round = 0; round < 5; ++round) {
    const auto content = Random(back.size(), round);
    auto out = client.SwapOut(1, content);
    auto in = client.SwapIn(1, back);
    in.Wait();
    EXPECT_EQ(back, content) << "round " << round;
    out.Wait();
  }
}

TEST_F(SwapEndToEnd, FlushedTensorsSurviveADropOfTheirRamCopies) {
  Start();
  auto client = Connect();
  const auto content = Random(20 * kMiB + 77, 3);
  client.SwapOut(1, content).Wait();
  client.Flush();
  EXPECT_GE(client.Tensor(1).ssd_bytes, content.size());
  const uint64_t tensor = 1;
  tier::Check(tier_drop(client.handle(), &tensor, 1, 0));
  EXPECT_EQ(client.Tensor(1).ram_bytes, 0u);
  std::vector<std::byte> back(content.size());
  client.SwapIn(1, back).Wait();
  EXPECT_EQ(back, content);
}

TEST_F(SwapEndToEnd, OneThatMustNotWaitEndsAtWhatIsLeasedOrOnSsd) {
  Start();
  auto client = Connect();
  const auto content = Random(20 * kMiB, 1);
  client.SwapOut(1, content).Wait();
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_NO_WAIT;
  std::vector<std::byte> back(content.size());
  client.SwapIn(1, back, &options).Wait();
  EXPECT_EQ(back, content);
  std::string sentence;
  auto lease = client.Acquire(1, TIER_WRITE, {18 * kMiB, 4096});
  EXPECT_EQ(CodeOf([&] { client.SwapIn(1, back, &options).Wait(); }, &sentence), TIER_TIMEOUT);
  EXPECT_THAT(sentence, ::testing::HasSubstr("reading tensor 0x1 at byte 18874368 has to wait"));
  lease.Seal();
  client.Flush();
  const uint64_t tensor = 1;
  tier::Check(tier_drop(client.handle(), &tensor, 1, 0));
  EXPECT_EQ(CodeOf([&] { client.SwapIn(1, back, &options).Wait(); }, &sentence), TIER_TIMEOUT);
  EXPECT_THAT(sentence, ::testing::HasSubstr("must not wait"));
}

TEST_F(SwapEndToEnd, CastsAndChecksGoThroughTheSsd) {
  Start();
  auto client = Connect();
  std::vector<float> values(30'000'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 128);
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.memory_type = TIER_FP32;
  options.tensor_type = TIER_BF16;
  options.check_finite = options.sum_squares = 1;
  const auto out = client.SwapOut(1, std::as_bytes(std::span(values)), &options).Wait();
  EXPECT_EQ(out.non_finite_count, 0u);
  std::vector<float> back(values.size());
  const auto in = client.SwapIn(1, std::as_writable_bytes(std::span(back)), &options).Wait();
  EXPECT_EQ(back, values);
  EXPECT_EQ(in.sum_of_squares, out.sum_of_squares);
}

TEST_F(SwapEndToEnd, MoreThanRamAndSsdTogetherIsNoSpace) {
  Start({.arena = "64MiB", .ssd_file_size = "256MiB"});
  auto client = Connect();
  std::string sentence;
  const auto content = std::vector<std::byte>(400 * kMiB);
  EXPECT_EQ(CodeOf([&] { client.SwapOut(1, content).Wait(); }, &sentence), TIER_NO_SPACE) << sentence;
  EXPECT_EQ(CodeOf([&] { client.Tensor(1); }), TIER_NOT_FOUND);
  const auto small = Random(100 * kMiB, 1);  // And nothing of it is left in the way.
  client.SwapOut(2, small).Wait();
  std::vector<std::byte> back(small.size());
  client.SwapIn(2, back).Wait();
  EXPECT_EQ(back, small);
}

}  // namespace
}  // namespace tier::daemon_process
