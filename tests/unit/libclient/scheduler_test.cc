// The copy scheduler as several threads use it: who wakes whom, what follows what, and its invariants meanwhile.
#include "libclient/swap/copy_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <vector>

#include "libclient/abi/handle.h"
#include "libclient/swap/request_handle.h"
#include "libclient/swap/swap_handle.h"
#include "tests/unit/libclient/asleep.h"
#include "tests/unit/libclient/client_fixture.h"
#include "tests/unit/libclient/credits.h"

namespace tier::session_fake {
namespace {

using proto::Op;

// A page whose first reader stops in the middle of its copy until Open.
class GatedPage {
 public:
  GatedPage() {
    page_ = ::mmap(nullptr, kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::sem_init(&reached_, 0, 0);
    ::sem_init(&opened_, 0, 0);
    struct sigaction action{};
    action.sa_sigaction = &OnFault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~GatedPage() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(page_, kPageSize);
  }
  GatedPage(const GatedPage&) = delete;
  GatedPage& operator=(const GatedPage&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(page_); }
  void AwaitReader() {
    while (::sem_wait(&reached_) != 0) continue;
  }
  void Open() { ::sem_post(&opened_); }

 private:
  static void OnFault(int, siginfo_t* info, void*) {
    if (info->si_addr < page_ || info->si_addr >= static_cast<char*>(page_) + kPageSize) {
      ::sigaction(SIGSEGV, &before_, nullptr);
      return;
    }
    ::sem_post(&reached_);
    while (::sem_wait(&opened_) != 0) continue;
    ::mprotect(page_, kPageSize, PROT_READ);
  }

  static inline void* page_ = nullptr;
  static inline sem_t reached_;
  static inline sem_t opened_;
  static inline struct sigaction before_;
};

class SchedulerTest : public ClientTest {
 protected:
  tier_op* StartOut(uint64_t tensor, std::span<const std::byte> bytes) {
    tier_op* op = nullptr;
    EXPECT_TIER_OK(tier_swap_out(client_, tensor, bytes.data(), bytes.size(), nullptr, &op));
    return op;
  }
  tier_op* StartIn(uint64_t tensor, std::span<std::byte> bytes) {
    tier_op* op = nullptr;
    EXPECT_TIER_OK(tier_swap_in(client_, tensor, bytes.data(), bytes.size(), nullptr, &op));
    return op;
  }
  uint64_t Requests(Op op) const { return daemon_->counters().requests[static_cast<size_t>(op)].load(); }
  void ExpectIntact() {
    const auto scheduler = client_->scheduler->CheckInvariants();
    EXPECT_TRUE(scheduler) << scheduler.error().message;
    const auto channel = client_->session->channel().CheckInvariants();
    EXPECT_TRUE(channel) << channel.error().message;
  }
};

// A swap of tensor 1 that its caller's thread copies, and that stops in the middle of its copy until the page opens.
class CallerCopiesTest : public ClientTest {
 protected:
  void SetUp() override {
    daemon_ = std::make_unique<FakeDaemon>(FakeOptions{.windows = 20});
    client::SessionOptions options;
    options.attach.sockets = {daemon_->socket_path()};
    session_ = client::Session::Open(options).value();
    scheduler_ = std::make_shared<swap::CopyScheduler>(
        *session_, swap::CopySchedulerOptions{.threads = 1, .inline_wait_max = std::chrono::hours(1)});
    copying_ = std::thread([&] {
      first_ = swap::StartSwap(scheduler_, {.tensor = 1, .memory = page_.data(), .size = kPageSize}).value();
    });
    page_.AwaitReader();
  }
  void AwaitSleepingCopyThread() {
    const auto threads = ThreadsNamed("tier-copy");
    ASSERT_EQ(threads.size(), 1u);
    ASSERT_TRUE(FallsAsleep(threads[0]));
  }
  void EndFirst() {
    page_.Open();
    copying_.join();
    EXPECT_TRUE(first_->done());
  }
  void TearDown() override {
    EXPECT_TRUE(scheduler_->CheckInvariants());
    scheduler_->Close();
    session_->Close();
    first_ = nullptr;
    scheduler_ = nullptr;
    session_->Drop();
  }

