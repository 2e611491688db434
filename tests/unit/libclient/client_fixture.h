// What tests of the C interface share: a fake daemon, a client of it, and calls that throw their sentence.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "libclient/client/invariant.h"
#include "libclient/include/tier/tier.h"
#include "tests/support/session_fake/fake_daemon.h"

namespace tier::session_fake {

// Mistakes of libtier's own abort the test, in every build.
inline const bool kAborting = (client::SetAbortOnBrokenInvariant(true), true);

#define EXPECT_TIER_OK(call) EXPECT_EQ(call, TIER_OK) << tier_last_error()
#define ASSERT_TIER_OK(call) ASSERT_EQ(call, TIER_OK) << tier_last_error()
#define EXPECT_TIER_ERROR(call, code, text)                     \
  do {                                                          \
    EXPECT_EQ(call, code) << tier_last_error();                 \
    EXPECT_THAT(tier_last_error(), ::testing::HasSubstr(text)); \
  } while (false)

inline tier_client* Connect(const FakeDaemon& daemon, int spin = 2, int copy_threads = 1) {
  tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
  options.socket = daemon.socket_path().c_str();
  options.spin = spin;
  options.copy_threads = copy_threads;
  tier_client* client = nullptr;
  EXPECT_TIER_OK(tier_connect(&options, &client));
  return client;
}

// While it lives, this process gets no thread: no address space holds the stack that one would have.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t endless;
    ::pthread_attr_init(&endless);
    EXPECT_EQ(::pthread_attr_setstacksize(&endless, size_t{1} << 50), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&endless), 0);
    ::pthread_attr_destroy(&endless);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

inline bool SignalsOpen() {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return ::sigisemptyset(&now) != 0;
}

class ClientTest : public ::testing::Test {
 protected:
  void Start(const FakeOptions& options = {}, int spin = 2, int copy_threads = 1) {
    daemon_ = std::make_unique<FakeDaemon>(options);
    client_ = Connect(*daemon_, spin, copy_threads);
    ASSERT_NE(client_, nullptr);
  }
  void TearDown() override { tier_close(client_); }

  tier_lease* Create(uint64_t tensor, uint64_t size) {
    const tier_range range{tensor, 0, 0, size};
    tier_lease* lease = nullptr;
    EXPECT_TIER_OK(tier_create(client_, &range, 0, 0, &lease));
    return lease;
  }
  tier_lease* Acquire(uint64_t tensor, uint32_t flags = 0, uint64_t offset = 0, uint64_t length = 0) {
    const tier_range range{tensor, offset, length, 0};
    tier_lease* lease = nullptr;
    EXPECT_TIER_OK(tier_acquire(client_, &range, flags, 0, &lease));
    return lease;
  }
  std::span<std::byte> Bytes(tier_lease* lease) {
    void* address = nullptr;
    uint64_t length = 0;
    EXPECT_TIER_OK(tier_lease_data(lease, &address, &length));
    return {static_cast<std::byte*>(address), length};
  }
  tier_stats_view Stats() {
    tier_stats_view view{};
    view.struct_size = sizeof view;
    EXPECT_TIER_OK(tier_stats(client_, &view));
    return view;
  }
  static std::vector<std::byte> Random(size_t size, uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::vector<std::byte> bytes(size);
    for (auto& byte : bytes) byte = static_cast<std::byte>(engine());
    return bytes;
  }

  std::unique_ptr<FakeDaemon> daemon_;
  tier_client* client_ = nullptr;
};

}  // namespace tier::session_fake
