// Rings: order, wrap-around, and what a side makes of positions that cannot be.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::proto {
namespace {

struct Entry {
  uint64_t number;
  std::array<uint64_t, 7> rest;
};
static_assert(sizeof(Entry) == kEntrySize);

class RingTest : public ::testing::Test {
 protected:
  RingTest()
      : file_(CreateMemoryFile("ring-test", kSessionRegionSize).value()),
        mapping_(Mapping::Map(file_.get(), 0, kSessionRegionSize, Access::kReadWrite).value()),
        view_(RequestRing(mapping_.data())),
        producer_(view_),
        consumer_(view_) {}

  void Put(uint64_t first, uint32_t count) {
    std::vector<Entry> entries(count);
    for (uint32_t i = 0; i < count; ++i) entries[i].number = first + i;
    producer_.Stage(entries.data(), count);
    producer_.Publish();
  }
  std::vector<uint64_t> Take(uint32_t count) {
    std::vector<Entry> entries(count);
    consumer_.Peek(entries.data(), count);
    consumer_.Consume(count);
    std::vector<uint64_t> numbers;
    for (const Entry& entry : entries) numbers.push_back(entry.number);
    return numbers;
  }

  FileDescriptor file_;
  Mapping mapping_;
  RingView view_;
  RingProducer producer_;
  RingConsumer consumer_;
};

TEST_F(RingTest, FreshRingIsEmptyAndHasRoomForAllEntries) {
  uint32_t count = 99;
  ASSERT_TRUE(consumer_.Ready(&count));
  EXPECT_EQ(count, 0u);
  ASSERT_TRUE(producer_.Free(&count));
  EXPECT_EQ(count, kRequestEntries);
}

TEST_F(RingTest, EntriesArriveInOrderAcrossTheWrap) {
  uint64_t next = 0;
  for (int round = 0; round < 50; ++round) {
    Put(next, 700);
    const auto numbers = Take(700);
    for (const uint64_t number : numbers) ASSERT_EQ(number, next++);
  }
  EXPECT_EQ(consumer_.head(), 35'000u);
}

TEST_F(RingTest, StagedEntriesAreInvisibleUntilPublished) {
  const Entry entry{.number = 7, .rest = {}};
  producer_.Stage(&entry, 1);
  uint32_t ready = 1;
  ASSERT_TRUE(consumer_.Ready(&ready));
  EXPECT_EQ(ready, 0u);
  producer_.Publish();
  ASSERT_TRUE(consumer_.Ready(&ready));
  EXPECT_EQ(ready, 1u);
}

TEST_F(RingTest, FullRingHasNoRoomUntilTheConsumerGivesEntriesBack) {
  Put(0, kRequestEntries);
  uint32_t room = 1;
  ASSERT_TRUE(producer_.Free(&room));
  EXPECT_EQ(room, 0u);
  Take(3);
  ASSERT_TRUE(producer_.Free(&room));
  EXPECT_EQ(room, 3u);
}

TEST_F(RingTest, PeekSkipsWithoutConsuming) {
  Put(10, 5);
  Entry entry{};
  consumer_.Peek(&entry, 1, 3);
  EXPECT_EQ(entry.number, 13u);
  uint32_t ready = 0;
  ASSERT_TRUE(consumer_.Ready(&ready));
  EXPECT_EQ(ready, 5u);
}

TEST_F(RingTest, ImpossibleTailIsSeenWhereverItPoints) {
  Put(0, 10);
  Take(4);
  for (const uint64_t tail :
       {uint64_t{0}, uint64_t{3}, uint64_t{4} + kRequestEntries + 1, UINT64_MAX, UINT64_MAX / 2}) {
    view_.control->tail.store(tail);
    uint32_t ready = 0;
    EXPECT_FALSE(consumer_.Ready(&ready)) << tail;
  }
  for (const uint64_t tail : {uint64_t{4}, uint64_t{10}, uint64_t{4} + kRequestEntries}) {
    view_.control->tail.store(tail);
    uint32_t ready = 0;
    EXPECT_TRUE(consumer_.Ready(&ready)) << tail;
    EXPECT_EQ(ready, tail - 4);
  }
}

TEST_F(RingTest, ImpossibleHeadIsSeenWhereverItPoints) {
  Put(0, 10);
  for (const uint64_t head : {uint64_t{11}, UINT64_MAX, UINT64_MAX - kRequestEntries}) {
    view_.control->head.store(head);
    uint32_t room = 0;
    EXPECT_FALSE(producer_.Free(&room)) << head;
  }
  view_.control->head.store(10);
  uint32_t room = 0;
  EXPECT_TRUE(producer_.Free(&room));
}

TEST_F(RingTest, HeadFarBehindCountsAsImpossible) {
  for (int i = 0; i < 3; ++i) {
    Put(0, 1000);
    Take(1000);
  }
  Put(0, 1000);
  view_.control->head.store(3000 - kRequestEntries);
  uint32_t room = 0;
  EXPECT_FALSE(producer_.Free(&room));
}

TEST_F(RingTest, RequestAndCompletionRingsDoNotOverlap) {
  const RingView requests = RequestRing(mapping_.data());
  const RingView completions = CompletionRing(mapping_.data());
  EXPECT_GE(completions.entries, requests.entries + uint64_t{requests.entry_count} * kEntrySize);
  EXPECT_LE(completions.entries + uint64_t{completions.entry_count} * kEntrySize, mapping_.data() + kSessionRegionSize);
  EXPECT_EQ(reinterpret_cast<std::byte*>(completions.control + 1) - mapping_.data(),
            static_cast<ptrdiff_t>(kControlOffset + 2 * sizeof(RingControl)));
  EXPECT_LE(kControlOffset + 2 * sizeof(RingControl), kRequestOffset);
}

TEST_F(RingTest, TwoProcessesPassAMillionEntriesInOrder) {
  constexpr uint64_t kEntries = 1'000'000;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    uint64_t sent = 0;
    std::vector<Entry> batch(64);
    while (sent < kEntries) {
      uint32_t room = 0;
      if (!producer_.Free(&room)) ::_exit(2);
      const auto count = static_cast<uint32_t>(std::min<uint64_t>({room, batch.size(), kEntries - sent}));
      if (count == 0) {
        ::sched_yield();
        continue;
      }
      for (uint32_t i = 0; i < count; ++i) batch[i] = {.number = sent + i, .rest = {~(sent + i)}};
      producer_.Stage(batch.data(), count);
      producer_.Publish();
      sent += count;
    }
    ::_exit(0);
  }
  uint64_t expected = 0;
  std::vector<Entry> batch(kRequestEntries);
  bool intact = true;
  while (expected < kEntries && intact) {
    uint32_t ready = 0;
    intact = consumer_.Ready(&ready);
    if (ready == 0) {
      ::sched_yield();
      continue;
    }
    consumer_.Peek(batch.data(), ready);
    for (uint32_t i = 0; i < ready; ++i, ++expected)
      intact &= batch[i].number == expected && batch[i].rest[0] == ~expected;
    consumer_.Consume(ready);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(intact);
  EXPECT_EQ(expected, kEntries);
}

TEST_F(RingTest, ProducerSeesWhetherTheConsumerHasToBeWoken) {
  EXPECT_FALSE(producer_.consumer_waiting());
  consumer_.SetWaiting(true);
  EXPECT_TRUE(producer_.consumer_waiting());
  Put(1, 1);
  uint32_t ready = 0;
  ASSERT_TRUE(consumer_.Ready(&ready));
  EXPECT_EQ(ready, 1u);
  consumer_.SetWaiting(false);
  EXPECT_FALSE(producer_.consumer_waiting());
}

TEST(NeedsBell, OfARingThatIsLookedAtOnlyWhileTheEngineSleeps) {
  EXPECT_FALSE(NeedsBell(kAwake, false, false));
  EXPECT_TRUE(NeedsBell(kSleeping, false, false));
  EXPECT_TRUE(NeedsBell(kSleepingPatiently, false, false));
}

TEST(NeedsBell, OfARingThatIsNotLookedAtAlways) {
  for (const uint32_t sleeping : {kAwake, kSleeping, kSleepingPatiently}) EXPECT_TRUE(NeedsBell(sleeping, true, false));
}

TEST(NeedsBell, OfReleasesThatCanWaitUnlessTheEngineSleepsPatiently) {
  EXPECT_TRUE(NeedsBell(kSleeping, false, true));
  EXPECT_TRUE(NeedsBell(kAwake, true, true)) << "somebody may wait for them: the page does not say otherwise";
  EXPECT_FALSE(NeedsBell(kSleepingPatiently, false, true));
  EXPECT_FALSE(NeedsBell(kSleepingPatiently, true, true)) << "the sweep finds them";
}

}  // namespace
}  // namespace tier::proto
