// What a turn puts into the index: little, however large the tensor, and enough to say all that the engine knows. The
// client writes no bytes and the devices keep none, so that tensors of thousands of pieces cost nothing but their
// books.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/index_codec.h"
#include "tests/support/tiering/null_ports.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using proto::RequestItem;

constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kRecordKeyBytes = 28;
constexpr uint64_t kHeadBytes = kRecordKeyBytes + sizeof(proto::IndexTensorRecord);
constexpr uint64_t kChunkBytes = kRecordKeyBytes + proto::kIndexChunkPieces * sizeof(proto::IndexPieceRecord);

class Bookkeeper {
 public:
  explicit Bookkeeper(uint32_t device_blocks) : windows_({.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}) {
    extents_.AddDevice(device_blocks);
    engine_ = std::make_unique<Engine>(EngineOptions{.deadline_default = std::chrono::milliseconds(1)},
                                       EnginePorts{windows_, extents_, transfers_, index, nullptr, sink_});
    TIER_CHECK(engine_->OpenJob(JobId{1}, {.key = "0/a"}).has_value(), "opening the job");
    OpenSession();
  }

  // Its tensors, and what it was in the middle of, go with a session; the next one is shown the shared ones.
  void OpenSession() {
    const SessionId next{++session_};
    TIER_CHECK(engine_->OpenSession(next, JobId{1}).has_value(), "opening session {}", session_);
    if (session_ > 2) engine_->EndSession(SessionId{session_ - 1}, "killed");
    sequence_ = 0;
  }

  // Without a turn.
  void Submit(Op op, const RequestItem& item, uint32_t flags = proto::kFlagShared) {
    if (op == Op::kRelease) flags &= ~proto::kFlagShared;
    engine_->Submit(SessionId{session_},
                    {.sequence = ++sequence_, .op = op, .flags = flags, .items = {&item, 1}, .text = {}});
  }
  Answer Ask(Op op, const RequestItem& item, uint32_t flags = proto::kFlagShared) {
    Submit(op, item, flags);
    for (int turn = 0; turn < 100'000; ++turn) {
      Turn();
      const auto found = sink_.answers.find({session_, sequence_});
      if (found != sink_.answers.end()) return found->second;
    }
    TIER_CHECK(false, "request {} was not answered", sequence_);
  }

  // By ranges, so that it may be larger than the arena. False: refused on the way.
  bool Put(uint64_t tensor, uint64_t size) {
    constexpr uint64_t kRange = 4 * kPiece;
    for (uint64_t at = 0; at < size; at += kRange) {
      const RequestItem range{tensor, at, std::min(kRange, size - at), at == 0 ? size : 0};
      const uint32_t flags = proto::kFlagShared | (at == 0 ? proto::kFlagReplace : proto::kFlagWrite);
      const Answer lease = Ask(at == 0 ? Op::kCreate : Op::kAcquire, range, flags);
      if (lease.code != Code::kOk) return false;
      Seal(lease);
    }
    return true;
  }
  Answer Open(uint64_t tensor, uint64_t piece) {
    return Ask(Op::kAcquire, {tensor, piece * kPiece, 1, 0}, proto::kFlagWrite | proto::kFlagShared);
  }
  void Seal(const Answer& lease, uint32_t flags = 0) { Ask(Op::kRelease, {0, 0, 0, World::LeaseOf(lease)}, flags); }

  void Turn() {
    engine_->Turn(now_);
    now_ = now_ + std::chrono::microseconds(10);
  }
  void Settle() {
    for (int turn = 0; turn < 200; ++turn) Turn();
    TIER_CHECK(engine_->idle(), "it never comes to rest");
  }
  void CheckInvariants() const { engine_->CheckInvariants(); }
  std::vector<TensorView> Tensors() const { return engine_->Tensors(JobId{1}, SIZE_MAX); }

  storage::testing::FakeIndex index;

 private:
  memory::testing::FakeWindowSource windows_;
  storage::ExtentStore extents_;
  InstantTransfers transfers_;
  RecordingSink sink_;
  std::unique_ptr<Engine> engine_;
  uint64_t session_ = 1;
  uint64_t sequence_ = 0;
  base::TimePoint now_{std::chrono::seconds(1)};
};

