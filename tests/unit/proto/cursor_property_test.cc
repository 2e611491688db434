// Cursors against a model: for any history of honest use and any value that the other side may write, a side accepts
// exactly the positions that can be, and counts them right.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::proto {
namespace {

// A ring in ordinary memory, small enough to wrap often.
class SmallRing {
 public:
  static constexpr uint32_t kEntries = 16;
  SmallRing() : bytes_(kEntries * kEntrySize) {}
  RingView view() { return {&control_, bytes_.data(), kEntries}; }

 private:
  RingControl control_{};
  std::vector<std::byte> bytes_;
};

struct Entry {
  uint64_t number;
  uint64_t rest[7];
};

// Positions near the interesting ones, and anywhere.
rc::Gen<uint64_t> Positions(uint64_t base) {
  return rc::gen::oneOf(
      rc::gen::map(rc::gen::inRange<int64_t>(-40, 40), [base](int64_t d) { return base + static_cast<uint64_t>(d); }),
      rc::gen::arbitrary<uint64_t>(), rc::gen::element<uint64_t>(0, 1, UINT64_MAX, UINT64_MAX / 2));
}

// Passes `entries` through the ring one by one, so that both cursors stand there.
void Advance(RingProducer& producer, RingConsumer& consumer, uint32_t entries) {
  const Entry entry{};
  for (uint32_t i = 0; i < entries; ++i) {
    producer.Stage(&entry, 1);
    producer.Publish();
    consumer.Consume(1);
  }
}

RC_GTEST_PROP(Cursors, ConsumerAcceptsExactlyThePossibleTails, ()) {
  SmallRing ring;
  RingProducer producer(ring.view());
  RingConsumer consumer(ring.view());
  const auto head = *rc::gen::inRange<uint32_t>(0, 100);
  Advance(producer, consumer, head);
  const uint64_t tail = *Positions(head);
  ring.view().control->tail.store(tail);
  uint32_t ready = 12345;
  const bool accepted = consumer.Ready(&ready);
  const bool possible = tail >= head && tail - head <= SmallRing::kEntries;
  RC_ASSERT(accepted == possible);
  if (possible) RC_ASSERT(ready == tail - head);
  if (!possible) RC_ASSERT(ready == 12345u);
}

RC_GTEST_PROP(Cursors, ProducerAcceptsExactlyThePossibleHeads, ()) {
  SmallRing ring;
  RingProducer producer(ring.view());
  RingConsumer consumer(ring.view());
  const auto before = *rc::gen::inRange<uint32_t>(0, 100);
  Advance(producer, consumer, before);
  const auto staged = *rc::gen::inRange<uint32_t>(0, SmallRing::kEntries + 1);
  const std::vector<Entry> entries(SmallRing::kEntries);
  producer.Stage(entries.data(), staged);
  const uint64_t tail = producer.tail();
  const uint64_t head = *Positions(tail);
  ring.view().control->head.store(head);
  uint32_t room = 0;
  const bool possible = head <= tail && tail - head <= SmallRing::kEntries;
  RC_ASSERT(producer.Free(&room) == possible);
  if (possible) RC_ASSERT(room == SmallRing::kEntries - (tail - head));
}

RC_GTEST_PROP(Cursors, HonestUseKeepsOrderWhateverTheBatches, ()) {
  SmallRing ring;
  RingProducer producer(ring.view());
  RingConsumer consumer(ring.view());
  uint64_t sent = 0;
  uint64_t received = 0;
  for (const auto batch : *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, 20))) {
    uint32_t room = 0;
    RC_ASSERT(producer.Free(&room));
    RC_ASSERT(room == SmallRing::kEntries - (sent - received));
    std::vector<Entry> entries(std::min(batch, room));
    for (Entry& entry : entries) entry.number = sent++;
    producer.Stage(entries.data(), static_cast<uint32_t>(entries.size()));
    producer.Publish();
    uint32_t ready = 0;
    RC_ASSERT(consumer.Ready(&ready));
    RC_ASSERT(ready == sent - received);
    const uint32_t take = std::min(ready, batch / 2 + 1);
    std::vector<Entry> taken(take);
    consumer.Peek(taken.data(), take);
    consumer.Consume(take);
    for (const Entry& entry : taken) RC_ASSERT(entry.number == received++);
  }
}

RC_GTEST_PROP(Cursors, PeekBehindTheHeadReadsWhatALaterPeekReads, ()) {
  SmallRing ring;
  RingProducer producer(ring.view());
  RingConsumer consumer(ring.view());
  Advance(producer, consumer, *rc::gen::inRange<uint32_t>(0, 40));
  std::vector<Entry> entries(SmallRing::kEntries);
  for (size_t i = 0; i < entries.size(); ++i) entries[i].number = 100 + i;
  producer.Stage(entries.data(), SmallRing::kEntries);
  producer.Publish();
  const auto skip = *rc::gen::inRange<uint32_t>(0, SmallRing::kEntries);
  const auto count = *rc::gen::inRange<uint32_t>(1, SmallRing::kEntries - skip + 1);
  std::vector<Entry> early(count);
  consumer.Peek(early.data(), count, skip);
  consumer.Consume(skip);
  std::vector<Entry> late(count);
  consumer.Peek(late.data(), count);
  for (uint32_t i = 0; i < count; ++i) {
    RC_ASSERT(early[i].number == 100 + skip + i);
    RC_ASSERT(late[i].number == early[i].number);
  }
}

}  // namespace
}  // namespace tier::proto