  GatedPage page_;
  client::Session* session_ = nullptr;
  std::shared_ptr<swap::CopyScheduler> scheduler_;
  std::thread copying_;
  std::shared_ptr<swap::Operation> first_;
};

// The copy thread has nothing to do for the second swap until the first has ended, and no answer comes that would wake
// it.
TEST_F(CallerCopiesTest, ASwapBehindItBeginsWhenItHasEnded) {
  auto content = Random(5 * kMiB, 1);
  auto second = swap::StartSwap(scheduler_, {.tensor = 1, .memory = content.data(), .size = content.size()}).value();
  ASSERT_NO_FATAL_FAILURE(AwaitSleepingCopyThread());
  EndFirst();
  EXPECT_TRUE(second->Wait(client::Clock::now() + std::chrono::seconds(30))) << "the copy thread was not woken";
}

// As above, and there is no room for the request either when the caller's thread would send it.
TEST_F(CallerCopiesTest, ARequestBehindItThatFindsNoRoomWhenItHasEndedIsSentLater) {
  const proto::RequestItem item{.tensor = 1};
  auto request = swap::StartRequest(scheduler_, {.op = Op::kFlush, .items = {&item, 1}}, {}).value();
  EXPECT_FALSE(request->Wait(client::Clock::now()));  // The first wait for a request wakes the copy thread.
  ASSERT_NO_FATAL_FAILURE(AwaitSleepingCopyThread());
  const auto started = UseCredits(session_->channel(), client::Credit::kStarted, 0);
  EndFirst();
  Take(session_->channel(), started);
  EXPECT_TRUE(request->Wait(client::Clock::now() + std::chrono::seconds(10))) << "no thread tried to send it again";
}

TEST_F(SchedulerTest, ASwapInDoesNotOvertakeAFreeThatWasAskedForFirst) {
  Start({.windows = 20});
  const auto content = Random(5 * kMiB, 1);
  ASSERT_TIER_OK(tier_wait(StartOut(1, content), 0, nullptr));
  daemon_->Hold(Op::kAcquire);
  std::vector<std::byte> first(content.size()), second(content.size());
  tier_op* const reading = StartIn(1, first);
  daemon_->Await([&] { return daemon_->held() > 0; });
  const uint64_t tensor = 1;
  tier_op* free = nullptr;
  ASSERT_TIER_OK(tier_free_start(client_, &tensor, 1, 0, &free));
  tier_op* const late = StartIn(1, second);
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(reading, 0, nullptr));
  EXPECT_EQ(first, content);
  EXPECT_TIER_OK(tier_wait(free, 0, nullptr));
  EXPECT_TIER_ERROR(tier_wait(late, 0, nullptr), TIER_NOT_FOUND, "no tensor 1");
}

TEST_F(SchedulerTest, ACallDoesNotOvertakeAFreeOfSeveralTensorsThatWaitsForASwapOfOne) {
  Start({.windows = 20});
  tier_seal(Create(2, 4096));
  daemon_->Hold(Op::kStat);
  const auto content = Random(5 * kMiB, 1);
  tier_op* const swap = StartOut(1, content);
  const uint64_t tensors[] = {1, 2};
  tier_op* free = nullptr;
  ASSERT_TIER_OK(tier_free_start(client_, tensors, 2, 0, &free));
  const tier_range range{2, 0, 0, 0};
  tier_lease* lease = nullptr;
  EXPECT_TIER_ERROR(tier_acquire(client_, &range, TIER_NO_WAIT_OWN, 0, &lease), TIER_WOULD_DEADLOCK, "tier_wait");
  daemon_->Resume();
  EXPECT_TIER_OK(tier_wait(swap, 0, nullptr));
  EXPECT_TIER_OK(tier_wait(free, 0, nullptr));
  EXPECT_EQ(tier_acquire(client_, &range, 0, 0, &lease), TIER_NOT_FOUND);
}

TEST_F(SchedulerTest, InvariantsHoldWhileThreadsSwapRequestAndCancel) {
  Start({.windows = 40}, /*spin=*/2, /*copy_threads=*/2);
  std::atomic<int> running{3};
  const auto work = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto content = Random(3 * kMiB + 100, seed);
    std::vector<std::byte> back(content.size());
    for (int i = 0; i < 60; ++i) {
      const uint64_t tensor = random() % 3;
      const size_t size = random() % 2 == 0 ? content.size() : 5000;
      const tier_range range{tensor, 0, 0, 0};
      tier_lease* lease = nullptr;
      tier_op* op = nullptr;
      int started = TIER_OK;
      switch (random() % 5) {
        case 0: started = tier_swap_out(client_, tensor, content.data(), size, nullptr, &op); break;
        case 1: started = tier_swap_in(client_, tensor, back.data(), size, nullptr, &op); break;
        case 2: started = tier_acquire_start(client_, &range, 1, 0, 50, &lease, &op); break;
        case 3: started = tier_free_start(client_, &tensor, 1, 0, &op); break;
        default: started = tier_flush_start(client_, nullptr, 0, 0, &op); break;
      }
      if (started != TIER_OK) continue;
      if (random() % 4 == 0) tier_cancel(op);
      (void)tier_wait(op, 0, nullptr);  // Whatever became of it: other threads free and replace the same tensors.
      if (lease != nullptr) tier_release(lease, 0);
    }
    running--;
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 3; ++seed) threads.emplace_back(work, seed);
  while (running.load() > 0) ExpectIntact();
  for (auto& thread : threads) thread.join();
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
  ExpectIntact();
}

}  // namespace
}  // namespace tier::session_fake
