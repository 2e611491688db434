// The daemon goes, lies, or is late; the process forks. Typed errors, never a crash, never a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using proto::CompletionEntry;
using proto::Op;
using FaultTest = ClientTest;

int AcquireCode(tier_client* client, uint64_t tensor) {
  const tier_range range{tensor, 0, 0, 0};
  tier_lease* lease = nullptr;
  const int code = tier_acquire(client, &range, 0, 0, &lease);
  if (code == TIER_OK) tier_release(lease, 0);
  return code;
}

// Every wait ends: the test runner's own time limit is the only clock here.
TEST_F(FaultTest, AHangUpEndsEveryWait) {
  Start();
  tier_seal(Create(1, 4096));
  daemon_->Hold(Op::kAcquire);
  std::vector<std::thread> threads;
  std::atomic<int> disconnected{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { disconnected += AcquireCode(client_, 1) == TIER_DISCONNECTED ? 1 : 0; });
  }
  daemon_->Await([&] { return daemon_->held() == 4; });
  daemon_->HangUp();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(disconnected.load(), 4);
  EXPECT_TIER_ERROR(tier_step(client_, 1), TIER_DISCONNECTED, daemon_->socket_path());
  tier_session_view view{};
  view.struct_size = sizeof view;
  EXPECT_TIER_OK(tier_session(client_, &view));
  EXPECT_EQ(view.connected, 0);
}

TEST_F(FaultTest, ARevocationArrivesWithItsReason) {
  Start();
  tier_seal(Create(1, 4096));
  daemon_->Hold(Op::kAcquire);
  std::thread waiting(
      [&] { EXPECT_TIER_ERROR(AcquireCode(client_, 1), TIER_REVOKED, "beyond its guarantee by 3 GiB"); });
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->EndSessions(Code::kRevoked, "beyond its guarantee by 3 GiB");
  waiting.join();
  EXPECT_TIER_ERROR(tier_step(client_, 1), TIER_REVOKED, "3 GiB");
}

TEST_F(FaultTest, ReleasingAfterTheEndIsTypedAndFreesTheHandle) {
  Start();
  tier_lease* const lease = Create(1, 4096);
  daemon_->Hold(Op::kStep);
  std::thread waiting([&] { EXPECT_EQ(tier_step(client_, 1), TIER_DISCONNECTED); });
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->HangUp();
  waiting.join();
  EXPECT_EQ(tier_release(lease, 0), TIER_DISCONNECTED);
  EXPECT_EQ(Stats().leases_open, 0u);
}

TEST_F(FaultTest, AWindowThatComesLateIsWaitedFor) {
  Start({.windows_late = true});
  std::thread creating([&] { tier_seal(Create(1, 4096)); });
  daemon_->Await([&] { return daemon_->leases_open() == 1; });
  daemon_->SendWindows();
  creating.join();
  EXPECT_GE(Stats().windows_mapped, 1u);  // The others may still be on their way.
}

// A thread that waits for a window stitches a view of it as soon as it is mapped, and needs its descriptor then.
TEST_F(FaultTest, AWindowOfHugePagesThatComesLateCanBeStitchedAtOnce) {
  for (int round = 0; round < 30; ++round) {
    Start({.windows = 3, .scatter = true, .page_size = kBlockSize, .windows_late = true});
    std::thread creating([&] {
      tier_lease* const lease = Create(1, 6 * kMiB);
      EXPECT_EQ(Bytes(lease).size(), 6 * kMiB);
      tier_seal(lease);
    });
    daemon_->Await([&] { return daemon_->leases_open() == 1; });
    daemon_->SendWindows();
    creating.join();
    tier_close(std::exchange(client_, nullptr));
  }
}

TEST_F(FaultTest, AWindowOfAnImpossibleShapeEndsTheSession) {
  Start({.spoil_window = [](proto::WindowPacket& packet) { packet.place += kPageSize; }, .windows_late = true});
  daemon_->Hold(Op::kStep);
  std::thread waiting(
      [&] { EXPECT_TIER_ERROR(tier_step(client_, 1), TIER_INVALID, "no multiple of its size of 4194304 bytes"); });
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->SendWindows();
  waiting.join();
  EXPECT_EQ(Stats().windows_mapped, 0u);
}

