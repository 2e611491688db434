#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using LeaseEndToEnd = RealDaemon;

TEST_F(LeaseEndToEnd, ATensorLargerThanTheArenaIsWorkedOnByRanges) {
  Start();
  auto client = Connect();
  constexpr uint64_t kRange = 8 * kMiB, kSize = 160 * kMiB;
  for (uint64_t at = 0; at < kSize; at += kRange) {
    tier::Lease lease =
        at == 0 ? client.Create(1, kSize, {0, kRange}) : client.Acquire(1, TIER_WRITE | TIER_DISCARD, {at, kRange});
    std::ranges::fill(lease.as<uint64_t>(), at);
    lease.Seal();
  }
  EXPECT_EQ(client.Tensor(1).sealed, 1);
  for (uint64_t at = 0; at < kSize; at += kRange) {
    tier::Lease lease = client.Acquire(1, TIER_WRITE, {at, kRange});
    for (uint64_t& word : lease.as<uint64_t>()) word += 1;
    lease.Seal();
  }
  for (uint64_t at = 0; at < kSize; at += kRange) {
    const tier::Lease lease = client.Acquire(1, 0, {at, kRange});
    EXPECT_TRUE(std::ranges::all_of(lease.as<const uint64_t>(), [at](uint64_t word) { return word == at + 1; }));
  }
}

