// WaitTable: an event wakes those that wait at its place, and nobody else.
#include "daemon/tiering/tables/wait_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/tiering/tables/job_table.h"
#include "daemon/tiering/tables/metadata_budget.h"

namespace tier::tiering {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Waits : public testing::Test {
 protected:
  Waits() {
    table_.OpenQueue(job_);
    table_.OpenQueue(other_job_);
    tensor_ = AddTensor(4);
    other_ = AddTensor(1);
  }

  void TearDown() override { table_.CheckInvariants(); }

  TensorIndex AddTensor(uint32_t piece_count) {
    const TensorIndex index = tensors_.Allocate();
    Tensor& tensor = tensors_.Edit(index);
    tensor.job = job_.index;
    tensor.id = static_cast<uint64_t>(index) + 1;
    tensor.piece_count = piece_count;
    tensor.pieces = {.size = piece_count};
    for (uint32_t k = 0; k < piece_count; ++k) {
      const PieceId id = pieces_.Allocate();
      pieces_.Edit(id).tensor = index;
      pieces_.Edit(id).number = k;
      tensors_.SetPiece(index, k, id);
    }
    return index;
  }

  uint64_t Add(uint16_t session = 0) { return table_.Add({.session_index = session, .job = &job_}).number; }
  uint64_t AddAtPiece(TensorIndex tensor, uint32_t piece, uint16_t session = 0) {
    const uint64_t number = Add(session);
    table_.WaitAtPiece(number, tensor, piece);
    return number;
  }
  uint64_t AddForRoom(const WaitTable::RoomWait& wait) {
    const uint64_t number = Add();
    table_.WaitForRoom(number, wait);
    return number;
  }
  PieceId IdAt(TensorIndex tensor, uint32_t piece) const { return tensors_.PieceOf(tensor, piece); }
  const Piece& PieceAt(TensorIndex tensor, uint32_t piece) const { return pieces_[IdAt(tensor, piece)]; }
  // Those that are ready, first come first; they stay where they are.
  std::vector<uint64_t> Ready() {
    std::vector<uint64_t> ready;
    while (const uint64_t number = table_.NextReady(job_)) ready.push_back(number);
    return ready;
  }

  MetadataBudget budget_{kGiB};
  PieceSlab pieces_;
  TensorSlab tensors_;
  JobTable jobs_;
  JobState& job_{jobs_.Open(JobId{1}, {}, {.metadata = &budget_.Open(1)})};
  JobState& other_job_{jobs_.Open(JobId{2}, {}, {.metadata = &budget_.Open(1)})};
  WaitTable table_{pieces_, tensors_, WorkUnits{}.wake};
  TensorIndex tensor_ = kNoTensor;
  TensorIndex other_ = kNoTensor;
};

TEST_F(Waits, AChangeOfAPieceWakesThoseThatWaitThereInOrder) {
  const uint64_t first = AddAtPiece(tensor_, 1);
  AddAtPiece(tensor_, 2);
  AddAtPiece(other_, 0);
  const uint64_t second = AddAtPiece(tensor_, 1);
  EXPECT_THAT(Ready(), IsEmpty());
  table_.OnPieceChanged(IdAt(tensor_, 1));
  EXPECT_THAT(Ready(), ElementsAre(first, second));
}

TEST_F(Waits, AChangeOfATensorWakesThoseAtItsPiecesTooAndALeaseThatEndsDoesNot) {
  const uint64_t at_piece = AddAtPiece(tensor_, 3);
  const uint64_t at_tensor = Add();
  table_.WaitAtTensor(at_tensor, tensor_);
  AddAtPiece(other_, 0);
  table_.OnLeaseEnded(tensor_);
  EXPECT_THAT(Ready(), ElementsAre(at_tensor));
  table_.OnTensorChanged(tensor_);
  EXPECT_THAT(Ready(), ElementsAre(at_piece, at_tensor));
}

TEST_F(Waits, ReadsWakeWithTheLastOfThem) {
  const uint64_t number = Add();
  const std::vector<WaitTable::Place> reads = {{tensor_, 0}, {tensor_, 2}, {other_, 0}};
  table_.WaitForReads(number, reads);
  EXPECT_THAT(table_.ReadersAt(PieceAt(tensor_, 2)), ElementsAre(number));
  EXPECT_THAT(table_.ReadersAt(PieceAt(tensor_, 1)), IsEmpty());
  table_.OnPieceChanged(IdAt(tensor_, 2));
  table_.OnPieceChanged(IdAt(tensor_, 2));
  table_.OnPieceChanged(IdAt(other_, 0));
  EXPECT_THAT(Ready(), IsEmpty());
  table_.OnPieceChanged(IdAt(tensor_, 0));
  EXPECT_THAT(Ready(), ElementsAre(number));
}

TEST_F(Waits, AChangeOfATensorEndsTheWaitForItsReadsAtOnce) {
  const uint64_t number = Add();
  const std::vector<WaitTable::Place> reads = {{tensor_, 0}, {tensor_, 2}};
  table_.WaitForReads(number, reads);
  table_.OnTensorChanged(tensor_);
  EXPECT_THAT(Ready(), ElementsAre(number));
}

// The events of a turn make a bounded number of requests ready, however many wait at one place.
class FewWakes : public Waits {
 protected:
  static constexpr uint32_t kWakes = 3;
  FewWakes() { few_.OpenQueue(job_); }
  uint64_t AddTo(uint16_t session) { return few_.Add({.session_index = session, .job = &job_}).number; }
  std::vector<uint64_t> NewlyReady() {
    std::vector<JobState*> jobs;
    few_.TimeNew({}, std::chrono::seconds(1));
    few_.ListReadyJobs(&jobs);
    few_.CheckInvariants();
    std::vector<uint64_t> ready;
    while (const uint64_t number = few_.NextReady(job_)) ready.push_back(number);
    for (const uint64_t number : ready) {
      few_.Take(number);
      few_.Remove(number);
    }
    return ready;
  }
  WaitTable few_{pieces_, tensors_, kWakes};
};

TEST_F(FewWakes, ManyAtOnePieceBecomeReadyTurnByTurn) {
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 8; ++i) {
    numbers.push_back(AddTo(0));
    few_.WaitAtPiece(numbers.back(), tensor_, 1);
  }
  const uint64_t other = AddTo(0);
  few_.WaitAtPiece(other, other_, 0);
  few_.OnPieceChanged(IdAt(tensor_, 1));
  few_.OnPieceChanged(IdAt(other_, 0));
  EXPECT_THAT(NewlyReady(), ElementsAre(numbers[0], numbers[1], numbers[2]));
  EXPECT_EQ(few_.NextDeadline(), base::TimePoint{}) << "the next turn comes at once";
  EXPECT_THAT(NewlyReady(), ElementsAre(numbers[3], numbers[4], numbers[5]));
  EXPECT_THAT(NewlyReady(), ElementsAre(numbers[6], numbers[7], other)) << "in the order of the events";
  EXPECT_THAT(NewlyReady(), IsEmpty());
  EXPECT_THAT(NewlyReady(), IsEmpty());
  EXPECT_FALSE(few_.any_listed());
}

