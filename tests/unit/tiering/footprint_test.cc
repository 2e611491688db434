// What the engine costs: no allocation in steady state, and few bytes a tensor. This binary counts every operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "daemon/tiering/engine.h"
#include "daemon/tiering/tables/lease_table.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/null_ports.h"

namespace {

uint64_t allocation_count = 0;
uint64_t allocated_bytes = 0;  // Asked for and not given back.

void* Allocate(size_t size) {
  ++allocation_count;
  // The size stands before the bytes, so that what is given back can be counted.
  auto* block = static_cast<size_t*>(std::malloc(size + 16));
  if (block == nullptr) throw std::bad_alloc();
  *block = size;
  allocated_bytes += size;
  return block + 2;
}

void Free(void* bytes) {
  if (bytes == nullptr) return;
  auto* block = static_cast<size_t*>(bytes) - 2;
  allocated_bytes -= *block;
  std::free(block);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* bytes) noexcept { Free(bytes); }
void operator delete[](void* bytes) noexcept { Free(bytes); }
void operator delete(void* bytes, size_t) noexcept { Free(bytes); }
void operator delete[](void* bytes, size_t) noexcept { Free(bytes); }

namespace tier::tiering {
namespace {

using proto::Op;
using proto::RequestItem;

// Keeps no history: only the leases of the last reply.
class LastReply final : public ReplySink {
 public:
  void OnReply(SessionId, const Reply& reply) override {
    code = reply.code;
    ++replies;
    count = 0;
    for (const proto::SpanRecord& span : reply.spans) {
      if (count < std::size(leases) && (count == 0 || leases[count - 1].value != span.lease))
        leases[count++] = {0, 0, 0, span.lease};
    }
  }
  void OnWindow(SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(SessionId, WindowIndex) override {}
  void OnSessionEnded(SessionId, Code, const std::string&) override {}

  RequestItem leases[1024];
  size_t count = 0;
  Code code = Code::kOk;
  uint64_t replies = 0;
};

class Footprint : public ::testing::Test {
 protected:
  Footprint() : windows({.window_size = 8 * kMiB, .arena_max_bytes = 512 * kMiB, .windows_max = 64}) {
    extents.AddDevice(1024);
    engine = std::make_unique<Engine>(EngineOptions{}, EnginePorts{windows, extents, transfers, nullptr, sink});
    EXPECT_TRUE(engine->OpenJob(JobId{1}, {.key = "0/a"}).has_value());
    EXPECT_TRUE(engine->OpenSession(SessionId{2}, JobId{1}).has_value());
  }
  void Send(Op op, std::span<const RequestItem> items, uint32_t flags = 0) {
    engine->Submit(SessionId{2}, {.sequence = ++sequence, .op = op, .flags = flags, .items = items, .text = {}});
  }
  void Turn() {
    now = now + std::chrono::microseconds(1);
    engine->Turn(now);
  }
  void Wait() {
    const uint64_t before = sink.replies;
    for (int turn = 0; turn < 1000 && sink.replies == before; ++turn) Turn();
    ASSERT_EQ(sink.code, Code::kOk);
  }
  // Creates and seals `count` tensors of `size` bytes, ids from `first` on.
  void Put(uint64_t first, uint64_t count, uint64_t size) {
    constexpr uint64_t kBatch = 512;
    std::vector<RequestItem> items;
    for (uint64_t done = 0; done < count; done += kBatch) {
      items.clear();
      for (uint64_t i = done; i < std::min(count, done + kBatch); ++i) items.push_back({first + i, 0, 0, size});
      Send(Op::kCreate, items);
      Wait();
      Send(Op::kRelease, {sink.leases, sink.count});
      Wait();
    }
  }

