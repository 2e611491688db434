// What makes a daemon move pieces and hand windows over: one round of it for each line on standard input.

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "tools/bench/batches.h"
#include "tools/bench/client.h"
#include "tools/bench/parts.h"
#include "tools/bench/samples.h"

namespace tier::bench {
namespace {

constexpr uint64_t kSmall = 64 << 10;
constexpr uint64_t kBlock = 2 << 20;
constexpr uint64_t kKept = 8;  // One of so many small tensors is not freed.
constexpr uint64_t kFirstBlock = 1 << 20;
constexpr uint64_t kWhole = 1;
constexpr uint64_t kFirstPiece = 2;

template <typename Work>
void Serve(Work&& work) {
  fmt::print("{{\"ready\": true}}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    work();
    fmt::print("{{\"{}\": {:.6g}}}\n", line, SecondsSince(start));
    std::fflush(stdout);
  }
}

}  // namespace

void ScatterShell(const PartOptions& options) {
  const BenchClient client(options.socket, options.spin, options.job, options.guarantee, options.guarantee);
  const uint64_t count = options.guarantee / 10 * 9 / kSmall;
  const uint64_t blocks = options.guarantee / 8 * 5 / kBlock;
  std::vector<uint64_t> freed;
  std::vector<uint64_t> kept;
  for (uint64_t id = 1; id <= count; ++id) (id % kKept == 0 ? kept : freed).push_back(id);
  Serve([&] {
    MakeTensors(client, 1, count, kSmall);
    FreeTensors(client, freed);
    MakeTensors(client, kFirstBlock, blocks, kBlock);
    FreeTensors(client, kept);
    FreeTensors(client, kFirstBlock, blocks);
  });
}

void TakeShell(const PartOptions& options) {
  const BenchClient client(options.socket, options.spin, options.job, options.guarantee);
  std::vector<uint64_t> pieces;
  std::vector<uint64_t> rests;
  for (uint64_t i = 0; i < options.bytes / kBlock; ++i) {
    pieces.push_back(kFirstPiece + 2 * i);
    rests.push_back(pieces.back() + 1);
  }
  bool filled = false;
  Serve([&] {
    if (filled) FreeTensors(client, pieces);
    MakeTensors(client, kWhole, 1, options.bytes);
    client.Free(kWhole);
    for (size_t i = 0; i < pieces.size(); ++i) {
      MakeTensors(client, std::vector<tier_range>{{pieces[i], 0, 0, kSmall}, {rests[i], 0, 0, kBlock - kSmall}});
    }
    FreeTensors(client, rests);
    filled = true;
  });
}

}  // namespace tier::bench
