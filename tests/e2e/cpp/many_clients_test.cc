#include <atomic>
#include <thread>

#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using ManyClients = RealDaemon;
constexpr uint64_t kClients = 65;

// Three tensors out and in again, each checked.
void SwapSome(tier::Client& client, uint64_t seed, std::atomic<int>& wrong) {
  std::vector<std::byte> content(3 * kMiB + seed), back(content.size());
  for (uint64_t tensor = 0; tensor < 3; ++tensor) {
    std::ranges::fill(content, static_cast<std::byte>(seed * 3 + tensor));
    client.SwapOut(tensor, content).Wait();
  }
  for (uint64_t tensor = 0; tensor < 3; ++tensor) {
    std::ranges::fill(content, static_cast<std::byte>(seed * 3 + tensor));
    client.SwapIn(tensor, back).Wait();
    wrong += back == content ? 0 : 1;
  }
}

TEST_F(ManyClients, SixtyFiveRanksOfOneJobShareASmallArena) {
  Start();
  auto options = Options();
  options.job = "crowd";
  std::vector<tier::Client> clients;
  for (uint64_t i = 0; i < kClients; ++i) {
    clients.emplace_back(options);
    options.token = clients.front().Session().token;
  }
  std::atomic<int> wrong{0}, failed{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      std::string sentence;
      if (CodeOf([&] { SwapSome(clients[i], i, wrong); }, &sentence) == TIER_OK) return;
      failed++;
      ADD_FAILURE() << "client " << i << ": " << sentence;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(failed.load(), 0);
}

// Each a job of its own: windows are not shared between owners, so there are more owners than windows. A
// client without one in time gets a typed refusal; a client with one gets its bytes back.
TEST_F(ManyClients, SixtyFiveJobsGetTheirBytesOrATypedRefusal) {
  Start({.more_toml = "[jobs]\nmax_jobs_per_uid = 100\n[engine]\ndeadline = \"20s\"\n"});
  std::atomic<int> wrong{0}, served{0}, refused{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      std::string sentence;
      const int code = CodeOf(
          [&] {
            auto client = Connect();
            SwapSome(client, i, wrong);
          },
          &sentence);
      const bool typed = code == TIER_NO_MEMORY || code == TIER_TIMEOUT || code == TIER_DENIED;
      EXPECT_TRUE(code == TIER_OK || typed) << sentence;
      (code == TIER_OK ? served : refused)++;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GE(served.load(), 16) << refused.load() << " were refused";
  EXPECT_TRUE(daemon_->running());
}

}  // namespace
}  // namespace tier::daemon_process
