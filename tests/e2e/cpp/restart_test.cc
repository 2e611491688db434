// The daemon goes while clients wait, and comes back as another one.
#include <thread>

#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using Clock = std::chrono::steady_clock;
using DaemonDeath = RealDaemon;

TEST_F(DaemonDeath, EndsEveryWaitWithinASecond) {
  Start();
  auto client = Connect();
  tier::Lease writing = client.Create(1, 4096);
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  std::vector<int> codes(4);
  for (size_t i = 0; i < codes.size(); ++i) {
    threads.emplace_back([&, i] {
      waiting++;
      codes[i] = CodeOf([&] { client.Acquire(1); });
    });
  }
  while (waiting.load() < 4) std::this_thread::yield();
  client.Step();
  const auto started = Clock::now();
  daemon_->Kill();
  for (auto& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - started, std::chrono::seconds(1));
  EXPECT_THAT(codes, ::testing::Each(TIER_DISCONNECTED));
  EXPECT_EQ(client.Session().connected, 0);
}

TEST_F(DaemonDeath, EndsASwapUnderWay) {
  Start();
  auto client = Connect();
  const std::vector<std::byte> content(300 * kMiB);
  auto operation = client.SwapOut(1, content);
  std::string sentence;
  daemon_->Kill();
  EXPECT_EQ(CodeOf([&] { operation.Wait(); }, &sentence), TIER_DISCONNECTED) << sentence;
  EXPECT_THAT(sentence, ::testing::HasSubstr("tierd.sock"));
}

TEST_F(DaemonDeath, LeavesHandlesThatAreTypedAndReleasable) {
  Start();
  auto client = Connect();
  tier::Lease lease = client.Create(1, 4096);
  lease.bytes()[0] = std::byte{1};
  const uint64_t epoch = client.Session().epoch;
  daemon_->Kill();
  EXPECT_EQ(CodeOf([&] { client.Step(); }), TIER_DISCONNECTED);
  daemon_->Restart();
  EXPECT_EQ(CodeOf([&] { lease.bytes(); }), TIER_DISCONNECTED);
  EXPECT_EQ(CodeOf([&] { lease.Release(); }), TIER_DISCONNECTED);
  auto again = Connect();
  EXPECT_NE(again.Session().epoch, epoch);
  EXPECT_EQ(CodeOf([&] { again.Acquire(1); }), TIER_NOT_FOUND);
  again.Create(1, 4096).Seal();
}

TEST_F(DaemonDeath, AnOrderlyStopIsSaidToItsClients) {
  Start();
  auto client = Connect();
  client.Create(1, 4096).Seal();
  EXPECT_EQ(daemon_->Stop(), 0);
  std::string sentence;
  EXPECT_EQ(CodeOf([&] { client.Step(); }, &sentence), TIER_DISCONNECTED) << sentence;
}

}  // namespace
}  // namespace tier::daemon_process
