// One session's rings, daemon side: order, flow control, and clients that write nonsense into shared memory.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/ring_port.h"
#include "tests/support/session/allocation_count.h"
#include "tests/support/session/fake_engine.h"
#include "tests/support/session/ring_client.h"

namespace tier::session {
namespace {

using proto::Op;
using proto::RequestItem;
using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::RingClient;
using testing::ScriptedReply;
using testing::SubmittedRequest;

constexpr auto kSession = tiering::SessionId{7};
constexpr auto kJob = tiering::JobId{1};

// Passes the engine's answers to the port under test.
class PortSink final : public tiering::ReplySink {
 public:
  RingPort* port = nullptr;
  RingScratch scratch;
  void OnReply(tiering::SessionId, const tiering::Reply& reply) override { port->Send(reply, scratch); }
  void OnWindow(tiering::SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(tiering::SessionId, WindowIndex) override {}
  void OnSessionEnded(tiering::SessionId, Code, const std::string&) override {}
};

class RingPortTest : public ::testing::Test {
 protected:
  RingPortTest()
      : region_(MakeSessionRegion(11, kSession).value()),
        client_(region_.descriptor.get()),
        port_(kSession, std::move(region_.mapping)) {
    sink_.port = &port_;
    engine_.Connect(sink_);
    EXPECT_TRUE(engine_.OpenJob(kJob, {}));
    EXPECT_TRUE(engine_.OpenSession(kSession, kJob));
  }
  bool SendOne(uint64_t tensor = 1) {
    const RequestItem item{.tensor = tensor};
    return client_.Send(Op::kFree, {&item, 1});
  }
  Result<uint32_t> Receive(uint32_t max = 1000) { return port_.Receive(engine_, sink_.scratch, max); }
  void Turn() { engine_.Turn({}); }

  FakeEngine engine_;
  PortSink sink_;
  SessionRegion region_;
  RingClient client_;
  RingPort port_;
};

TEST_F(RingPortTest, RegionHeaderSaysWhereTheRingsAre) {
  proto::SessionHeader header;
  std::memcpy(&header, client_.region(), sizeof(header));
  EXPECT_EQ(header.magic, proto::kSessionMagic);
  EXPECT_EQ(header.epoch, 11u);
  EXPECT_EQ(header.session, 7u);
  EXPECT_EQ(header.request_entries, proto::kRequestEntries);
  EXPECT_EQ(header.completion_offset, proto::kCompletionOffset);
  EXPECT_EQ(header.region_size, proto::kSessionRegionSize);
  EXPECT_EQ(header.reserved, 0u);
}

TEST_F(RingPortTest, RequestsReachTheEngineInOrderAndAnswersComeBack) {
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(SendOne(50 + i));
  EXPECT_TRUE(port_.HasRequests());
  EXPECT_EQ(Receive().value(), 10u);
  EXPECT_FALSE(port_.HasRequests());
  EXPECT_EQ(port_.outstanding(), 10u);
  Turn();
  EXPECT_TRUE(client_.Receive().empty()) << "answers are published by Flush";
  ASSERT_TRUE(port_.Flush());
  const auto answers = client_.Receive();
  ASSERT_EQ(answers.size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(answers[i].header.sequence, i + 1);
    EXPECT_EQ(answers[i].header.value, i + 1);
    EXPECT_EQ(engine_.submitted[i].items[0].tensor, 50 + i);
  }
  EXPECT_EQ(port_.outstanding(), 0u);
}

TEST_F(RingPortTest, TakesAtMostWhatItIsTold) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(SendOne());
  EXPECT_EQ(Receive(4).value(), 4u);
  EXPECT_TRUE(port_.HasRequests());
  EXPECT_EQ(Receive(4).value(), 4u);
  EXPECT_EQ(Receive(4).value(), 2u);
}

TEST_F(RingPortTest, TheLongestMessagesSurviveASmallLimit) {
  const std::vector<RequestItem> items(proto::kItemsPerRequestMax);
  ASSERT_TRUE(client_.Send(Op::kFree, items));
  ASSERT_TRUE(client_.Send(Op::kFree, items));
  EXPECT_EQ(Receive(2).value() + Receive(2).value(), 2u);
  EXPECT_EQ(engine_.submitted[1].items.size(), proto::kItemsPerRequestMax);
}

TEST_F(RingPortTest, MessagesOfEveryLengthCrossTheWrap) {
  std::mt19937 random(20261121);
  uint64_t sent = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<RequestItem> items(1 + random() % 400);
    if (client_.Send(Op::kFree, items)) ++sent;
    const auto received = Receive(static_cast<uint32_t>(1 + random() % 3));
    ASSERT_TRUE(received) << received.error().message;
    Turn();
    ASSERT_TRUE(port_.Flush());
    (void)client_.Receive();
  }
  EXPECT_GT(sent, 900u);
}

TEST_F(RingPortTest, StopsReadingAtTheOutstandingLimit) {
  engine_.hold = true;
  uint32_t taken = 0;
  for (int round = 0; round < 4; ++round) {
    while (SendOne()) {
    }
    taken += Receive(proto::kRequestEntries).value();
  }
  EXPECT_EQ(taken, proto::kRequestsOutstandingMax);
  EXPECT_FALSE(port_.HasRequests()) << "a full session must not keep the engine awake";
  engine_.hold = false;
  Turn();
  ASSERT_TRUE(port_.Flush());
  EXPECT_TRUE(port_.HasRequests());
}

TEST_F(RingPortTest, AnswersThatFindNoRoomWaitAndNothingMoreIsRead) {
  engine_.answer = [](const SubmittedRequest& request) {
    return ScriptedReply{.value = request.sequence, .spans = std::vector<proto::SpanRecord>(4001)};
  };
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(SendOne());
  EXPECT_EQ(Receive().value(), 8u);
  Turn();
  ASSERT_TRUE(port_.Flush());
  EXPECT_TRUE(port_.backlogged());  // 8 × 2001 entries into 8192.
  ASSERT_TRUE(SendOne());
  EXPECT_FALSE(port_.HasRequests());
  EXPECT_EQ(Receive().value(), 0u);
  uint64_t expected = 1;
  while (expected <= 8) {
    for (const auto& answer : client_.Receive()) {
      EXPECT_EQ(answer.header.sequence, expected++);
      EXPECT_EQ(answer.spans.size(), 4001u);
    }
    ASSERT_TRUE(port_.Flush());
  }
  EXPECT_FALSE(port_.backlogged());
  EXPECT_EQ(Receive().value(), 1u);
}

TEST_F(RingPortTest, EndsAClientWhoseUnreadAnswersExceedTheLimit) {
  engine_.answer = [](const SubmittedRequest&) { return ScriptedReply{.spans = std::vector<proto::SpanRecord>(8191)}; };
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(SendOne());
  EXPECT_EQ(Receive().value(), 400u);
  Turn();
  const auto flushed = port_.Flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code, Code::kRevoked);
  EXPECT_THAT(flushed.error().message, HasSubstr("not read"));
}

