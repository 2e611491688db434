// A tierd client that ends the program with the library's sentence when a call fails: a benchmark cannot go on.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "tier/tier.h"

namespace tier::bench {

inline void Require(int code, const char* what) {
  if (code == TIER_OK) return;
  fmt::print(stderr, "tier_bench: {}: {}: {}\n", what, tier_code_name(code), tier_last_error());
  std::exit(1);
}

class BenchClient {
 public:
  // Guarantee and limit of the job in bytes; 0: its equal part, and none.
  BenchClient(const std::string& socket, int spin, const std::string& job = "bench", uint64_t guarantee = 0,
              uint64_t limit = 0) {
    tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
    options.socket = socket.c_str();
    options.job = job.c_str();
    options.spin = spin;
    options.guarantee_bytes = guarantee;
    options.limit_bytes = limit;
    Require(tier_connect(&options, &client_), "connect");
  }
  ~BenchClient() { tier_close(client_); }
  BenchClient(const BenchClient&) = delete;
  BenchClient& operator=(const BenchClient&) = delete;
  tier_client* get() const { return client_; }

  void SwapOut(uint64_t tensor, const void* data, uint64_t bytes, const tier_copy_options* options = nullptr) const {
    tier_op* op = nullptr;
    Require(tier_swap_out(client_, tensor, data, bytes, options, &op), "swap_out");
    Require(tier_wait(op, 0, nullptr), "swap_out");
  }
  void SwapIn(uint64_t tensor, void* data, uint64_t bytes) const {
    tier_op* op = nullptr;
    Require(tier_swap_in(client_, tensor, data, bytes, nullptr, &op), "swap_in");
    Require(tier_wait(op, 0, nullptr), "swap_in");
  }
  void Free(uint64_t tensor) const { Require(tier_free(client_, tensor, 0), "free"); }

 private:
  tier_client* client_ = nullptr;
};

}  // namespace tier::bench
