// A swap over an existing tensor that ends half way, in an arena too small for what the job holds: its tensor is TORN,
// whatever lies beside it is whole, and the memory is there again.
#include <algorithm>
#include <optional>

#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

constexpr uint64_t kTensor = 1;
constexpr uint64_t kSize = 48 * kMiB;
constexpr uint64_t kHalf = 24 * kMiB;

class HalfASwap : public RealDaemon {
 protected:
  void SetUp() override {
    Start({.arena = "32MiB", .ssd_file_size = "512MiB"});
    writer_.emplace(Options());
    reader_.emplace(OptionsOfJobOf(*writer_));
    stranger_.emplace(Options());
    shared_.flags = TIER_SHARED;
    writer_->SwapOut(kTensor, old_, &shared_).Wait();
    writer_->SwapOut(kTensor, own_).Wait();  // The same id in another namespace.
    reader_->SwapOut(kTensor + 1, neighbour_, &shared_).Wait();
    stranger_->SwapOut(kTensor, strange_).Wait();
  }
  // Goes on until it meets the reader's lease in the middle of the tensor; all ranges before that are final by then.
  tier::Operation SwapUpToTheLease() {
    const uint64_t before = writer_->Stats().copied_to_tensors_bytes;
    auto swap = writer_->SwapOut(kTensor, new_, &shared_);
    while (!swap.done() && writer_->Stats().copied_to_tensors_bytes < before + kHalf) {
      (void)swap.WaitFor(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(swap.done());
    return swap;
  }
  void ExpectContent(tier::Client& client, uint64_t tensor, const std::vector<std::byte>& content, uint32_t flags) {
    tier_copy_options options = TIER_COPY_OPTIONS_INIT;
    options.flags = flags;
    std::vector<std::byte> back(content.size());
    EXPECT_EQ(CodeOf([&] { client.SwapIn(tensor, back, &options).Wait(); }), TIER_OK) << tier_last_error();
    EXPECT_TRUE(back == content) << "tensor " << tensor;
  }
  void ExpectTornAndNeighboursWhole() {
    EXPECT_EQ(writer_->Tensor(kTensor, TIER_SHARED).torn, 1);
    for (tier::Client* client : {&*writer_, &*reader_}) {
      for (const uint64_t offset : {uint64_t{0}, kHalf, kSize - kMiB}) {
        EXPECT_EQ(CodeOf([&] { client->Acquire(kTensor, TIER_SHARED, {offset, 4096}); }), TIER_TORN) << offset;
      }
      std::vector<std::byte> back(kSize);
      EXPECT_EQ(CodeOf([&] { client->SwapIn(kTensor, back, &shared_).Wait(); }), TIER_TORN);
    }
    ExpectContent(*writer_, kTensor, own_, 0);
    ExpectContent(*writer_, kTensor + 1, neighbour_, TIER_SHARED);
    ExpectContent(*stranger_, kTensor, strange_, 0);
  }
  // The whole tensor is written again, and half of the arena can be leased at once.
  void ExpectRecovery() {
    writer_->SwapOut(kTensor, new_, &shared_).Wait();
    EXPECT_EQ(reader_->Tensor(kTensor, TIER_SHARED).torn, 0);
    ExpectContent(*reader_, kTensor, new_, TIER_SHARED);
    writer_->Create(kTensor + 2, 16 * kMiB).Seal();
    EXPECT_EQ(writer_->Stats().leases_open, 0u);
  }

  const std::vector<std::byte> old_ = Random(kSize, 1);
  const std::vector<std::byte> new_ = Random(kSize, 2);
  const std::vector<std::byte> own_ = Random(10 * kMiB + 1, 3);
  const std::vector<std::byte> neighbour_ = Random(30 * kMiB + 7, 4);
  const std::vector<std::byte> strange_ = Random(20 * kMiB, 5);
  tier_copy_options shared_ = TIER_COPY_OPTIONS_INIT;
  void TearDown() override {
    for (auto* const client : {&writer_, &reader_, &stranger_}) client->reset();
    RealDaemon::TearDown();
  }
  std::optional<tier::Client> writer_, reader_;  // Of one job …
  std::optional<tier::Client> stranger_;         // … and of another.
};

TEST_F(HalfASwap, ThatIsCancelledLeavesItsTensorTorn) {
  auto lease = reader_->Acquire(kTensor, TIER_SHARED, {kHalf, kMiB});
  auto swap = SwapUpToTheLease();
  swap.Cancel();
  std::string sentence;
  EXPECT_EQ(CodeOf([&] { swap.Wait(); }, &sentence), TIER_TIMEOUT);
  EXPECT_THAT(sentence, ::testing::HasSubstr("the swap of tensor 0x1 was cancelled"));
  EXPECT_TRUE(std::ranges::equal(lease.bytes(), std::span(old_).subspan(kHalf, kMiB))) << "nobody wrote beneath it";
  ExpectTornAndNeighboursWhole();
  lease.Release();
  ExpectRecovery();
}

using KilledSwap = RealDaemon;

TEST_F(KilledSwap, ThatHeldNoLeaseLeavesItsTensorTorn) {
  Start({.arena = "32MiB", .ssd_file_size = "512MiB"});
  auto reader = Connect();
  tier_copy_options shared = TIER_COPY_OPTIONS_INIT;
  shared.flags = TIER_SHARED;
  const auto old_content = Random(12 * kMiB, 1);
  reader.SwapOut(1, old_content, &shared).Wait();
  auto lease = reader.Acquire(1, TIER_SHARED, {4 * kMiB, 4096});
  auto command = Victim("half_swap", 12);
  command.command.push_back(reader.Session().job);
  command.environment.emplace("TIERD_JOB_TOKEN", reader.Session().token);
  ChildProcess victim(command);
  ASSERT_EQ(victim.ReadLine(), "ready");
  EXPECT_EQ(reader.Tensor(1, TIER_SHARED).torn, 0);
  victim.Signal(SIGKILL);
  ASSERT_TRUE(victim.AwaitDeath(std::chrono::milliseconds(5000)));
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (reader.Tensor(1, TIER_SHARED).torn == 0 && std::chrono::steady_clock::now() < give_up) continue;
  EXPECT_EQ(CodeOf([&] { reader.Acquire(1, TIER_SHARED, {0, 4096}); }), TIER_TORN);
  lease.Release();
  reader.SwapOut(1, old_content, &shared).Wait();
  std::vector<std::byte> back(old_content.size());
  reader.SwapIn(1, back, &shared).Wait();
  EXPECT_TRUE(back == old_content);
}

using ShardedTensor = RealDaemon;

TEST_F(ShardedTensor, IsTornWhenARankDiesBehindTheOthers) {
  Start();
  auto first = Connect();
  std::optional<tier::Client> second(OptionsOfJobOf(first));
  EXPECT_EQ(CodeOf([&] { first.Create(1, kMiB, {}, TIER_SHARDED); }), TIER_INVALID);
  first.Create(1, kMiB, {}, TIER_SHARED | TIER_SHARDED).Seal();
  EXPECT_EQ(CodeOf([&] { first.Acquire(1, TIER_SHARED | TIER_SHARDED); }), TIER_INVALID) << "only creates say so";
  const auto write = [](tier::Client& rank, uint64_t offset) {
    rank.Acquire(1, TIER_SHARED | TIER_WRITE, {offset, kMiB / 2}).Seal();
    rank.Step();
  };
  write(first, 0);
  write(*second, kMiB / 2);
  EXPECT_EQ(first.Tensor(1, TIER_SHARED).torn, 0);
  write(first, 0);
  EXPECT_EQ(first.Tensor(1, TIER_SHARED).torn, 0);  // Answered behind the write: the daemon has that.
  second.reset();
  EXPECT_EQ(first.Tensor(1, TIER_SHARED).torn, 1);
  EXPECT_EQ(CodeOf([&] { first.Acquire(1, TIER_SHARED); }), TIER_TORN);
}

TEST_F(ShardedTensor, IsWhatAWholeSwapOutCreates) {
  Start();
  auto first = Connect();
  std::optional<tier::Client> second(OptionsOfJobOf(first));
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_SHARED | TIER_SHARDED;
  const auto content = Random(6 * kMiB, 1);
  first.SwapOut(1, content, &options).Wait();
  options.flags = TIER_SHARED;
  options.whole = 0;
  const auto write = [&](tier::Client& rank, uint64_t offset) {
    options.offset = offset;
    rank.SwapOut(1, std::span(content).subspan(offset, 3 * kMiB), &options).Wait();
    rank.Step();
  };
  write(first, 0);
  write(*second, 3 * kMiB);
  write(first, 0);
  EXPECT_EQ(first.Tensor(1, TIER_SHARED).torn, 0);
  second.reset();
  EXPECT_EQ(first.Tensor(1, TIER_SHARED).torn, 1);
}

using CancelledWait = RealDaemon;

TEST_F(CancelledWait, ForAWriteLeaseLeavesItsTensorAsItWas) {
  Start();
  auto writer = Connect();
  tier::Client reader(OptionsOfJobOf(writer));
  tier_copy_options shared = TIER_COPY_OPTIONS_INIT;
  shared.flags = TIER_SHARED;
  const auto content = Random(5 * kMiB, 1);  // In RAM only.
  writer.SwapOut(1, content, &shared).Wait();
  auto lease = reader.Acquire(1, TIER_SHARED);
  const tier_range range{1, 0, 0, 0};
  tier_lease* unwanted = nullptr;
  tier_op* op = nullptr;
  tier::Check(tier_acquire_start(writer.handle(), &range, 1, TIER_SHARED | TIER_WRITE, 0, &unwanted, &op));
  writer.Step();  // Answered behind it: the daemon has it.
  tier_cancel(op);
  EXPECT_EQ(tier_wait(op, 0, nullptr), TIER_TIMEOUT);
  lease.Release();  // Now it is granted, to nobody.
  std::vector<std::byte> back(content.size());
  reader.SwapIn(1, back, &shared).Wait();
  EXPECT_EQ(back, content);
  EXPECT_EQ(reader.Tensor(1, TIER_SHARED).torn, 0);
}

}  // namespace
}  // namespace tier::daemon_process