TEST_F(RingPortTest, RefusalsCarryRecordAndSentence) {
  engine_.answer = [](const SubmittedRequest&) {
    return ScriptedReply{.code = Code::kNoMemory,
                         .value = 3,
                         .error = {.tensor = 9, .requested = 100, .available = 5, .limit = 50},
                         .detail = "the share has 5 bytes left"};
  };
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 1u);
  Turn();
  ASSERT_TRUE(port_.Flush());
  const auto answer = client_.Receive().at(0);
  EXPECT_EQ(answer.header.code, static_cast<uint16_t>(Code::kNoMemory));
  EXPECT_EQ(answer.error.requested, 100u);
  EXPECT_EQ(answer.error.tensor, 9u);
  EXPECT_EQ(answer.header.value, 3u);
  EXPECT_EQ(answer.detail, "the share has 5 bytes left");
}

TEST_F(RingPortTest, OverlongSentencesAreCut) {
  engine_.answer = [](const SubmittedRequest&) {
    return ScriptedReply{.code = Code::kInvalid, .detail = std::string(10'000, 'x')};
  };
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 1u);
  Turn();
  ASSERT_TRUE(port_.Flush());
  EXPECT_EQ(client_.Receive().at(0).detail, std::string(proto::kDetailLengthMax, 'x'));
}

TEST_F(RingPortTest, StatAnswersOneTensorRecord) {
  engine_.answer = [](const SubmittedRequest&) {
    return ScriptedReply{.value = proto::kTensorSealed, .tensor = proto::TensorRecord{.size = 4096, .generation = 2}};
  };
  const RequestItem item{.tensor = 1};
  ASSERT_TRUE(client_.Send(Op::kStat, {&item, 1}));
  ASSERT_EQ(Receive().value(), 1u);
  Turn();
  ASSERT_TRUE(port_.Flush());
  const auto answer = client_.Receive().at(0);
  EXPECT_EQ(answer.header.record_count, 1u);
  EXPECT_EQ(answer.tensor.size, 4096u);
  EXPECT_EQ(answer.tensor.generation, 2u);
}

TEST_F(RingPortTest, UnusedBytesOfAnAnswerAreZero) {
  // First an answer full of spans, then one of the same length with only two.
  int calls = 0;
  engine_.answer = [&calls](const SubmittedRequest&) {
    return ScriptedReply{
        .spans = std::vector<proto::SpanRecord>(
            calls++ == 0 ? 3 : 2, {.lease = ~0ull, .window = ~0u, .item = ~0u, .offset = ~0ull, .length = ~0ull})};
  };
  ASSERT_TRUE(SendOne());
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 2u);
  Turn();
  ASSERT_TRUE(port_.Flush());
  const auto ring = proto::CompletionRing(client_.region());
  const std::byte* second = ring.Entry(2);
  for (size_t i = 96; i < 128; ++i) EXPECT_EQ(second[i], std::byte{0}) << i;
}

