// The drill: kill a client in the middle of its swap-outs, again and again; nothing may stay with the dead.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <random>
#include <thread>

#include "proto/units.h"
#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kArenaMib = 64;
constexpr uint64_t kVictimMib = 48;    // What each victim streams through the arena.
constexpr uint64_t kObserverMib = 40;  // More than is free while the victim lives.

// How many are asked for, on a machine that does nothing else.
std::optional<int> KillsAsked() {
  const char* const given = std::getenv("TIER_KILLS");
  return given == nullptr ? std::nullopt : std::optional(std::atoi(given));
}

int KillCount(int usual = 200) { return KillsAsked().value_or(usual); }

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Figures {
  std::vector<double> milliseconds;
  double median() const { return milliseconds[milliseconds.size() / 2]; }
  size_t CountBeyond(double bound) const {
    return static_cast<size_t>(std::ranges::count_if(milliseconds, [&](double one) { return one > bound; }));
  }
  void Print(const char* what) {
    std::ranges::sort(milliseconds);
    if (milliseconds.empty()) return;
    std::printf("%s: %.1f ms (median), %.1f ms (worst) of %zu\n", what, median(), milliseconds.back(),
                milliseconds.size());
  }
};

class ClientKill : public RealDaemon {
 protected:
  void KillAtRandom(ChildProcess& victim) {
    EXPECT_EQ(victim.ReadLine(), "ready");
    // Anywhere in a swap: a few thousand yields are a few milliseconds.
    for (uint64_t i = random_() % 4000; i > 0; --i) std::this_thread::yield();
    victim.Signal(SIGKILL);
    EXPECT_TRUE(victim.AwaitDeath(milliseconds(5000)));
  }
  // Kills one victim in the middle of its swaps. Milliseconds from its pidfd firing until the observer has got more
  // memory than was free while it lived.
  double KillOne(tier::Client& observer, const ChildProcess::Options& command) {
    ChildProcess victim(command);
    KillAtRandom(victim);
    const auto died = Clock::now();
    std::string sentence;
    const int code = CodeOf([&] { observer.Create(1, kObserverMib * kMiB, {}, 0, 5000).Seal(); }, &sentence);
    const double elapsed = MillisecondsSince(died);
    EXPECT_EQ(code, TIER_OK) << "after " << elapsed << " ms: " << sentence;
    observer.Free(1);
    return elapsed;
  }
  // All of the arena and all of the SSD can be filled again: nothing stayed with the dead.
  void ExpectNothingLeaked(tier::Client& observer, size_t descriptors_before) {
    // Windows come and go; the files of those that the dead had are looked at once a second.
    const size_t most = descriptors_before + kArenaMib / 2;
    const auto end = Clock::now() + std::chrono::seconds(10);
    while (daemon_->descriptor_count() > most && Clock::now() < end) std::this_thread::yield();
    EXPECT_LE(daemon_->descriptor_count(), most);
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
  figures.Print("memory back to a rank of the same job");
  // Beside other tests the machine itself may keep one waiting longer.
  EXPECT_LE(KillsAsked() ? figures.milliseconds.back() : figures.median(), 100.0);
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
  figures.Print("memory back to another job");
  EXPECT_LE(figures.median(), 250.0);
  ExpectNothingLeaked(observer, descriptors);
}

// ---- Beside two jobs that train ----

constexpr uint64_t kTrainerMib = 16;  // One tensor of three; a trainer's job has room for two.
constexpr uint64_t kTrainers = 2;
constexpr uint64_t kSharedArenaMib = kArenaMib + kTrainers * 2 * kTrainerMib;

enum class Pages : uint8_t { kSmall, kCollapsed };

// What the kernel alone needs to populate so many bytes of memory files for one process and to take them away again,
// in files of 2 MiB, as the daemon's windows here are.
double PunchAndPopulateMilliseconds(uint64_t bytes, Pages pages) {
  constexpr int kMadviseCollapse = 25;  // Linux 6.1; younger than the C library's headers.
  std::vector<Descriptor> files;
  void* const reserved = ::mmap(nullptr, bytes + kBlockSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(reserved, MAP_FAILED);
  auto* at = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uintptr_t>(reserved), kBlockSize));
  const auto begin = Clock::now();
  for (uint64_t done = 0; done < bytes; done += kBlockSize, at += kBlockSize) {
    files.emplace_back(::memfd_create("bare", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(files.back().get(), static_cast<off_t>(kBlockSize)), 0);
    EXPECT_NE(::mmap(at, kBlockSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, files.back().get(), 0),
              MAP_FAILED);
    if (pages == Pages::kCollapsed) {
      EXPECT_EQ(::madvise(at, kPageSize, MADV_POPULATE_WRITE), 0);
      (void)::madvise(at, kBlockSize, kMadviseCollapse);  // Where it is refused the daemon goes on as well.
    }
    EXPECT_EQ(::madvise(at, kBlockSize, MADV_POPULATE_WRITE), 0);
  }
  for (const Descriptor& file : files)
    EXPECT_EQ(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBlockSize), 0);
  const double elapsed = MillisecondsSince(begin);
  ::munmap(reserved, bytes + kBlockSize);
  return elapsed;
}