TEST(IndexJournal, AChangeOfOnePieceOfTenThousandPutsOneChunkOfThem) {
  constexpr uint64_t kPieces = 10'000;
  Bookkeeper books(kPieces + 100);
  ASSERT_TRUE(books.Put(1, kPieces * kPiece));
  ASSERT_EQ(books.Ask(Op::kFlush, {1, 0, 0, 0}).code, Code::kOk);
  books.Settle();
  ASSERT_EQ(books.index.used_bytes(), kHeadBytes + kPieces / proto::kIndexChunkPieces * kChunkBytes);
  uint64_t before = books.index.put_bytes();
  const auto put = [&] { return books.index.put_bytes() - std::exchange(before, books.index.put_bytes()); };

  for (const uint64_t piece : {0ul, 4711ul, kPieces - 1}) {
    // Its room may come from others of the tensor, which were used last before it and leave RAM: three chunks at most.
    const Answer read = books.Ask(Op::kAcquire, {1, piece * kPiece, 1, 0});
    ASSERT_EQ(read.code, Code::kOk);
    EXPECT_LE(put(), 3 * kChunkBytes);
    books.Seal(read);
    EXPECT_EQ(put(), 0u);
    const Answer lease = books.Open(1, piece);
    ASSERT_EQ(lease.code, Code::kOk);
    EXPECT_EQ(put(), kHeadBytes + kChunkBytes) << "the generation and the dirty mark";
    books.Seal(lease);
    EXPECT_EQ(put(), kChunkBytes);
    ASSERT_EQ(books.Ask(Op::kFlush, {1, 0, 0, 0}).code, Code::kOk);
    EXPECT_EQ(put(), kChunkBytes);
    ASSERT_EQ(books.Ask(Op::kTear, {1, piece * kPiece, 1, 0}).code, Code::kOk);
    EXPECT_EQ(put(), kHeadBytes + kChunkBytes) << "TORN";
    ASSERT_EQ(books.Ask(Op::kAccept, {1, 0, 0, 0}).code, Code::kOk);
    EXPECT_EQ(put(), kHeadBytes + kChunkBytes);
  }
  books.Settle();
  books.CheckInvariants();
}

TEST(IndexJournal, OneCommitHoldsAllThatChangesOfATensor) {
  Bookkeeper books(200);
  ASSERT_TRUE(books.Put(1, 40 * kPiece));
  books.Settle();
  const uint64_t commits = books.index.commit_count();
  ASSERT_EQ(books.Ask(Op::kFree, {1, 0, 0, 0}).code, Code::kOk);
  EXPECT_EQ(books.index.commit_count(), commits + 1);
  EXPECT_TRUE(books.index.committed().empty()) << "head and chunks";
}

// What a full index leaves of a tensor that was replaced is nothing, not half of it under another's head.
TEST(IndexJournal, AReplacedTensorIsGoneWholeThoughTheIndexIsFull) {
  Bookkeeper books(200);
  ASSERT_TRUE(books.Put(1, 40 * kPiece));
  books.Settle();
  books.index.SetCapacity(1);
  books.Submit(Op::kFree, {1, 0, 0, 0});
  const Answer refused = books.Ask(Op::kCreate, {1, 0, 0, 20 * kPiece}, proto::kFlagShared | proto::kFlagNoWait);
  EXPECT_NE(refused.code, Code::kOk);
  books.CheckInvariants();
  const auto read = ReadIndex(books.index);
  ASSERT_TRUE(read) << read.error().message;
  books.index.SetCapacity(0);
  books.Settle();
  books.CheckInvariants();
}

// One small request each, among four tensors of up to 40 pieces.
using Command = std::tuple<uint8_t, uint8_t, uint8_t>;

void Run(Bookkeeper& books, const Command& command) {
  const auto [kind, name, argument] = command;
  const RequestItem whole{1 + name % 4u, 0, 0, 0};
  switch (kind % 12) {
    case 0:
    case 1: books.Put(whole.tensor, argument % 40 * kPiece + argument * 100u + 1); return;
    case 2:
    case 3:
    case 4: {
      const Answer lease = books.Open(whole.tensor, argument % 40);
      if (lease.code == Code::kOk) books.Seal(lease, argument % 8 == 0 ? proto::kFlagAbandon : 0);
      return;
    }
    case 5: books.Ask(Op::kDrop, whole); return;
    case 6: books.Ask(Op::kFlush, whole); return;
    case 7: books.Ask(Op::kFree, whole); return;
    case 8: books.Ask(Op::kTear, {whole.tensor, argument % 40 * kPiece, 1, 0}); return;
    case 9: books.Ask(Op::kAccept, whole); return;
    case 10: books.index.SetCapacity(argument % 2 == 0 ? 0 : books.index.used_bytes() + argument); return;
    default: books.OpenSession();
  }
}

RC_GTEST_PROP(IndexJournalProperty, RandomProgramsReadBackAsTheLiveTable, (const std::vector<Command>& program)) {
  Bookkeeper books(400);
  for (const Command& command : program) {
    Run(books, command);
    books.CheckInvariants();  // Whatever is committed reads back; as the live table, where nothing waits.
  }
  books.index.SetCapacity(0);
  books.Settle();
  books.CheckInvariants();
  const auto read = ReadIndex(books.index);
  RC_ASSERT(read.has_value());
  std::vector<TensorView> live = books.Tensors();
  std::ranges::sort(live, {}, &TensorView::tensor);
  RC_ASSERT(live.size() == read->size());
  for (size_t i = 0; i < live.size(); ++i) {
    const proto::IndexTensorRecord& head = (*read)[i].head;
    RC_ASSERT((*read)[i].key == (storage::TensorKey{1, live[i].space, live[i].tensor}));
    RC_ASSERT(head.size == live[i].size && head.generation == live[i].generation);
    RC_ASSERT(head.piece_count == live[i].piece_count && (*read)[i].pieces.size() == live[i].piece_count);
    RC_ASSERT(((head.flags & proto::kIndexTensorVisible) != 0) == live[i].sealed);
    RC_ASSERT(((head.flags & proto::kIndexTensorTorn) != 0) == live[i].torn);
  }
}

}  // namespace
}  // namespace tier::tiering::testing
