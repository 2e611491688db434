// The drill: kill clients in the middle of what they do, again and again; nothing may stay with the dead.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <thread>

#include "proto/units.h"
#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kArenaMib = 64;
constexpr uint64_t kObserverMib = 40;  // More than is free while the victim lives.

// What a victim does, with so much memory in all.
struct Work {
  const char* state;
  uint64_t mib;
};
constexpr auto kStreams = std::to_array<Work>({{"swap_out", 48}, {"swap_in", 48}, {"churn", 48}});
constexpr auto kLeases =
    std::to_array<Work>({{"create", 32}, {"write", 32}, {"read", 32}, {"waiting", 32}, {"shared_read", 32}});

// How many are asked for, on a machine that does nothing else.
std::optional<int> KillsAsked() {
  const char* const given = std::getenv("TIER_KILLS");
  return given == nullptr ? std::nullopt : std::optional(std::atoi(given));
}

int KillCount(int usual = 200) { return KillsAsked().value_or(usual); }

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

unsigned long long Long(uint64_t bytes) { return bytes; }

struct Figures {
  std::vector<double> milliseconds;
  // REQUIRES: printed, which sorts.
  double median() const { return milliseconds.empty() ? 0.0 : milliseconds[milliseconds.size() / 2]; }
  double worst() const { return milliseconds.empty() ? 0.0 : milliseconds.back(); }
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

// Victims that streamed through the arena, and those that leased a part of it: what the latter held was ready at once.
struct Kills {
  Figures streams;
  Figures leases;
  void Print(const std::string& what) {
    streams.Print((what + ", of one that streamed").c_str());
    leases.Print((what + ", of one that leased").c_str());
  }
  double median() const { return std::max(streams.median(), leases.median()); }
  double worst() const { return std::max(streams.worst(), leases.worst()); }
  size_t CountBeyond(double bound) const { return streams.CountBeyond(bound) + leases.CountBeyond(bound); }
};

// What one job can have of the daemon.
struct Usable {
  uint64_t leased_bytes = 0;  // In RAM at one time.
  uint64_t held_bytes = 0;    // In tensors, in RAM and on SSD.
  bool operator==(const Usable&) const = default;
};

class ClientKill : public RealDaemon {
 protected:
  void StartSmall(uint64_t arena_mib, const std::string& collapse = "auto") {
    Start({.arena = std::to_string(arena_mib) + "MiB", .collapse = collapse, .ssd_file_size = "512MiB"});
  }
  Work Choose(bool leases) {
    const uint64_t chosen = random_() % (kStreams.size() + (leases ? kLeases.size() : 0));
    const Work work = chosen < kStreams.size() ? kStreams[chosen] : kLeases[chosen - kStreams.size()];
    ++kills_[work.state];
    return work;
  }
  // A victim of a job of its own, or in the job of `observer`.
  ChildProcess::Options VictimOf(const Work& work, tier::Client* observer) const {
    auto command = Victim(work.state, work.mib);
    if (observer != nullptr) {
      command.command.push_back(observer->Session().job);
      command.environment["TIERD_JOB_TOKEN"] = observer->Session().token;
    }
    return command;
  }
  void KillAtRandom(ChildProcess& victim) {
    EXPECT_EQ(victim.ReadLine(), "ready");
    // Anywhere in what it does.
    const auto end = Clock::now() + std::chrono::microseconds(random_() % 5000);
    while (Clock::now() < end) std::this_thread::yield();
    victim.Signal(SIGKILL);
    EXPECT_TRUE(victim.AwaitDeath(milliseconds(5000)));
  }
  // Kills one victim in the middle of what it does. The figure: milliseconds from its pidfd firing until the observer
  // has got more memory than was free while it lived.
  void KillOne(tier::Client& observer, bool of_its_job, Kills* kills) {
    const Work work = Choose(true);
    ChildProcess victim(VictimOf(work, of_its_job ? &observer : nullptr));
    KillAtRandom(victim);
    const bool left_shared = of_its_job && std::string(work.state) == "shared_read";
    const auto died = Clock::now();
    std::string sentence;
    const int code = CodeOf(
        [&] {
          if (left_shared) observer.Free(1, TIER_SHARED);  // It is the job's; the leases on it were the victim's.
          observer.Create(1, kObserverMib * kMiB, {}, 0, 5000).Seal();
        },
        &sentence);
    const double elapsed = MillisecondsSince(died);
    EXPECT_EQ(code, TIER_OK) << "after " << elapsed << " ms, killed in " << work.state << ": " << sentence;
    observer.Free(1);
    const bool leased = std::ranges::count(kLeases, std::string(work.state), &Work::state) != 0;
    (leased ? kills->leases : kills->streams).milliseconds.push_back(elapsed);
  }
  void PrintKills() const {
    for (const auto& [state, count] : kills_) std::printf("%d killed in %s\n", count, state.c_str());
  }
  // To the page: tensors of a block, then of a page, until one is refused.
  template <typename Take>
  static uint64_t TakeAll(int refusal, Take take) {
    uint64_t tensor = 0;
    uint64_t bytes = 0;
    for (const uint64_t size : {kBlockSize, kPageSize}) {
      std::string sentence;
      int code = TIER_OK;
      while ((code = CodeOf([&] { take(++tensor, size); }, &sentence)) == TIER_OK) bytes += size;
      EXPECT_EQ(code, refusal) << "after " << bytes << " bytes: " << sentence;
    }
    return bytes;
  }
  // By a job that ends with it; what it holds is written to SSD, and every byte of it is read.
  Usable Measure() {
    Usable usable;
    {
      tier::Client client = Connect();
      std::vector<tier::Lease> leases;
      usable.leased_bytes = TakeAll(TIER_WOULD_DEADLOCK, [&](uint64_t tensor, uint64_t size) {
        leases.push_back(client.Create(tensor, size, {}, TIER_NO_WAIT_OWN));
      });
    }
    tier::Client client = Connect();
    const auto content = Random(kBlockSize, 5);
    std::map<uint64_t, uint64_t> sizes;  // By tensor.
    usable.held_bytes = TakeAll(TIER_NO_SPACE, [&](uint64_t tensor, uint64_t size) {
      client.SwapOut(tensor, std::span(content).first(size)).Wait();
      sizes[tensor] = size;
    });
    client.Flush();
    std::vector<std::byte> back(kBlockSize);
    for (const auto& [tensor, size] : sizes) {
      client.SwapIn(tensor, std::span(back).first(size)).Wait();
      EXPECT_EQ(std::memcmp(back.data(), content.data(), size), 0) << "tensor " << tensor;
    }
    return usable;
  }
  // What is in use by all jobs, line by line, as `tierctl status` says it.
  std::vector<std::string> InUse() const {
    constexpr std::array kFigures = {"job_count",     "session_count", "tensor_count", "torn_count",
                                     "lease_count",   "waiting_count", "free_bytes",   "live_bytes",
                                     "pending_bytes", "quarantined",   "doubtful",     "inflight_count"};
    ChildProcess tierctl({.command = {TIERCTL_PROGRAM, "--socket", daemon_->directory() + "/run", "status", "--json"},
                          .environment = {},
                          .error_file = {}});
    std::vector<std::string> lines;
    for (std::string line = tierctl.ReadLine(); !line.empty(); line = tierctl.ReadLine()) {
      const auto names = [&](const char* figure) { return line.find(std::string("\"") + figure) != std::string::npos; };
      if (std::ranges::any_of(kFigures, names)) lines.push_back(line);
    }
    EXPECT_GE(lines.size(), kFigures.size());
    return lines;
  }
  // Nothing stayed with the dead: as much is in use as before them, and as much can be had, to the page.
  void ExpectNothingLeaked(const Usable& before, const std::vector<std::string>& in_use, size_t descriptors_before) {
    // Windows come and go; the files of those that the dead had are looked at once a second.
    const size_t most = descriptors_before + kArenaMib / 2;
    const auto end = Clock::now() + std::chrono::seconds(10);
    while ((daemon_->descriptor_count() > most || InUse() != in_use) && Clock::now() < end) std::this_thread::yield();
    EXPECT_LE(daemon_->descriptor_count(), most);
    EXPECT_EQ(InUse(), in_use);
    const Usable after = Measure();
    std::printf("usable: %llu bytes under leases and %llu in tensors before, %llu and %llu after\n",
                Long(before.leased_bytes), Long(before.held_bytes), Long(after.leased_bytes), Long(after.held_bytes));
    EXPECT_TRUE(after == before);
  }
  std::mt19937_64 random_{1};
  std::map<std::string, int> kills_;  // By what was done.
};

// One job: its windows stay, so what is measured is death, reclaim and nothing else.
TEST_F(ClientKill, WhatADeadRankHeldIsAllocatableWithin100Milliseconds) {
  StartSmall(kArenaMib);
  auto options = Options();
  options.job = "drill";
  tier::Client observer(options);
  const auto in_use = InUse();
  const Usable before = Measure();
  Kills kills;
  KillOne(observer, true, &kills);
  const size_t descriptors = daemon_->descriptor_count();
  for (int kill = 1; kill < KillCount() && !HasFailure(); ++kill) KillOne(observer, true, &kills);
  PrintKills();
  kills.Print("memory back to a rank of the same job");
  // Beside other tests the machine itself may keep one waiting longer.
  EXPECT_LE(KillsAsked() ? kills.worst() : kills.median(), 100.0);
  ExpectNothingLeaked(before, in_use, descriptors);
}

// Another job: the dead one's windows are given up and the observer gets fresh ones, zeroed and prefaulted, which takes
// as long as the machine's other work lets it.
TEST_F(ClientKill, WhatADeadJobHeldGoesToAnotherJob) {
  StartSmall(kArenaMib);
  auto observer = Connect();
  const auto in_use = InUse();
  const Usable before = Measure();
  Kills kills;
  KillOne(observer, false, &kills);
  const size_t descriptors = daemon_->descriptor_count();
  for (int kill = 1; kill < KillCount() / 4 && !HasFailure(); ++kill) KillOne(observer, false, &kills);
  PrintKills();
  kills.Print("memory back to another job");
  EXPECT_LE(kills.median(), 250.0);
  ExpectNothingLeaked(before, in_use, descriptors);
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
    StartSmall(kSharedArenaMib, GetParam() == Pages::kCollapsed ? "auto" : "never");
    in_use_ = InUse();
    usable_ = Measure();
    const auto first = Connect();
    descriptors_ = daemon_->descriptor_count();
    for (auto& trainer : trainers_) {
      trainer.emplace(Victim("train", kTrainerMib));
      ASSERT_EQ(trainer->ReadLine(), "ready");
    }
  }
  // A job that has nothing yet, and a guarantee that is lent until the victim is dead: milliseconds until it has
  // written all of what it is guaranteed. What a victim leases never reaches into a guarantee: it has to wait for none.
  double KillForAnotherOwner() {
    auto options = Options();
    options.guarantee_bytes = kObserverMib * kMiB;
    tier::Client heir(options);
    ChildProcess victim(VictimOf(Choose(false), nullptr));
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
  Usable usable_;                    // Before the first client …
  std::vector<std::string> in_use_;  // … and what was in use.
  size_t descriptors_ = 0;           // Of the daemon, with one client.
};

// What the figures must be is for a machine that does nothing else (TIER_KILLS): there the medians decide, as each
// single one may have met work of the host. Else they are printed, and only bytes decide.
TEST_P(KillBesideTrainers, WhatTheDeadHeldGoesToItsOwnJobAndToAnotherWhileTwoJobsTrain) {
  Kills own;
  Figures other, bare;
  const int kills = KillCount(40);
  {
    auto observer = Connect();
    for (int kill = 0; kill < kills / 2 && !HasFailure(); ++kill) KillOne(observer, true, &own);
  }
  for (int kill = kills / 2; kill < kills && !HasFailure(); ++kill) {
    bare.milliseconds.push_back(PunchAndPopulateMilliseconds(kObserverMib * kMiB, GetParam()));
    other.milliseconds.push_back(KillForAnotherOwner());
  }
  PrintKills();
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
  if (KillsAsked() && !HasFailure()) {
    EXPECT_LE(own.median(), 100.0);
    EXPECT_LE(other.median(), bound);
  }
  EndTrainers();
  if (!HasFailure()) ExpectNothingLeaked(usable_, in_use_, descriptors_);
}

INSTANTIATE_TEST_SUITE_P(OfPages, KillBesideTrainers, testing::Values(Pages::kSmall, Pages::kCollapsed),
                         [](const auto& pages) { return pages.param == Pages::kSmall ? "Small" : "Collapsed"; });

}  // namespace
}  // namespace tier::daemon_process