class KillBesideTrainers : public ClientKill, public testing::WithParamInterface<Pages> {
 protected:
  void SetUp() override {
    Start({.arena = std::to_string(kSharedArenaMib) + "MiB",
           .collapse = GetParam() == Pages::kCollapsed ? "auto" : "never"});
    const auto first = Connect();
    descriptors_ = daemon_->descriptor_count();
    for (auto& trainer : trainers_) {
      trainer.emplace(Victim("train", kTrainerMib));
      ASSERT_EQ(trainer->ReadLine(), "ready");
    }
  }
  // A victim in the job of `observer`, whose memory stays with the job.
  ChildProcess::Options RankOf(tier::Client& observer) const {
    auto command = Victim("swap_out", kVictimMib);
    command.command.push_back(observer.Session().job);
    command.environment["TIERD_JOB_TOKEN"] = observer.Session().token;
    return command;
  }
  // A job that has nothing yet, and a guarantee that is lent until the victim is dead: milliseconds until it has
  // written all of what it is guaranteed.
  double KillForAnotherOwner() {
    auto options = Options();
    options.guarantee_bytes = kObserverMib * kMiB;
    tier::Client heir(options);
    ChildProcess victim(Victim("swap_out", kVictimMib));
    KillAtRandom(victim);
    const auto died = Clock::now();
    std::string sentence;
    const int code = CodeOf(
        [&] {
          tier::Lease lease = heir.Create(1, kObserverMib * kMiB);
          std::ranges::fill(lease.bytes(), std::byte{1});
          lease.Seal();
        },
        &sentence);
    const double elapsed = MillisecondsSince(died);
    EXPECT_EQ(code, TIER_OK) << "after " << elapsed << " ms: " << sentence;
    return elapsed;
  }
  void EndTrainers() {
    for (auto& trainer : trainers_) {
      trainer->Signal(SIGTERM);
      const int steps = std::atoi(trainer->ReadLine().c_str());
      EXPECT_EQ(trainer->Join(), 0) << "a trainer read other bytes than it had written";
      EXPECT_GT(steps, 1) << "it did not train while clients were killed";
      std::printf("a trainer beside them: %d steps, every byte right\n", steps);
    }
  }
  std::array<std::optional<ChildProcess>, kTrainers> trainers_;
  size_t descriptors_ = 0;  // Of the daemon, with one client.
};

// What the figures must be is for a machine that does nothing else: here they are printed, and only bytes decide.
TEST_P(KillBesideTrainers, WhatTheDeadHeldGoesToItsOwnJobAndToAnotherWhileTwoJobsTrain) {
  Figures own, other, bare;
  const int kills = KillCount(40);
  {
    auto observer = Connect();
    for (int kill = 0; kill < kills / 2 && !HasFailure(); ++kill)
      own.milliseconds.push_back(KillOne(observer, RankOf(observer)));
  }
  for (int kill = kills / 2; kill < kills && !HasFailure(); ++kill) {
    bare.milliseconds.push_back(PunchAndPopulateMilliseconds(kObserverMib * kMiB, GetParam()));
    other.milliseconds.push_back(KillForAnotherOwner());
  }
  own.Print("memory back to a rank of the same job, beside two jobs that train");
  other.Print("the same written by another owner, beside two jobs that train");
  bare.Print("punch and populate of as much, by the kernel alone");
  const double bound = 100.0 + 1.25 * bare.median();
  std::printf("beyond 100 ms: %zu of the first; beyond %.0f ms: %zu of the second\n", own.CountBeyond(100.0), bound,
              other.CountBeyond(bound));
  // A host that lends its memory to others makes some of both slow: the slowest beside the slowest, and so on.
  size_t beyond = 0;
  for (size_t i = 0; i < other.milliseconds.size(); ++i)
    beyond += other.milliseconds[i] > 100.0 + 1.25 * bare.milliseconds[i] ? 1 : 0;
  std::printf("in order, each beyond 100 ms + 1.25 of the kernel's own: %zu of the second\n", beyond);
  EndTrainers();
  if (HasFailure()) return;
  auto observer = Connect();
  ExpectNothingLeaked(observer, descriptors_);
}

INSTANTIATE_TEST_SUITE_P(OfPages, KillBesideTrainers, testing::Values(Pages::kSmall, Pages::kCollapsed),
                         [](const auto& pages) { return pages.param == Pages::kSmall ? "Small" : "Collapsed"; });

}  // namespace
}  // namespace tier::daemon_process