// Each distortion of a granted range must end the session with a sentence.
struct Distortion {
  const char* name;
  void (*apply)(std::vector<CompletionEntry>&);
};

class DistortionTest : public ClientTest, public ::testing::WithParamInterface<Distortion> {};

TEST_P(DistortionTest, EndsTheSessionWithAReason) {
  Start();
  daemon_->Distort(GetParam().apply);
  const tier_range range{1, 0, 0, 3 * kMiB};
  tier_lease* lease = nullptr;
  EXPECT_TIER_ERROR(tier_create(client_, &range, 0, 0, &lease), TIER_DISCONNECTED, "the session was ended");
  EXPECT_EQ(tier_step(client_, 1), TIER_DISCONNECTED);
  EXPECT_EQ(Stats().leases_open, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Completions, DistortionTest,
    ::testing::Values(Distortion{"WindowBeyondAll", [](auto& entries) { entries[0].first.span.window = 5000; }},
                      Distortion{"OffsetBeyondTheWindow", [](auto& entries) { entries[0].first.span.offset = ~0ull; }},
                      Distortion{"LengthBeyondTheWindow", [](auto& entries) { entries[0].first.span.length = kGiB; }},
                      Distortion{"NoLength", [](auto& entries) { entries[0].first.span.length = 0; }},
                      Distortion{"NoLease", [](auto& entries) { entries[0].first.span.lease = 0; }},
                      Distortion{"AnotherItem", [](auto& entries) { entries[0].first.span.item = 3; }},
                      Distortion{"NoRecords", [](auto& entries) { entries[0].header.record_count = 0; }},
                      Distortion{"MoreRecordsThanEntries", [](auto& entries) { entries[0].header.record_count = 600; }},
                      Distortion{"NoEntries", [](auto& entries) { entries[0].header.entries = 0; }},
                      Distortion{"MoreEntriesThanPublished", [](auto& entries) { entries[0].header.entries = 4000; }},
                      Distortion{"UnknownCode", [](auto& entries) { entries[0].header.code = 99; }},
                      Distortion{"UnknownSequence", [](auto& entries) { entries[0].header.sequence = 12345; }},
                      Distortion{"SequenceZero", [](auto& entries) { entries[0].header.sequence = 0; }},
                      Distortion{"Flags", [](auto& entries) { entries[0].header.flags = 1; }},
                      Distortion{"DetailWithSuccess", [](auto& entries) { entries[0].header.detail_length = 9; }},
                      Distortion{
                          "EndlessDetail",
                          [](auto& entries) { entries[0].header.code = 5, entries[0].header.detail_length = 60000; }}),
    [](const auto& test) { return test.param.name; });

TEST_F(FaultTest, AnImpossibleTailEndsTheSession) {
  Start();
  daemon_->Hold(Op::kStep);
  std::thread waiting([&] { EXPECT_TIER_ERROR(tier_step(client_, 1), TIER_DISCONNECTED, "tail is impossible"); });
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->BreakTail();
  waiting.join();
}

TEST_F(FaultTest, AWindowIsGivenBackOnRequest) {
  Start();
  tier_seal(Create(1, 4096));
  daemon_->AskBack(5);
  daemon_->Await([&] { return daemon_->counters().windows_returned.load() == 1; });
  EXPECT_EQ(Stats().windows_mapped, 7u);
  EXPECT_EQ(AcquireCode(client_, 1), TIER_OK);
}

TEST_F(FaultTest, AStitchedViewGoesWithItsWindow) {
  Start({.scatter = true});
  tier_lease* const lease = Create(1, 5 * kMiB);
  EXPECT_EQ(Bytes(lease).size(), 5 * kMiB);
  tier_seal(lease);
  EXPECT_TIER_OK(tier_step(client_, 1));
  EXPECT_EQ(Stats().stitched_mappings, 1u);
  daemon_->AskBack(7);
  daemon_->Await([&] { return daemon_->counters().windows_returned.load() == 1; });
  EXPECT_EQ(Stats().stitched_mappings, 0u);
}

TEST_F(FaultTest, AskingForAWindowUnderALeaseEndsTheSession) {
  Start();
  tier_lease* const lease = Create(1, 4096);
  daemon_->Hold(Op::kStep);
  std::thread waiting([&] { EXPECT_TIER_ERROR(tier_step(client_, 1), TIER_DISCONNECTED, "leased runs lie in it"); });
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->AskBack(0);
  waiting.join();
  EXPECT_EQ(tier_release(lease, 0), TIER_DISCONNECTED);
}

// Runs `body` in a forked child; its answer is the child's exit status.
int InChild(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(FaultTest, AForkedChildHasNoClient) {
  Start();
  tier_lease* const lease = Create(1, 4096);
  EXPECT_EQ(InChild([&] {
              const bool refused = tier_step(client_, 1) == TIER_DISCONNECTED &&
                                   std::string(tier_last_error()).find("forked") != std::string::npos;
              void* address = nullptr;
              const bool data = tier_lease_data(lease, &address, nullptr) == TIER_DISCONNECTED;
              const bool release = tier_release(lease, 0) == TIER_DISCONNECTED;
              tier_op* op = nullptr;
              std::byte byte{};
              const bool swap = tier_swap_out(client_, 9, &byte, 1, nullptr, &op) == TIER_DISCONNECTED;
              tier_close(client_);
              return refused && data && release && swap;
            }),
            0);
  EXPECT_EQ(Bytes(lease).size(), 4096u);  // The parent's is as it was.
  EXPECT_TIER_OK(tier_seal(lease));
  EXPECT_TIER_OK(tier_step(client_, 1));
}

TEST_F(FaultTest, AForkedChildMayConnectAgain) {
  // TSan lets no forked child start threads. ASan does not hold its allocator's locks across a fork, as libc does, so a
  // child that starts a thread waits without end for a lock that another thread of the parent held.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "needs a process without TSan and ASan: threads started in a forked child can hang in them";
#endif
  Start();
  EXPECT_EQ(InChild([&] {
              tier_client* const own = Connect(*daemon_);
              const bool works = own != nullptr && tier_step(own, 1) == TIER_OK;
              tier_close(own);
              return works;
            }),
            0);
}

TEST_F(FaultTest, ForkingWhileOthersWaitLeavesNothingLocked) {
  Start();
  daemon_->Hold(Op::kStep);
  std::thread waiting([&] { EXPECT_TIER_OK(tier_step(client_, 1)); });
  daemon_->Await([&] { return daemon_->held() == 1; });
  EXPECT_EQ(InChild([&] { return tier_step(client_, 2) == TIER_DISCONNECTED; }), 0);
  daemon_->Resume();
  waiting.join();
}

std::atomic<int> g_signals{0};

TEST_F(FaultTest, ASignalInAWaitBreaksNothing) {
  Start();
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { g_signals++; };  // No SA_RESTART: every system call under way is interrupted.
  ASSERT_EQ(::sigaction(SIGINT, &action, &before), 0);
  daemon_->Hold(Op::kStep);
  std::atomic<pthread_t> waiter{};
  std::thread waiting([&] {
    waiter = ::pthread_self();
    EXPECT_TIER_OK(tier_step(client_, 1));
  });
  daemon_->Await([&] { return daemon_->held() == 1; });
  for (int i = 1; i <= 20; ++i) {
    ::pthread_kill(waiter, SIGINT);
#if !defined(__SANITIZE_THREAD__)  // Which puts a signal off until the thread calls a function that it intercepts.
    while (g_signals.load() < i) std::this_thread::yield();
#endif
  }
  daemon_->Resume();
  waiting.join();
  ::sigaction(SIGINT, &before, nullptr);
  EXPECT_TIER_OK(tier_step(client_, 1));
}

// Reads the blocked mask of every thread of this process whose name begins with "tier-".
TEST_F(FaultTest, ServiceThreadsBlockEverySignal) {
  Start();
  int seen = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line, name;
    while (std::getline(status, line)) {
      if (line.starts_with("Name:")) name = line.substr(6);
      if (!line.starts_with("SigBlk:") || !name.starts_with("tier-")) continue;
      const uint64_t blocked = std::stoull(line.substr(8), nullptr, 16);
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) EXPECT_NE(blocked >> (signal - 1) & 1, 0u);
      seen++;
    }
  }
  EXPECT_GE(seen, 1);
}

}  // namespace
}  // namespace tier::session_fake
