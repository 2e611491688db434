// Latency and rate of leases, beside a bare futex round trip between two processes.

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/ring.h"
#include "tools/bench/batches.h"
#include "tools/bench/client.h"
#include "tools/bench/parts.h"
#include "tools/bench/samples.h"

namespace tier::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kTensorBytes = 64 << 10;
constexpr auto kPause = std::chrono::milliseconds(5);  // Long enough that daemon and core have gone to sleep.
constexpr auto kHitPause = std::chrono::microseconds(100);

double Microseconds(Clock::time_point start) { return SecondsSince(start) * 1e6; }

void AcquireRelease(const BenchClient& client, uint64_t tensor) {
  const tier_range range = {tensor, 0, 0, 0};
  tier_lease* lease = nullptr;
  Require(tier_acquire(client.get(), &range, 0, 0, &lease), "acquire");
  Require(tier_release(lease, 0), "release");
}

long Futex(std::atomic<uint32_t>* word, int op, uint32_t value) {
  return ::syscall(SYS_futex, word, op, value, nullptr, nullptr, 0);
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t value) {
  while (word->load() != value) Futex(word, FUTEX_WAIT, word->load() == value ? value + 1 : value - 1);
}
void FutexPost(std::atomic<uint32_t>* word, uint32_t value) {
  word->store(value);
  Futex(word, FUTEX_WAKE, 1);
}

// The calling process from now on runs on this processor alone.
void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  Require(::sched_setaffinity(0, sizeof set, &set) == 0 ? TIER_OK : TIER_INVALID, "pin");
}

struct PingPong {
  alignas(64) std::atomic<uint32_t> ping;
  alignas(64) std::atomic<uint32_t> pong;
};

