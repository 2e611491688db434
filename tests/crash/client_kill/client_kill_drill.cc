// The drill: kill a client in the middle of its swap-outs, again and again; nothing may stay with the dead.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kArenaMib = 64;
constexpr uint64_t kVictimMib = 48;    // What each victim streams through the arena.
constexpr uint64_t kObserverMib = 40;  // More than is free while the victim lives.

int KillCount() {
  const char* const given = std::getenv("TIER_KILLS");
  return given == nullptr ? 200 : std::atoi(given);
}

struct Figures {
  std::vector<double> milliseconds;
  double median() const { return milliseconds[milliseconds.size() / 2]; }
  void Print(const char* what) {
    std::ranges::sort(milliseconds);
    std::printf("%s: %zu kills, memory back after %.1f ms (median), %.1f ms (worst)\n", what, milliseconds.size(),
                median(), milliseconds.back());
  }
};

class ClientKill : public RealDaemon {
 protected:
  // Kills one victim in the middle of its swaps. Milliseconds from its pidfd firing until the observer has got more
  // memory than was free while it lived.
  double KillOne(tier::Client& observer, const ChildProcess::Options& command) {
    ChildProcess victim(command);
    EXPECT_EQ(victim.ReadLine(), "ready");
    // Anywhere in a swap: a few thousand yields are a few milliseconds.
    for (uint64_t i = random_() % 4000; i > 0; --i) std::this_thread::yield();
    victim.Signal(SIGKILL);
    EXPECT_TRUE(victim.AwaitDeath(milliseconds(5000)));
    const auto died = Clock::now();
    std::string sentence;
    const int code = CodeOf([&] { observer.Create(1, kObserverMib * kMiB, {}, 0, 5000).Seal(); }, &sentence);
    const double elapsed = std::chrono::duration<double, std::milli>(Clock::now() - died).count();
    EXPECT_EQ(code, TIER_OK) << "after " << elapsed << " ms: " << sentence;
    observer.Free(1);
    return elapsed;
  }
  // All of the arena and all of the SSD can be filled again: nothing stayed with the dead.
  void ExpectNothingLeaked(tier::Client& observer, size_t descriptors_before) {
    EXPECT_LE(daemon_->descriptor_count(), descriptors_before + kArenaMib / 2);  // Windows come and go.
    const auto content = Random(800 * kMiB, 5);
    observer.SwapOut(2, content).Wait();
    observer.Flush();
    std::vector<std::byte> back(content.size());
    observer.SwapIn(2, back).Wait();
    EXPECT_TRUE(back == content);
    observer.Free(2);
  }
  std::mt19937_64 random_{1};
};

// One job: its windows stay, so what is measured is death, reclaim and nothing else.
TEST_F(ClientKill, WhatADeadRankHeldIsAllocatableWithin100Milliseconds) {
  Start({.arena = std::to_string(kArenaMib) + "MiB"});
  auto options = Options();
  options.job = "drill";
  tier::Client observer(options);
  auto command = Victim("swap_out", kVictimMib);
  command.command.push_back("drill");
  command.environment["TIERD_JOB_TOKEN"] = observer.Session().token;
  Figures figures;
  figures.milliseconds.push_back(KillOne(observer, command));
  const size_t descriptors = daemon_->descriptor_count();
  for (int kill = 1; kill < KillCount() && !HasFailure(); ++kill)
    figures.milliseconds.push_back(KillOne(observer, command));
  figures.Print("a rank of the same job");
  EXPECT_LE(figures.milliseconds.back(), 100.0);
  ExpectNothingLeaked(observer, descriptors);
}

// Another job: the dead one's windows are given up and the observer gets fresh ones, zeroed and prefaulted, which takes
// as long as the machine's other work lets it.
TEST_F(ClientKill, WhatADeadJobHeldGoesToAnotherJob) {
  Start({.arena = std::to_string(kArenaMib) + "MiB"});
  auto observer = Connect();
  const auto command = Victim("swap_out", kVictimMib);
  Figures figures;
  figures.milliseconds.push_back(KillOne(observer, command));
  const size_t descriptors = daemon_->descriptor_count();
  for (int kill = 1; kill < KillCount() / 4 && !HasFailure(); ++kill)
    figures.milliseconds.push_back(KillOne(observer, command));
  figures.Print("another job");
  EXPECT_LE(figures.median(), 250.0);
  ExpectNothingLeaked(observer, descriptors);
}

}  // namespace
}  // namespace tier::daemon_process