TEST_F(RingPortTest, ImpossibleTailsEndTheSession) {
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 1u);
  for (const uint64_t tail : {uint64_t{0}, uint64_t{proto::kRequestEntries} + 2, UINT64_MAX}) {
    client_.request_control().tail.store(tail);
    EXPECT_TRUE(port_.HasRequests()) << "or nobody would ever look";
    const auto received = Receive();
    ASSERT_FALSE(received);
    EXPECT_EQ(received.error().code, Code::kRevoked);
    EXPECT_THAT(received.error().message, HasSubstr("tail"));
  }
}

TEST_F(RingPortTest, ImpossibleHeadsEndTheSession) {
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 1u);
  client_.completion_control().head.store(5);
  Turn();
  const auto flushed = port_.Flush();
  ASSERT_FALSE(flushed);
  EXPECT_THAT(flushed.error().message, HasSubstr("head"));
}

TEST_F(RingPortTest, ReplayedAndSkippedSequencesEndTheSession) {
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 1u);
  proto::RequestEntry replay{};
  replay.header = {.sequence = 1, .op = static_cast<uint16_t>(Op::kFree), .entries = 1, .flags = 0, .item_count = 1};
  ASSERT_TRUE(client_.SendEntries({&replay, 1}));
  EXPECT_THAT(Receive().error().message, HasSubstr("`sequence` is 1, expected 2"));
}

TEST_F(RingPortTest, GarbageNeverReachesTheEngine) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    proto::RequestEntry entry;
    auto* words = reinterpret_cast<uint64_t*>(&entry);
    for (size_t i = 0; i < sizeof(entry) / 8; ++i) words[i] = random();
    ASSERT_TRUE(client_.SendEntries({&entry, 1}));
    EXPECT_FALSE(Receive());
  }
  EXPECT_TRUE(engine_.submitted.empty());
}