  memory::testing::FakeWindowSource windows;
  storage::ExtentStore extents;
  testing::InstantTransfers transfers;
  LastReply sink;
  std::unique_ptr<Engine> engine;
  uint64_t sequence = 0;
  base::TimePoint now;
};

TEST_F(Footprint, AcquireAndReleaseAllocateNothingInSteadyState) {
  Put(1, 1000, 64 * kKiB);
  std::vector<RequestItem> items;
  for (uint64_t id = 1; id <= 200; ++id) items.push_back({id, 0, 0, 0});
  const auto round = [&](uint32_t flags) {
    Send(Op::kAcquire, items, flags);
    Turn();
    ASSERT_EQ(sink.code, Code::kOk);
    Send(Op::kRelease, {sink.leases, sink.count});
    Turn();
  };
  for (int warm = 0; warm < 5; ++warm) round(0);
  const uint64_t before = allocation_count;
  for (int i = 0; i < 100; ++i) round(0);
  EXPECT_EQ(allocation_count - before, 0u);
  for (int warm = 0; warm < 5; ++warm) round(proto::kFlagWrite);
  const uint64_t writing = allocation_count;
  for (int i = 0; i < 100; ++i) round(proto::kFlagWrite);
  EXPECT_EQ(allocation_count - writing, 0u) << "nor does writing in place allocate";
}

TEST_F(Footprint, AOnePieceTensorWithASsdCopyCostsAtMostThreeHundredBytes) {
  Put(1, 1000, 4096);  // Windows, pools and tables are there.
  Send(Op::kFlush, {});
  Wait();
  constexpr uint64_t kCount = 100'000;
  const uint64_t before = allocated_bytes;
  const uint64_t windows_before = windows.made_count();
  Put(2000, kCount, 4096);
  for (int i = 0; i < 200; ++i) {
    Send(Op::kFlush, {});
    Wait();
  }
  const uint64_t bytes = allocated_bytes - before;
  ASSERT_LE(engine->Snapshot().jobs[0].counters.dirty_bytes, 0u);
  RecordProperty("bytes_per_tensor", static_cast<int>(bytes / kCount));
  EXPECT_LE(bytes / kCount, 300u) << windows.made_count() - windows_before << " windows were made meanwhile";
  std::printf("%llu bytes of daemon memory a tensor\n", static_cast<unsigned long long>(bytes / kCount));
}

TEST_F(Footprint, RequestsOnEverythingThatWaitCostNoListEach) {
  constexpr uint64_t kCount = 4 * 16384;
  Put(2000, kCount, 4096);
  for (const Op op : {Op::kFlush, Op::kDrop}) {
    const uint64_t before = allocated_bytes;
    for (int i = 0; i < 200; ++i) Send(op, {});
    engine->Turn(now);
    EXPECT_LT(allocated_bytes - before, 200 * 1024 + kCount * 64) << "one list, and the requests";
    for (int i = 0; i < 4000; ++i) engine->Turn(now);
    EXPECT_TRUE(engine->idle());
  }
}

// What users are charged for is what their records take: at least that much, and not several times it.
TEST_F(Footprint, UsersAreChargedForWhatTheirRecordsTake) {
  const auto compare = [&](const char* what, const auto& add) {
    const uint64_t bytes = allocated_bytes;
    const uint64_t charged = engine->Snapshot().metadata.of_largest_user;
    add();
    const uint64_t taken = allocated_bytes - bytes;
    const uint64_t cost = engine->Snapshot().metadata.of_largest_user - charged;
    std::printf("%s: %llu bytes taken, %llu charged\n", what, static_cast<unsigned long long>(taken),
                static_cast<unsigned long long>(cost));
    EXPECT_LE(taken, cost + 256 * kKiB) << what << ": beyond the charge, tables grow in steps";
    EXPECT_LE(cost, 4 * taken) << what;
  };
  Put(1, 10'000, 4096);
  compare("tensors", [&] { Put(20'000, 50'000, 4096); });
  compare("keys", [&] {
    for (uint64_t i = 0; i < 20'000; ++i) {
      const std::string key = "model.layers." + std::to_string(i) + ".weight";
      engine->Submit(SessionId{2}, {.sequence = ++sequence, .op = Op::kIntern, .items = {}, .text = key});
      if (i % 100 == 0) Turn();
    }
    Turn();
  });
  compare("leases", [&] {
    for (uint64_t i = 0; i < 50; ++i) {
      const std::vector<RequestItem> items(1000, {1, 0, 0, 0});
      Send(Op::kAcquire, items);
      Turn();
    }
  });
  compare("requests that wait", [&] {
    const std::vector<RequestItem> items(4, {1, 0, 0, 0});
    for (uint64_t i = 0; i < 10'000; ++i) {
      Send(Op::kAcquire, {items.data(), 1}, proto::kFlagWrite);
      if (i % 100 == 0) Turn();
    }
    Turn();
  });
}

TEST_F(Footprint, TheParts) {
  EXPECT_EQ(sizeof(Piece), 64u);
  EXPECT_LE(sizeof(Tensor), 120u);
  EXPECT_EQ(sizeof(Lease), 48u);
}

}  // namespace
}  // namespace tier::tiering
