// What the engine costs: no allocation in steady state, and few bytes a tensor. This binary counts every operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>

#include "daemon/base/block_pool.h"
#include "daemon/base/workers.h"
#include "daemon/memory/arena.h"
#include "daemon/tiering/engine.h"
#include "daemon/tiering/tables/job_windows.h"
#include "daemon/tiering/tables/lease_table.h"
#include "daemon/tiering/tables/waiter.h"
#include "daemon/tiering/tables/window_ledger.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/null_ports.h"
#include "tests/support/tiering/sanitizer_divisor.h"

namespace {

uint64_t allocation_count = 0;
uint64_t large_allocation_count = 0;  // Of those, such as chunks of the large tables are.
uint64_t allocated_bytes = 0;         // Asked for and not given back.

void Count(size_t size) {
  ++allocation_count;
  if (size >= 128 * 1024) ++large_allocation_count;
  allocated_bytes += size;
}

void* Allocate(size_t size) {
  Count(size);
  // The size stands before the bytes, so that what is given back can be counted.
  auto* block = static_cast<size_t*>(std::malloc(size + 16));
  if (block == nullptr) throw std::bad_alloc();
  *block = size;
  return block + 2;
}

void* Allocate(size_t size, size_t alignment) {
  Count(size);
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  auto* block = static_cast<std::byte*>(std::aligned_alloc(alignment, alignment + rounded));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<size_t*>(block) = size;
  return block + alignment;
}

void Free(void* bytes) {
  if (bytes == nullptr) return;
  auto* block = static_cast<size_t*>(bytes) - 2;
  allocated_bytes -= *block;
  std::free(block);
}

void Free(void* bytes, size_t alignment) {
  if (bytes == nullptr) return;
  auto* block = static_cast<std::byte*>(bytes) - alignment;
  allocated_bytes -= *reinterpret_cast<size_t*>(block);
  std::free(block);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* bytes) noexcept { Free(bytes); }
void operator delete[](void* bytes) noexcept { Free(bytes); }
void operator delete(void* bytes, size_t) noexcept { Free(bytes); }
void operator delete[](void* bytes, size_t) noexcept { Free(bytes); }
void* operator new(size_t size, std::align_val_t alignment) { return Allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void* bytes, std::align_val_t alignment) noexcept { Free(bytes, static_cast<size_t>(alignment)); }
void operator delete(void* bytes, size_t, std::align_val_t alignment) noexcept {
  Free(bytes, static_cast<size_t>(alignment));
}

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
    OpenOver(windows, extents);
  }
  // Another engine, with its job and session.
  void OpenOver(memory::testing::FakeWindowSource& source, storage::ExtentStore& store) {
    engine = std::make_unique<Engine>(EngineOptions{}, EnginePorts{source, store, transfers, nullptr, sink});
    ASSERT_TRUE(engine->OpenJob(JobId{1}, {.key = "0/a"}).has_value());
    ASSERT_TRUE(engine->OpenSession(SessionId{2}, JobId{1}).has_value());
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
    // One of more than a turn ends waits, and its record is allocated.
    const auto granted = std::span(sink.leases).first(sink.count);
    for (size_t first = 0; first < granted.size(); first += kItemsPerTurnMax) {
      Send(Op::kRelease, granted.subspan(first, std::min<size_t>(kItemsPerTurnMax, granted.size() - first)));
      Turn();
    }
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

// Of 2 million tensors (fewer under a sanitizer) nothing is left but what an engine with a few tensors holds, some
// seconds after they were freed; and no turn does more work for that than its units.
TEST_F(Footprint, WhatFreedTensorsTookGoesBackToTheSystem) {
  constexpr uint64_t kCount = 2'000'000 / testing::kSanitizerDivisor;
  constexpr uint64_t kBatch = 500;
  memory::testing::FakeWindowSource large(
      {.window_size = 64 * kMiB, .arena_max_bytes = 16 * kGiB, .windows_max = 256, .without_memory = true});
  storage::ExtentStore none;
  OpenOver(large, none);
  std::vector<RequestItem> names;
  const auto free = [&](uint64_t first, uint64_t count) {
    for (uint64_t done = 0; done < count; done += kBatch) {
      names.clear();
      for (uint64_t i = 0; i < kBatch; ++i) names.push_back({first + done + i, 0, 0, 0});
      Send(Op::kFree, names);
      Wait();
    }
  };
  const auto settle = [&] {
    for (int i = 0; i < 10'000 && engine->NextDeadline(); ++i) engine->Turn(now = *engine->NextDeadline());
    EXPECT_FALSE(engine->NextDeadline().has_value());
  };
  Put(1, kBatch, 4096);
  settle();
  const uint64_t few = engine->Snapshot().metadata.held;
  const uint64_t few_allocated = allocated_bytes;
  Put(1000, kCount, 4096);
  settle();
  const uint64_t many = engine->Snapshot().metadata.held;
  EXPECT_GE(many, engine->Snapshot().metadata.of_largest_user / 2);
  EXPECT_GT(many, kCount * 170);
  free(1000, kCount);
  const base::TimePoint freed = now;
  settle();
  const uint64_t after = engine->Snapshot().metadata.held;
  std::printf("held: %llu KiB with few tensors, %llu with many, %llu after; %.1f s, %llu units a turn\n",
              static_cast<unsigned long long>(few / kKiB), static_cast<unsigned long long>(many / kKiB),
              static_cast<unsigned long long>(after / kKiB), std::chrono::duration<double>(now - freed).count(),
              static_cast<unsigned long long>(engine->Snapshot().turn_work_max));
  EXPECT_LT(after, 2 * few) << "an empty chunk of each table is kept, and some bytes for each chunk that was";
  EXPECT_LT(allocated_bytes, few_allocated + 2 * kMiB) << "with what the pool has for each window";
  EXPECT_LE(engine->Snapshot().turn_work_max, WorkUnits{}.all());
  EXPECT_LT(now - freed, std::chrono::seconds(30));
  engine->CheckInvariants();
  Put(1000, 5000, 4096);
  free(1000, 5000);
  free(1, kBatch);
}

// Tensors that are freed and created again, step by step, take no memory from the system.
TEST_F(Footprint, StepsThatCreateAndFreeTheSameTakeChunksRarely) {
  std::vector<RequestItem> names;
  const auto step = [&] {
    Put(1, 5120, 4096);
    for (uint64_t first = 1; first <= 5120; first += 512) {
      names.clear();
      for (uint64_t i = 0; i < 512; ++i) names.push_back({first + i, 0, 0, 0});
      Send(Op::kFree, names);
      Wait();
    }
  };
  for (int i = 0; i < 5; ++i) step();
  const uint64_t before = large_allocation_count;
  const base::TimePoint began = now;
  for (uint32_t i = 0; i < 500 / testing::kSanitizerDivisor; ++i) step();
  const auto intervals = static_cast<uint64_t>((now - began) / std::chrono::milliseconds(10)) + 1;
  std::printf("%llu chunks in %llu intervals\n", static_cast<unsigned long long>(large_allocation_count - before),
              static_cast<unsigned long long>(intervals));
  EXPECT_LE(large_allocation_count - before, intervals) << "a chunk goes once in an interval";
}

// Records of tensors and pieces, and the tables that find them, where these have just become larger. What the process
// takes for a tensor is more, with its slots in RAM and on SSD: docs/benchmarks.md has that.
TEST_F(Footprint, PiecesAndTensorsTakeAtMostTwoHundredBytesForATensorOfOnePiece) {
  memory::testing::FakeWindowSource large(
      {.window_size = 64 * kMiB, .arena_max_bytes = 16 * kGiB, .windows_max = 256, .without_memory = true});
  storage::ExtentStore none;
  OpenOver(large, none);
  constexpr uint64_t kFew = 512;
  Put(1, kFew, 4096);  // The tables are there.
  const uint64_t held_few = engine->Snapshot().metadata.held;
  uint64_t made = kFew;
  for (const uint64_t count : {100'000, 200'000, 400'000, 800'000}) {
    Put(1 + made, count - made, 4096);
    made = count;
    // Until the table has moved to its new size.
    for (int i = 0; i < 10'000 && engine->NextDeadline(); ++i) engine->Turn(now = *engine->NextDeadline());
    const uint64_t held = engine->Snapshot().metadata.held - held_few;
    std::printf("%llu tensors of one piece: %.1f bytes each\n", static_cast<unsigned long long>(count),
                static_cast<double>(held) / static_cast<double>(count - kFew));
    EXPECT_LE(held, 200 * (count - kFew));
  }
}

struct AllocatorCase {
  uint64_t arena = 0;
  uint32_t owners = 0;
  uint32_t slots_per_block = 0;  // 0: whole blocks.
  uint32_t freed_per_block = 0;  // Of these, afterwards.
};

// Free maps and slot maps of all owners, and the tables of windows of the engine, of its jobs and of the arena, with
// their places, in 8,192 windows that go round among the owners. So
// what lies between two windows of an owner is of 63 others: a map that had bytes for that would take many. An arena of
// 64 GiB has windows of four blocks, which share what each window takes: beyond 64 bytes a block. The bounds are
// nearest with one slot a block, and with 9 where there were 10: such a block keeps the maps of one with many
// (base::SlotPages).
constexpr AllocatorCase kAllocatorCases[] = {
    {512 * kGiB, 1, 0},      {512 * kGiB, 1, 1},   {512 * kGiB, 1, 2},     {512 * kGiB, 1, 7},  {512 * kGiB, 1, 10, 1},
    {8192 * kGiB, 64, 0},    {512 * kGiB, 64, 0},  {512 * kGiB, 64, 1},    {512 * kGiB, 64, 2}, {512 * kGiB, 64, 7},
    {512 * kGiB, 64, 10, 1}, {512 * kGiB, 64, 64}, {64 * kGiB, 1, 0},      {64 * kGiB, 1, 1},   {64 * kGiB, 1, 10, 1},
    {64 * kGiB, 64, 0},      {64 * kGiB, 64, 1},   {64 * kGiB, 64, 2},     {64 * kGiB, 64, 7},  {64 * kGiB, 64, 8},
    {64 * kGiB, 64, 9},      {64 * kGiB, 64, 10},  {64 * kGiB, 64, 10, 1}, {64 * kGiB, 64, 64}};

// Fills a pool with slots, so many a block, and frees some of them; how many are left.
uint64_t FillWithSlots(const AllocatorCase& each, base::BlockPool* pool) {
  if (each.slots_per_block == 0) return 0;
  const uint32_t pages = each.slots_per_block == 1 ? 300 : kPagesPerBlock / each.slots_per_block;
  std::vector<base::PageRun> slots;
  while (const base::PageRun slot = pool->TryAllocateRun(pages)) slots.push_back(slot);
  return slots.size() - static_cast<uint64_t>(std::ranges::count_if(slots, [&](const base::PageRun& slot) {
           if (slot.page / pages >= each.freed_per_block) return false;
           pool->Free(slot);
           return true;
         }));
}

TEST_F(Footprint, FreeMapsSlotMapsAndWindowsTakeFewBytesABlock) {
  constexpr uint32_t kWindows = 8192;
  constexpr uint32_t kFewBlocks = 4;  // In a window: they share what it takes, some 230 bytes and 60 in its job's pool.
  for (const AllocatorCase& each : kAllocatorCases) {
    const memory::testing::FakeWindowSource source({.window_size = each.arena / kWindows,
                                                    .window_size_min = kBlockSize,
                                                    .arena_max_bytes = each.arena,
                                                    .windows_max = kWindows,
                                                    .without_memory = true});
    const auto blocks = static_cast<uint32_t>(each.arena / kBlockSize);
    const std::unique_ptr<base::Workers> workers = base::Workers::Start(1, "test").value();
    const uint64_t before = allocated_bytes;
    const memory::Arena arena({.sizes = {.max_bytes = each.arena,
                                         .window_size_min = each.arena / kWindows,
                                         .window_size_max = std::min(each.arena / 2048, kGiB),
                                         .windows_aimed = kWindows,
                                         .windows_max = kWindows}},
                              workers.get());
    const WindowLedger ledger(source);
    std::vector<base::BlockPool> pools(each.owners);
    std::vector<JobWindows> jobs(each.owners);
    const uint32_t blocks_per_window = blocks / kWindows;
    for (uint32_t i = 0; i < kWindows; ++i) {
      pools[i % each.owners].AddRegion(i * blocks_per_window, blocks_per_window, base::RegionUse::kSlotsFirst);
      jobs[i % each.owners].Add(WindowIndex{i});
    }
    uint64_t slots = 0;
    uint64_t slot_blocks = 0;
    for (base::BlockPool& pool : pools) {
      slots += FillWithSlots(each, &pool);
      slot_blocks += pool.slot_block_count();
    }
    const uint64_t taken = allocated_bytes - before;
    const uint64_t of_block = blocks_per_window > kFewBlocks ? 64 : 96;
    std::printf("%llu GiB of %u owners, %u slots a block, %u freed: %.1f bytes a block\n",
                static_cast<unsigned long long>(each.arena / kGiB), each.owners, each.slots_per_block,
                each.freed_per_block, static_cast<double>(taken) / blocks);
    EXPECT_LE(taken, of_block * blocks + 64 * slot_blocks + 16 * slots);
  }
}

TEST_F(Footprint, TheParts) {
  EXPECT_EQ(sizeof(Piece), 64u);
  EXPECT_EQ(sizeof(Tensor), 104u);
  EXPECT_EQ(sizeof(Lease), 48u);
}

}  // namespace
}  // namespace tier::tiering