// Two processes, two words, both asleep before each trip: what any daemon reached by futex must pay.
class FutexPeer {
 public:
  FutexPeer(uint32_t trips, int cpu) {
    shared_ = static_cast<PingPong*>(
        ::mmap(nullptr, sizeof(PingPong), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    child_ = ::fork();
    if (child_ != 0) return;
    PinTo(cpu);
    for (uint32_t i = 1; i <= trips; ++i) {
      FutexWait(&shared_->ping, i);
      FutexPost(&shared_->pong, i);
    }
    ::_exit(0);
  }
  ~FutexPeer() {
    ::waitpid(child_, nullptr, 0);
    ::munmap(shared_, sizeof(PingPong));
  }
  void RoundTrip(uint32_t number) const {
    FutexPost(&shared_->ping, number);
    FutexWait(&shared_->pong, number);
  }

 private:
  PingPong* shared_ = nullptr;
  pid_t child_ = 0;
};

// One entry there and one back through rings in shared memory, both sides spinning: what any protocol over them must
// pay.
class RingPeer {
 public:
  explicit RingPeer(uint32_t trips) {
    child_ = ::fork();
    if (child_ != 0) return;
    proto::RingConsumer requests(proto::RequestRing(region_));
    proto::RingProducer completions(proto::CompletionRing(region_));
    for (uint32_t i = 0; i < trips; ++i) Pass(requests, completions);
    ::_exit(0);
  }
  ~RingPeer() {
    ::waitpid(child_, nullptr, 0);
    ::munmap(region_, proto::kSessionRegionSize);
  }
  void RoundTrip() {
    const proto::RequestEntry entry{};
    requests_.Stage(&entry, 1);
    requests_.Publish();
    proto::CompletionEntry answer;
    Take(completions_, &answer);
  }

 private:
  static void Take(proto::RingConsumer& ring, void* entry) {
    for (uint32_t ready = 0; ready == 0;) Require(ring.Ready(&ready) ? TIER_OK : TIER_INVALID, "ring");
    ring.Peek(entry, 1);
    ring.Consume(1);
  }
  static void Pass(proto::RingConsumer& from, proto::RingProducer& to) {
    proto::RequestEntry entry;
    Take(from, &entry);
    to.Stage(&entry, 1);
    to.Publish();
  }

  std::byte* region_ = static_cast<std::byte*>(
      ::mmap(nullptr, proto::kSessionRegionSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pid_t child_ = 0;
  proto::RingProducer requests_{proto::RequestRing(region_)};
  proto::RingConsumer completions_{proto::CompletionRing(region_)};
};

void BareRing(uint32_t trips) {
  RingPeer peer(trips);
  Samples latency;
  for (uint32_t i = 0; i < trips; ++i) {
    const auto start = Clock::now();
    peer.RoundTrip();
    latency.Add(Microseconds(start));
  }
  PrintFigure("bare_ring", "us", latency);
}

}  // namespace

void LeaseLatency(const PartOptions& options) {
  BareRing(options.count);  // Forks before there is a client.
  const BenchClient client(options.socket, options.spin);
  MakeTensors(client, 1, 64, kTensorBytes);
  for (uint32_t i = 0; i < 10'000; ++i) AcquireRelease(client, 1 + i % 64);
  Samples latency;
  for (uint32_t i = 0; i < options.count; ++i) {
    const auto start = Clock::now();
    AcquireRelease(client, 1 + i % 64);
    latency.Add(Microseconds(start));
  }
  FreeTensors(client, 1, 64);
  PrintFigure("acquire_release_busy", "us", latency);
}

void LeaseLatencyIdle(const PartOptions& options) {
  // A wake-up of a processor that sleeps costs several times one on the same processor: daemon (pinned by run.py) and
  // peer sit on the same one, this process on another.
  const FutexPeer peer(options.count, options.peer_cpu);  // Forks before there is a client.
  PinTo(options.cpu);
  const BenchClient client(options.socket, options.spin);
  MakeTensors(client, 1, 1, kTensorBytes);
  AcquireRelease(client, 1);
  Samples latency;
  Samples bare;
  for (uint32_t i = 1; i <= options.count; ++i) {
    std::this_thread::sleep_for(kPause);
    auto start = Clock::now();
    peer.RoundTrip(i);
    bare.Add(Microseconds(start));
    std::this_thread::sleep_for(kPause);
    start = Clock::now();
    AcquireRelease(client, 1);
    latency.Add(Microseconds(start));
  }
  FreeTensors(client, 1, 1);
  PrintFigure("futex_round_trip_idle", "us", bare);
  PrintFigure("acquire_release_idle", "us", latency);
}

void LeaseShell(const PartOptions& options) {
  const BenchClient client(options.socket, options.spin, "hits", options.guarantee);
  MakeTensors(client, 1, 64, kTensorBytes);
  fmt::print("{{\"ready\": true}}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    Samples latency;
    for (uint32_t i = 0; i < options.count; ++i) {
      const auto start = Clock::now();
      AcquireRelease(client, 1 + i % 64);
      latency.Add(Microseconds(start));
      std::this_thread::sleep_for(kHitPause);
    }
    fmt::print("{{\"{}\": {:.6g}}}\n", line, latency.Quantile(options.quantile));
    std::fflush(stdout);
  }
}

void Crowd(const PartOptions& options) {
  std::vector<std::unique_ptr<BenchClient>> clients;
  for (uint32_t i = 0; i < options.count; ++i) {
    clients.push_back(
        std::make_unique<BenchClient>(options.socket, options.spin, fmt::format("crowd-{}", i % options.jobs)));
  }
  fmt::print("{{\"ready\": {}}}\n", clients.size());
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
}

void LeaseRate(const PartOptions& options) {
  const BenchClient client(options.socket, options.spin);
  MakeTensors(client, 1, kBatch, kTensorBytes);
  std::vector<tier_range> ranges;
  ranges.reserve(kBatch);
  for (size_t i = 0; i < kBatch; ++i) ranges.push_back({1 + i, 0, 0, 0});
  std::vector<tier_lease*> leases(kBatch);
  Samples acquires;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    const auto start = Clock::now();
    for (uint32_t i = 0; i < options.count; ++i) {
      Require(tier_acquire_batch(client.get(), ranges.data(), kBatch, 0, 0, leases.data()), "acquire");
      Require(tier_release_batch(leases.data(), kBatch, 0), "release");
    }
    acquires.Add(static_cast<double>(kBatch) * options.count / SecondsSince(start));
  }
  FreeTensors(client, 1, kBatch);
  Samples creates;
  const size_t tensors = size_t{kBatch} * 8;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    const auto start = Clock::now();
    MakeTensors(client, 1, tensors, kTensorBytes);
    creates.Add(static_cast<double>(tensors) / SecondsSince(start));
    FreeTensors(client, 1, tensors);
  }
  PrintFigure("batched_acquire_release", "1/s", acquires);
  PrintFigure("batched_create_seal", "1/s", creates);
}

void ManyTensors(const PartOptions& options) {
  const BenchClient client(options.socket, options.spin);
  fmt::print("{{\"connected\": true}}\n");
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);  // run.py measures the daemon before,
  MakeTensors(client, 1, options.count, 4096);
  Require(tier_flush(client.get(), nullptr, 0, 0), "flush");
  fmt::print("{{\"ready\": {}}}\n", options.count);
  std::fflush(stdout);
  std::getline(std::cin, line);  // and with all of them.
  FreeTensors(client, 1, options.count);
}

}  // namespace tier::bench
