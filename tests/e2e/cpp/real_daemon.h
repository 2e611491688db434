// What the end-to-end tests share: a daemon per test, clients of it, and random content.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tier/tier.hpp>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proto/units.h"
#include "tests/support/daemon_process/daemon_process.h"

namespace tier::daemon_process {

// The code that a call throws; TIER_OK if it does not. The sentence goes to *sentence.
template <typename Call>
int CodeOf(Call&& call, std::string* sentence = nullptr) {
  try {
    call();
    return TIER_OK;
  } catch (const tier::Error& error) {
    if (sentence != nullptr) *sentence = error.what();
    return error.code();
  }
}

class RealDaemon : public ::testing::Test {
 protected:
  DaemonProcess& Start(DaemonOptions options = {}) {
    options.program = TIERD_PROGRAM;
    daemon_ = std::make_unique<DaemonProcess>(options);
    return *daemon_;
  }
  tier::ConnectOptions Options() const {
    tier::ConnectOptions options;
    options.socket = daemon_->socket_path();
    return options;
  }
  // For another client of the same job.
  tier::ConnectOptions OptionsOfJobOf(tier::Client& client) const {
    tier::ConnectOptions options = Options();
    options.job = client.Session().job;
    options.token = client.Session().token;
    return options;
  }
  tier::Client Connect() const { return tier::Client(Options()); }
  ChildProcess::Options Victim(const std::string& state, uint64_t mib) const {
    return {.command = {VICTIM_PROGRAM, daemon_->socket_path(), state, std::to_string(mib)},
            .environment = {},
            .error_file = {}};
  }
  static std::vector<std::byte> Random(size_t size, uint64_t seed) {
    std::vector<std::byte> bytes(size);
    std::mt19937_64 engine(seed);
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
      const uint64_t word = engine();
      std::memcpy(&bytes[at], &word, 8);
    }
    for (; at < size; ++at) bytes[at] = static_cast<std::byte>(engine());
    return bytes;
  }
  // Every client of the test is gone by now, and nothing of it may be left.
  void TearDown() override {
    if (daemon_ != nullptr && !HasFailure() && daemon_->running()) {
      EXPECT_EQ(daemon_->AwaitNothingLeft(std::chrono::seconds(20)), "");
    }
    if (daemon_ != nullptr && HasFailure()) std::fprintf(stderr, "--- tierd's log ---\n%s", daemon_->Log().c_str());
  }
  std::unique_ptr<DaemonProcess> daemon_;
};

}  // namespace tier::daemon_process