TEST_F(LeaseEndToEnd, MemoryIsHandedOutZeroedToANewOwner) {
  Start();
  {
    auto client = Connect();
    tier::Lease lease = client.Create(1, 20 * kMiB);
    std::ranges::fill(lease.bytes(), std::byte{0x77});
    lease.Seal();
  }
  auto client = Connect();
  const tier::Lease lease = client.Create(1, 20 * kMiB);
  EXPECT_TRUE(std::ranges::all_of(lease.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(LeaseEndToEnd, CreatedTwiceAlreadyExists) {
  Start();
  auto client = Connect();
  client.Create(1, 4096).Seal();
  EXPECT_EQ(CodeOf([&] { client.Create(1, 4096); }), TIER_ALREADY_EXISTS);
  EXPECT_EQ(CodeOf([&] { client.Create(2, 0); }), TIER_INVALID);
  EXPECT_EQ(CodeOf([&] { client.Acquire(1, 0, {0, 5000}); }), TIER_INVALID);
  EXPECT_EQ(CodeOf([&] { client.Acquire(3); }), TIER_NOT_FOUND);
  client.Step();  // The session is none the worse for it.
}

TEST_F(LeaseEndToEnd, AnUnsealedTensorIsNotReadBehindItsWritersBack) {
  Start();
  auto client = Connect();
  tier::Lease writing = client.Create(1, 4096);
  std::string sentence;
  EXPECT_EQ(CodeOf([&] { client.Acquire(1, TIER_NO_WAIT_OWN); }, &sentence), TIER_WOULD_DEADLOCK) << sentence;
  EXPECT_EQ(CodeOf([&] { client.Acquire(1, TIER_NO_WAIT); }), TIER_TIMEOUT);
  EXPECT_NE(CodeOf([&] { client.Acquire(1, 0, {}, 50); }), TIER_OK);
  std::thread waiting([&] { EXPECT_EQ(client.Acquire(1).bytes()[9], std::byte{3}); });
  writing.bytes()[9] = std::byte{3};
  writing.Seal();
  waiting.join();
}

TEST_F(LeaseEndToEnd, ACallerDeadlockingItselfIsTold) {
  Start();
  auto client = Connect();
  client.Create(1, 4096).Seal();
  const tier::Lease reading = client.Acquire(1);
  std::string sentence;
  EXPECT_EQ(CodeOf([&] { client.Acquire(1, TIER_WRITE | TIER_NO_WAIT_OWN); }, &sentence), TIER_WOULD_DEADLOCK);
  EXPECT_EQ(CodeOf([&] { client.Acquire(1, TIER_WRITE, {}, 100); }, &sentence), TIER_WOULD_DEADLOCK) << sentence;
  EXPECT_THAT(sentence, ::testing::HasSubstr("lease"));
  EXPECT_EQ(tier_free(client.handle(), 1, TIER_NO_WAIT_OWN), TIER_WOULD_DEADLOCK);
  EXPECT_EQ(tier_free(client.handle(), 1, TIER_NO_WAIT), TIER_TIMEOUT);
}

TEST_F(LeaseEndToEnd, LeasesThatFillTheShareAreNamedWhenMoreIsAsked) {
  Start();
  auto client = Connect();
  std::vector<tier::Lease> held;
  std::string sentence;
  int code = TIER_OK;
  for (uint64_t i = 0; i < 20 && code == TIER_OK; ++i) {
    code = CodeOf([&] { held.push_back(client.Create(i, 8 * kMiB, {}, 0, 300)); }, &sentence);
  }
  EXPECT_TRUE(code == TIER_NO_MEMORY || code == TIER_WOULD_DEADLOCK || code == TIER_TIMEOUT) << sentence;
  EXPECT_GE(held.size(), 4u);
  held.clear();
  EXPECT_EQ(CodeOf([&] { client.Create(99, 8 * kMiB).Seal(); }, &sentence), TIER_OK) << sentence;
}

TEST_F(LeaseEndToEnd, TwoRanksMeetInOneJobByKeyAndName) {
  Start();
  auto options = Options();
  options.job = "world";
  options.rank = 0;
  options.world_size = 2;
  tier::Client first(options);
  options.rank = 1;
  options.token = first.Session().token;
  tier::Client second(options);
  EXPECT_EQ(first.Intern("embedding"), second.Intern("embedding"));
  const uint64_t id = first.Intern("embedding");
  tier::Lease lease = first.Create(id, 4096, {}, TIER_SHARED);
  lease.bytes()[0] = std::byte{42};
  EXPECT_EQ(CodeOf([&] { second.Create(id, 4096, {}, TIER_SHARED); }), TIER_ALREADY_EXISTS);
  lease.Seal();
  EXPECT_EQ(second.Acquire(id, TIER_SHARED).bytes()[0], std::byte{42});
  second.Create(id, 10).Seal();  // Its own namespace is another.
  EXPECT_EQ(CodeOf([&] { tier::Client again(options); }), TIER_ALREADY_EXISTS);
  options.token = std::string(64, '0');
  options.rank = 0;
  EXPECT_NE(CodeOf([&] { tier::Client stranger(options); }), TIER_OK);
}

std::atomic<int> g_interrupts{0};

TEST_F(LeaseEndToEnd, AnInterruptInAWaitBreaksNothing) {
  Start();
  auto options = Options();
  options.job = "pair";
  tier::Client writer(options);
  options.token = writer.Session().token;
  tier::Client reader(options);
  tier::Lease writing = writer.Create(1, 4096, {}, TIER_SHARED);
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { g_interrupts++; };
  ASSERT_EQ(::sigaction(SIGINT, &action, &before), 0);
  std::atomic<pthread_t> thread{};
  std::thread waiting([&] {
    thread = ::pthread_self();
    EXPECT_EQ(reader.Acquire(1, TIER_SHARED).bytes()[5], std::byte{1});
  });
  while (thread.load() == 0) std::this_thread::yield();
  for (int i = 1; i <= 10; ++i) {
    ::pthread_kill(thread, SIGINT);
    while (g_interrupts.load() < i) std::this_thread::yield();
  }
  writing.bytes()[5] = std::byte{1};
  writing.Seal();
  waiting.join();
  ::sigaction(SIGINT, &before, nullptr);
}

constexpr uid_t kOtherUser = 54321;

// In a child with another user's identity: 0 if connecting was refused as `code`.
int AsOtherUser(const std::string& socket, int code) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kOtherUser) != 0 || ::setuid(kOtherUser) != 0) ::_exit(9);
    tier::ConnectOptions options;
    options.socket = socket;
    const int got = CodeOf([&] { tier::Client client(options); });
    ::_exit(got == code ? 0 : 100 + got);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST_F(LeaseEndToEnd, APrivateDaemonIsNotForOtherUsers) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root: to become another user";
  Start();
  EXPECT_EQ(AsOtherUser(daemon_->socket_path(), TIER_DENIED), 0);
  // Even when the file system would let them through.
  namespace fs = std::filesystem;
  fs::permissions(daemon_->directory(), fs::perms::all);
  fs::permissions(daemon_->directory() + "/run", fs::perms::all);
  fs::permissions(daemon_->socket_path(), fs::perms::all);
  EXPECT_EQ(AsOtherUser(daemon_->socket_path(), TIER_DENIED), 0);
}

TEST_F(LeaseEndToEnd, ASystemDaemonServesOtherUsers) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root: to become another user";
  Start({.is_private = false});
  std::filesystem::permissions(daemon_->directory(), std::filesystem::perms::all);
  EXPECT_EQ(AsOtherUser(daemon_->socket_path(), TIER_OK), 0);
}

}  // namespace
}  // namespace tier::daemon_process
