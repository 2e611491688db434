// victim: a client that brings itself into one state of the protocol, says "ready", and waits there to be killed.
//   victim SOCKET STATE MIB [JOB]    STATE: create, write, read, waiting, swap_out, swap_in, half_swap,
//   churn, shared_read, idle, train
// With JOB it joins that job by $TIERD_JOB_TOKEN, else it has one of its own. In state train it is the neighbour of
// those that are killed: it goes on until SIGTERM, and ends with status 4 when a byte is wrong.
#include <tier/tier.hpp>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

[[noreturn]] void WaitToBeKilled() {
  while (true) ::pause();
}

void FillAndSeal(tier::Client& client, uint64_t tensor, uint64_t bytes) {
  tier::Lease lease = client.Create(tensor, bytes);
  std::memset(lease.bytes().data(), 0x5a, bytes);
  lease.Seal();
}

[[noreturn]] void Copying(tier::Client& client, bool in, uint64_t bytes) {
  std::vector<std::byte> memory(bytes, std::byte{1});
  for (uint64_t tensor = 0;; ++tensor) {
    client.SwapOut(tensor % 3, memory).Wait();
    tier::Operation under_way = in ? client.SwapIn(tensor % 3, memory) : client.SwapOut((tensor + 1) % 3, memory);
    if (tensor == 1) SayReady();
    under_way.Wait();
  }
}

// Over the shared tensor 1 of that size, until the block that another process holds is all that is missing.
[[noreturn]] void SwapUpToALease(tier::Client& client, uint64_t bytes) {
  constexpr uint64_t kBlock = 2 << 20;
  const std::vector<std::byte> memory(bytes, std::byte{1});
  tier_copy_options shared = TIER_COPY_OPTIONS_INIT;
  shared.flags = TIER_SHARED;
  tier::Operation under_way = client.SwapOut(1, memory, &shared);
  while (client.Stats().copied_to_tensors_bytes < bytes - kBlock) (void)under_way.WaitFor(std::chrono::milliseconds(1));
  SayReady();
  WaitToBeKilled();
}

// Tensors smaller than a block, of so many bytes in all: each in turn is freed, created again in another size, and one
// of the others is read.
[[noreturn]] void Churn(tier::Client& client, uint64_t bytes) {
  constexpr uint64_t kSizeMax = 1 << 20;
  const uint64_t count = bytes / (kSizeMax / 2);
  std::mt19937_64 random(1);
  for (uint64_t done = 0;; ++done) {
    const uint64_t tensor = done % count + 1;
    if (done >= count) client.Free(tensor);
    FillAndSeal(client, tensor, 1 + random() % kSizeMax);
    if (done + 1 == count) SayReady();
    const tier::Lease read = client.Acquire(random() % std::min(done + 1, count) + 1);
    if (read.bytes()[0] != std::byte{0x5a}) std::exit(4);
  }
}

// Two sessions of the job lease the shared tensor 1 for reading, over and over; at each moment one of them does.
[[noreturn]] void ReadShared(tier::Client& client, tier::ConnectOptions options, uint64_t bytes) {
  tier::Lease created = client.Create(1, bytes, {}, TIER_SHARED);
  std::memset(created.bytes().data(), 0x5a, bytes);
  created.Seal();
  options.job = client.Session().job;
  options.token = client.Session().token;
  tier::Client other(options);
  tier::Lease first = client.Acquire(1, TIER_SHARED);
  SayReady();
  while (true) {
    tier::Lease second = other.Acquire(1, TIER_SHARED);
    first.Release();
    first = client.Acquire(1, TIER_SHARED);
    second.Release();
  }
}

volatile std::sig_atomic_t asked_to_end = 0;

void FillWith(std::vector<uint64_t>& words, uint64_t seed) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = seed + i * 0x9e3779b97f4a7c15;
}

// Steps as a trainer's over three tensors, which its job cannot hold in RAM together: each step writes them all, then
// reads them all and compares every word.
[[noreturn]] void Train(tier::Client& client, uint64_t bytes) {
  std::signal(SIGTERM, [](int) { asked_to_end = 1; });
  std::vector<uint64_t> memory(bytes / sizeof(uint64_t));
  std::vector<uint64_t> expected(memory.size());
  uint64_t step = 0;
  do {
    ++step;
    for (uint64_t tensor = 0; tensor < 3; ++tensor) {
      FillWith(memory, step * 3 + tensor);
      client.SwapOut(tensor, std::as_bytes(std::span(memory))).Wait();
    }
    for (uint64_t tensor = 0; tensor < 3; ++tensor) {
      client.SwapIn(tensor, std::as_writable_bytes(std::span(memory))).Wait();
      FillWith(expected, step * 3 + tensor);
      if (memory != expected) {
        std::fprintf(stderr, "victim: tensor %llu of step %llu has other bytes\n",
                     static_cast<unsigned long long>(tensor), static_cast<unsigned long long>(step));
        std::exit(4);
      }
    }
    client.Step(step);
    if (step == 1) SayReady();
  } while (asked_to_end == 0);
  std::printf("%llu\n", static_cast<unsigned long long>(step));
  std::exit(0);
}

[[noreturn]] void Enter(tier::Client& client, const tier::ConnectOptions& options, const std::string& state,
                        uint64_t bytes) {
  tier::Lease lease;
  if (state == "create") {
    lease = client.Create(1, bytes);
  } else if (state == "write") {
    FillAndSeal(client, 1, bytes);
    lease = client.Acquire(1, TIER_WRITE);
  } else if (state == "read") {
    FillAndSeal(client, 1, bytes);
    lease = client.Acquire(1);
  } else if (state == "waiting") {
    lease = client.Create(1, bytes);
    std::thread([&client] { (void)client.Acquire(1, 0, {}, 3'600'000); }).detach();
    client.Step();  // Answered behind the acquire or beside it: either way the request is with the daemon soon.
  } else if (state == "swap_out" || state == "swap_in") {
    Copying(client, state == "swap_in", bytes);
  } else if (state == "half_swap") {
    SwapUpToALease(client, bytes);
  } else if (state == "churn") {
    Churn(client, bytes);
  } else if (state == "shared_read") {
    ReadShared(client, options, bytes);
  } else if (state == "train") {
    Train(client, bytes);
  } else if (state != "idle") {
    std::fprintf(stderr, "victim: no state %s\n", state.c_str());
    std::exit(2);
  }
  SayReady();
  WaitToBeKilled();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  try {
    tier::ConnectOptions options;
    options.socket = argv[1];
    if (argc == 5) options.job = argv[4];
    const std::string state = argv[2];
    const uint64_t bytes = std::strtoull(argv[3], nullptr, 10) << 20;
    if (state == "train") options.guarantee_bytes = options.limit_bytes = 2 * bytes;
    tier::Client client(options);
    Enter(client, options, state, bytes);
  } catch (const tier::Error& error) {
    std::fprintf(stderr, "victim: %s\n", error.what());
    return 3;
  }
}
