// Swaps through the SSD: data much larger than the arena, a write ending only when its bytes are on the device. A small
// shell on standard input lets run.py alternate each transfer with fio on the same file.

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "tools/bench/client.h"
#include "tools/bench/parts.h"
#include "tools/bench/samples.h"
#include "tools/bench/user_memory.h"

namespace tier::bench {
namespace {

using Clock = std::chrono::steady_clock;

class SsdSession {
 public:
  explicit SsdSession(const PartOptions& options)
      : client_(options.socket, options.spin),
        bytes_(options.bytes),
        tensors_(options.total / options.bytes),
        user_(options.bytes) {}

  double Write() {
    const auto start = Clock::now();
    Stream([&](uint64_t tensor, std::vector<char>& buffer, tier_op** op) {
      return tier_swap_out(client_.get(), tensor, buffer.data(), bytes_, nullptr, op);
    });
    Require(tier_flush(client_.get(), nullptr, 0, 0), "flush");
    return Rate(start);
  }
  double Read() {
    Require(tier_drop(client_.get(), nullptr, 0, 0), "drop");  // Every byte must come from the device.
    const auto start = Clock::now();
    Stream([&](uint64_t tensor, std::vector<char>& buffer, tier_op** op) {
      return tier_swap_in(client_.get(), tensor, buffer.data(), bytes_, nullptr, op);
    });
    return Rate(start);
  }
  double Free() {
    const auto start = Clock::now();
    for (uint64_t tensor = 1; tensor <= tensors_; ++tensor) client_.Free(tensor);
    return Rate(start);
  }

 private:
  template <typename Start>
  void Stream(Start&& begin) {
    std::vector<tier_op*> ops(user_.count(), nullptr);
    for (uint64_t i = 0; i < tensors_ + ops.size(); ++i) {
      tier_op*& op = ops[i % ops.size()];
      if (op != nullptr) Require(tier_wait(op, 0, nullptr), "wait");
      op = nullptr;
      if (i < tensors_) Require(begin(1 + i, user_.Of(i), &op), "start");
    }
  }
  double Rate(Clock::time_point start) const {
    return static_cast<double>(bytes_ * tensors_) * 1e-9 / SecondsSince(start);
  }

  BenchClient client_;
  const uint64_t bytes_;
  const uint64_t tensors_;
  UserMemory user_;
};

}  // namespace

void SsdShell(const PartOptions& options) {
  SsdSession session(options);
  fmt::print("{{\"ready\": true}}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const double rate = line == "write" ? session.Write() : line == "read" ? session.Read() : session.Free();
    fmt::print("{{\"{}\": {:.6g}}}\n", line, rate);
    std::fflush(stdout);
  }
}

}  // namespace tier::bench