TEST_F(RingPortTest, ChangingEntriesUnderTheDaemonChangesNothingItHasRead) {
  // A client that rewrites its entries as fast as it can: every message is either refused or was sound when it was
  // copied.
  std::atomic<bool> stop{false};
  const auto ring = proto::RequestRing(client_.region());
  std::thread hostile([&] {
    std::mt19937_64 random(3);
    while (!stop.load()) {
      auto* words = reinterpret_cast<std::atomic<uint64_t>*>(ring.Entry(random() % 64));
      words[random() % 8].store(random() % 16, std::memory_order_relaxed);
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    client_.request_control().tail.store(static_cast<uint64_t>(i % 64), std::memory_order_release);
    (void)Receive(64);
    Turn();
    (void)port_.Flush();
    (void)client_.Receive();
  }
  stop = true;
  hostile.join();
  for (const SubmittedRequest& request : engine_.submitted) {
    EXPECT_NE(request.op, Op::kNone);
    EXPECT_LT(static_cast<uint16_t>(request.op), proto::kOpCount);
  }
}

TEST_F(RingPortTest, WakesOnlyAClientThatWaits) {
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 1u);
  Turn();
  ASSERT_TRUE(port_.Flush());
  EXPECT_EQ(port_.wakes(), 0u);
  const uint32_t before = client_.completion_control().wake_sequence.load();
  client_.completion_control().consumer_waiting.store(1);
  ASSERT_TRUE(SendOne());
  ASSERT_EQ(Receive().value(), 1u);
  Turn();
  ASSERT_TRUE(port_.Flush());
  EXPECT_EQ(port_.wakes(), 1u);
  EXPECT_EQ(client_.completion_control().wake_sequence.load(), before + 1);
  EXPECT_EQ(client_.completion_control().consumer_waiting.load(), 0u);
}

TEST_F(RingPortTest, SleepingClientIsWokenByTheFutex) {
  constexpr int kRounds = 200;
  std::thread client([this] {
    for (int got = 0; got < kRounds;) {
      auto& control = client_.completion_control();
      const uint32_t sequence = control.wake_sequence.load(std::memory_order_acquire);
      control.consumer_waiting.store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      const size_t now = client_.Receive().size();
      got += static_cast<int>(now);
      if (now == 0) ::syscall(SYS_futex, &control.wake_sequence, FUTEX_WAIT, sequence, nullptr, nullptr, 0);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    while (!SendOne()) {
    }
    while (Receive().value() == 0) {
    }
    Turn();
    ASSERT_TRUE(port_.Flush());
  }
  client.join();
}

TEST_F(RingPortTest, SteadyStateAllocatesNothing) {
  engine_.keep_submitted = false;
  const std::vector<RequestItem> items(31);
  std::vector<proto::SpanRecord> spans(40);
  tiering::Reply reply;
  reply.spans = spans;
  // Straight to the port: the fake engine allocates, the real one is measured where it lives.
  class Sink final : public tiering::EnginePort {
   public:
    uint64_t last = 0;
    Status OpenJob(tiering::JobId, const tiering::JobOptions&) override { return {}; }
    Status SetJob(tiering::JobId, const tiering::TermsChange&) override { return {}; }
    void SetQuota(uint32_t, const tiering::UserQuota&) override {}
    uint64_t StorageOf(uint32_t) const override { return 0; }
    void SetOptions(const tiering::EngineOptions&) override {}
    tiering::StallList Stalls(tiering::JobId, base::TimePoint) const override { return {}; }
    void CloseJob(tiering::JobId, const std::string&, bool) override {}
    Status OpenSession(tiering::SessionId, tiering::JobId) override { return {}; }
    void SetNode(tiering::SessionId, int) override {}
    void EndSession(tiering::SessionId, Code, const std::string&, std::optional<tiering::JobId>) override {}
    void WindowReturned(tiering::SessionId, WindowIndex) override {}
    void TakenWindowReturned(tiering::SessionId, WindowIndex) override {}
    void Submit(tiering::SessionId, const tiering::Request& request) override { last = request.sequence; }
    void SetUnread(tiering::SessionId, uint64_t) override {}
    Status FlushJob(tiering::JobId, uint64_t, uint32_t) override { return {}; }
    bool TakesRequests() const override { return true; }
    bool HoldsBackNext(tiering::SessionId) const override { return false; }
    bool Turn(base::TimePoint) override { return false; }
    std::optional<base::TimePoint> NextDeadline() const override { return {}; }
    void StartDrain(const std::string&) override {}
    bool idle() const override { return true; }
    bool ReleasesCanWait() const override { return false; }
    Status SetDeviceDraining(uint16_t, bool) override { return {}; }
    Status RetryDevice(uint16_t) override { return {}; }
    Status PurgeDevice(const std::string&, Purged) override { return {}; }
    tiering::EngineSnapshot Snapshot() const override { return {}; }
    tiering::JobCounters Counters(tiering::JobId) const override { return {}; }
    tiering::PoolView Pool() const override { return {}; }
    tiering::TensorPage Tensors(tiering::JobId, uint32_t, size_t) const override { return {}; }
    std::vector<tiering::StoredManifest> StoredManifests(const std::string&, size_t) const override { return {}; }
    Status DeleteStoredManifest(const std::string&) override { return {}; }
    Status CheckSettled(const std::string&) const override { return {}; }
  } sink;
  const auto ring = proto::RequestRing(client_.region());
  proto::RequestEntry entry{};
  entry.header = {.op = static_cast<uint16_t>(Op::kFree), .entries = 1, .flags = 0, .item_count = 1};
  const uint64_t before = testing::AllocationCount();
  for (uint64_t i = 1; i <= 5000; ++i) {
    entry.header.sequence = i;
    std::memcpy(ring.Entry(i - 1), &entry, sizeof(entry));
    ring.control->tail.store(i, std::memory_order_release);
    ASSERT_EQ(port_.Receive(sink, sink_.scratch, 16).value(), 1u);
    reply.sequence = sink.last;
    port_.Send(reply, sink_.scratch);
    ASSERT_TRUE(port_.Flush());
    client_.completion_control().head.store(client_.completion_control().tail.load());
  }
  EXPECT_EQ(testing::AllocationCount(), before);
}

}  // namespace
}  // namespace tier::session