TEST_F(FewWakes, WhoWaitsAgainOrIsGoneMeanwhileIsNotWokenTwice) {
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 5; ++i) {
    numbers.push_back(AddTo(0));
    few_.WaitForWrite(numbers.back());
  }
  few_.OnWrite(job_);
  few_.Remove(numbers[1]);
  few_.Take(numbers[0]);
  few_.WaitAtPiece(numbers[0], tensor_, 2);
  EXPECT_THAT(NewlyReady(), ElementsAre(numbers[0], numbers[2])) << "a look for nothing is allowed";
  EXPECT_THAT(NewlyReady(), ElementsAre(numbers[3], numbers[4]));
  few_.OnPieceChanged(IdAt(tensor_, 2));
  EXPECT_THAT(NewlyReady(), IsEmpty());
  EXPECT_THAT(NewlyReady(), IsEmpty());
  EXPECT_FALSE(few_.any_listed());
}

TEST_F(FewWakes, AFreedTensorLeavesNobodyAtItsPlace) {
  std::vector<uint64_t> numbers;
  for (uint32_t i = 0; i < 6; ++i) {
    numbers.push_back(AddTo(0));
    const std::vector<WaitTable::Place> reads = {{tensor_, i % 4}, {other_, 0}};
    few_.WaitForReads(numbers.back(), reads);
  }
  few_.OnTensorChanged(tensor_);
  EXPECT_THAT(few_.ReadersAt(PieceAt(tensor_, 0)), IsEmpty()) << "its index may be another tensor's from now on";
  std::vector<uint64_t> ready = NewlyReady();
  std::ranges::copy(NewlyReady(), std::back_inserter(ready));
  EXPECT_THAT(ready, testing::UnorderedElementsAreArray(numbers));
  EXPECT_THAT(few_.ReadersAt(PieceAt(other_, 0)), IsEmpty());
}

TEST_F(Waits, RoomWakesTheFirstAndThoseThatMayPass) {
  const uint64_t first = AddForRoom({.lacking_pages = 7});
  AddForRoom({.lacking_pages = 1});
  const uint64_t passing = AddForRoom({.lacking_pages = 2, .may_pass = true});
  EXPECT_EQ(table_.shortage_pages(job_), 7u);
  table_.OnRoom(job_);
  EXPECT_THAT(Ready(), ElementsAre(first, passing));
  EXPECT_TRUE(table_.RoomTakenBefore(job_, passing)) << "the first keeps its place until it runs";
}

