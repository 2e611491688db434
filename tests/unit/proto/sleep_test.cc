// The protocol of sleeping (proto/ring.h), both directions, as two threads that race for it thousands of times: a side
// that sleeps is woken, and at most once too often for each time it slept.
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>

#include <gtest/gtest.h>

#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::proto {
namespace {

constexpr uint64_t kMessages = 20'000;

class SleepTest : public ::testing::Test {
 protected:
  SleepTest()
      : file_(CreateMemoryFile("sleep-test", kSessionRegionSize).value()),
        mapping_(Mapping::Map(file_.get(), 0, kSessionRegionSize, Access::kReadWrite).value()) {}

  struct Entry {
    uint64_t number;
    uint64_t rest[7];
  };

  static void Put(RingProducer& producer, uint64_t number) {
    const Entry entry{.number = number, .rest = {}};
    uint32_t room = 0;
    while (producer.Free(&room) && room == 0) std::this_thread::yield();
    producer.Stage(&entry, 1);
    producer.Publish();
  }
  // Takes all there is; returns how many.
  static uint32_t TakeAll(RingConsumer& consumer, uint64_t* next) {
    uint32_t ready = 0;
    EXPECT_TRUE(consumer.Ready(&ready));
    for (uint32_t i = 0; i < ready; ++i) {
      Entry entry{};
      consumer.Peek(&entry, 1);
      EXPECT_EQ(entry.number, (*next)++);
      consumer.Consume(1);
    }
    return ready;
  }

  FileDescriptor file_;
  Mapping mapping_;
};

TEST_F(SleepTest, ClientAsleepOnItsFutexMissesNoCompletion) {
  const RingView view = CompletionRing(mapping_.data());
  std::atomic<uint64_t> wakes{0};
  std::thread daemon([&] {
    RingProducer producer(view);
    for (uint64_t i = 0; i < kMessages; ++i) {
      Put(producer, i);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (view.control->consumer_waiting.load(std::memory_order_relaxed) != 0) {
        view.control->consumer_waiting.store(0, std::memory_order_relaxed);
        view.control->wake_sequence.fetch_add(1, std::memory_order_release);
        ::syscall(SYS_futex, &view.control->wake_sequence, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        ++wakes;
      }
      if (i % 7 == 0) std::this_thread::yield();
    }
  });
  RingConsumer consumer(view);
  uint64_t next = 0;
  uint64_t sleeps = 0;
  while (next < kMessages) {
    const uint32_t sequence = view.control->wake_sequence.load(std::memory_order_acquire);
    view.control->consumer_waiting.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (TakeAll(consumer, &next) > 0) continue;
    ++sleeps;
    ::syscall(SYS_futex, &view.control->wake_sequence, FUTEX_WAIT, sequence, nullptr, nullptr, 0);
  }
  daemon.join();
  EXPECT_EQ(next, kMessages);
  RecordProperty("sleeps", std::to_string(sleeps));
}

TEST_F(SleepTest, DaemonAsleepOnItsDoorbellMissesNoRequest) {
  const RingView view = RequestRing(mapping_.data());
  EnginePage page{};
  const FileDescriptor bell(::eventfd(0, EFD_CLOEXEC));
  std::thread client([&] {
    RingProducer producer(view);
    for (uint64_t i = 0; i < kMessages; ++i) {
      Put(producer, i);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (page.sleeping.load(std::memory_order_relaxed) != 0) {
        const uint64_t one = 1;
        EXPECT_EQ(::write(bell.get(), &one, sizeof(one)), 8);
      }
      if (i % 5 == 0) std::this_thread::yield();
    }
  });
  RingConsumer consumer(view);
  uint64_t next = 0;
  while (next < kMessages) {
    if (TakeAll(consumer, &next) > 0) continue;
    page.sleeping.store(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    uint32_t ready = 0;
    if (consumer.Ready(&ready) && ready == 0) {
      uint64_t rings = 0;
      EXPECT_EQ(::read(bell.get(), &rings, sizeof(rings)), 8);  // Blocks: a lost bell hangs the test.
    }
    page.sleeping.store(0, std::memory_order_release);
  }
  client.join();
  EXPECT_EQ(next, kMessages);
}

}  // namespace
}  // namespace tier::proto