TEST_F(Waits, WhoMayPassIsWokenByRoomAgainOnceItWaitsAgain) {
  AddForRoom({.lacking_pages = 7});
  const uint64_t passing = AddForRoom({.lacking_pages = 2, .may_pass = true});
  for (int times = 0; times < 2; ++times) {
    table_.OnRoom(job_);
    table_.OnRoom(job_);
    EXPECT_TRUE(table_.ready(passing)) << times;
    table_.Take(passing);
    table_.WaitForRoom(passing, {.lacking_pages = 2, .may_pass = true});
    EXPECT_FALSE(table_.ready(passing)) << times;
  }
}

TEST_F(Waits, WhenTheFirstForRoomLeavesTheNextIsReady) {
  const uint64_t first = AddForRoom({.lacking_pages = 7});
  const uint64_t second = AddForRoom({.lacking_pages = 1});
  table_.Take(first);
  EXPECT_EQ(table_.shortage_pages(job_), 1u);
  EXPECT_THAT(Ready(), IsEmpty()) << "it may come back";
  table_.Remove(first);
  EXPECT_THAT(Ready(), ElementsAre(second));
}

TEST_F(Waits, WhoComesBackForRoomKeepsItsPlace) {
  const uint64_t first = AddForRoom({.lacking_pages = 7});
  const uint64_t second = AddForRoom({.lacking_pages = 1});
  table_.Take(first);
  table_.WaitForRoom(first, {.lacking_pages = 3});
  EXPECT_THAT(Ready(), IsEmpty());
  EXPECT_EQ(table_.shortage_pages(job_), 3u);
  EXPECT_TRUE(table_.RoomTakenBefore(job_, second));
  EXPECT_FALSE(table_.RoomTakenBefore(job_, first));
}

TEST_F(Waits, OnlyThoseThatTriedAndCameBeforeCloseTheRoom) {
  const auto at = [](int seconds) { return base::TimePoint{std::chrono::seconds(seconds)}; };
  AddForRoom({.lacking_pages = 7});
  const uint64_t second = AddForRoom({.lacking_pages = 7, .closes_at = at(9)});
  const uint64_t third = AddForRoom({.lacking_pages = 7, .closes_at = at(5)});
  EXPECT_FALSE(table_.RoomClosedBefore(job_, third + 1, at(4))) << "nobody's time is past";
  EXPECT_TRUE(table_.RoomClosedBefore(job_, third + 1, at(5)));
  EXPECT_FALSE(table_.RoomClosedBefore(job_, third, at(8))) << "it does not close the room to those before it";
  EXPECT_TRUE(table_.RoomClosedBefore(job_, third, at(9)));
  EXPECT_FALSE(table_.RoomClosedBefore(job_, second, at(9)));
  table_.Take(second);
  EXPECT_FALSE(table_.RoomClosedBefore(job_, third, at(9))) << "it waits for room no more";
  table_.WaitForRoom(second, {.lacking_pages = 7, .closes_at = at(9)});
  EXPECT_TRUE(table_.RoomClosedBefore(job_, third, at(9))) << "it came back";
}

TEST_F(Waits, AWriteWakesTheFlushesOfItsJobAlone) {
  const uint64_t number = Add();
  table_.WaitForWrite(number);
  table_.OnWrite(other_job_);
  EXPECT_THAT(Ready(), IsEmpty());
  table_.OnWrite(job_);
  EXPECT_THAT(Ready(), ElementsAre(number));
}

TEST_F(Waits, ASessionsFirstLeaseAndItsListingWakeItsOwn) {
  const uint64_t room = Add(1);
  table_.WaitForRoom(room, {.lacking_pages = 1, .leaseless = true});
  const uint64_t had_leases = Add(1);
  table_.WaitForRoom(had_leases, {.lacking_pages = 1, .may_pass = true});
  const uint64_t listing = Add(1);
  table_.WaitToList(listing);
  const uint64_t foreign = Add(2);
  table_.WaitToList(foreign);
  table_.OnFirstLease(1);
  EXPECT_THAT(Ready(), ElementsAre(room));
  table_.OnListed(1);
  EXPECT_THAT(Ready(), ElementsAre(room, listing));
  EXPECT_THAT(table_.ListSession(1), ElementsAre(room, had_leases, listing));
}

TEST_F(Waits, AGrantedLeaseWakesTheSessionsOwnRequestsThere) {
  AddAtPiece(tensor_, 1, 1);
  const uint64_t own = AddAtPiece(tensor_, 1, 2);
  AddAtPiece(tensor_, 2, 2);
  table_.OnLeaseGranted(PieceAt(tensor_, 1), 2);
  EXPECT_THAT(Ready(), ElementsAre(own));
}

TEST_F(Waits, WhoLeavesIsWokenByNothing) {
  const uint64_t number = AddAtPiece(tensor_, 1);
  table_.Remove(number);
  table_.OnPieceChanged(IdAt(tensor_, 1));
  table_.OnTensorChanged(tensor_);
  EXPECT_THAT(Ready(), IsEmpty());
  EXPECT_FALSE(PieceAt(tensor_, 1).has(kAwaited));
  EXPECT_EQ(table_.size(), 0u);
}

}  // namespace
}  // namespace tier::tiering
