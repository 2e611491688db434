// UpdateTable: what a session does to its own record costs the same however many sessions share the tensor.
#include "daemon/tiering/tables/update_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/tiering/tables/job_table.h"
#include "daemon/tiering/tables/metadata_budget.h"

namespace tier::tiering {
namespace {

class ManyRecords : public testing::Test {
 protected:
  static constexpr uint16_t kSharers = 256;
  static constexpr uint64_t kVisitsMax = 8;  // A chain of the index, beside the record itself.

  ManyRecords() : tensor_(tensors_.Allocate()) {
    Tensor& tensor = tensors_.Edit(tensor_);
    tensor.job = job_.index;
    tensor.id = 1;
    tensor.piece_count = 2;
    tensor.pieces = {.size = 2};
  }
  template <typename Work>
  uint64_t VisitsOf(Work work) {
    const uint64_t before = table_.visits();
    work();
    return table_.visits() - before;
  }
  void AddAll() {
    for (uint16_t session = 0; session < kSharers; ++session) {
      const uint64_t visits = VisitsOf([&] { table_.AddChanged(table_.Open(tensor_, session), {1, 1}); });
      most_ = std::max(most_, visits);
    }
  }

  MetadataBudget budget_{kGiB};
  TensorSlab tensors_;
  JobTable jobs_;
  JobState& job_{jobs_.Open(JobId{1}, {}, {.metadata = &budget_.Open(1)})};
  TensorIndex tensor_;
  UpdateTable table_{tensors_, jobs_, 77};
  uint64_t most_ = 0;  // Visits of one partial seal.
};

TEST_F(ManyRecords, APartialSealVisitsItsOwn) {
  AddAll();
  EXPECT_EQ(table_.CountOf(tensor_), kSharers);
  AddAll();
  EXPECT_EQ(table_.CountOf(tensor_), kSharers) << "each has one record";
  EXPECT_GT(most_, 0u) << "visits are counted";
  EXPECT_LE(most_, kVisitsMax);
  table_.CheckInvariants();
}

TEST_F(ManyRecords, ADeathAndATearVisitOne) {
  AddAll();
  table_.BeginEnding(100);
  uint32_t ending = 0;
  const uint64_t visits = VisitsOf([&] {
    table_.VisitEnding(tensor_, [&](UpdateIndex index) {
      ++ending;
      table_.Remove(index);
      return true;
    });
  });
  EXPECT_EQ(ending, 1u);
  EXPECT_LE(visits, kVisitsMax);
  EXPECT_LE(VisitsOf([&] {
              table_.AddTorn(tensor_, {0, 2});
              EXPECT_NE(table_.FindBroken(tensor_), kNoUpdate);
            }),
            kVisitsMax);
  table_.CheckInvariants();
}

TEST_F(ManyRecords, AnEndOfAllLeavesThemForLater) {
  AddAll();
  UpdateListIndex list = kNoUpdateList;
  EXPECT_EQ(VisitsOf([&] { list = table_.EndList(tensor_); }), 0u);
  EXPECT_FALSE(table_.HasAny(tensor_));
  EXPECT_EQ(table_.Find(tensor_, 5), kNoUpdate) << "none of them is found meanwhile";
  EXPECT_EQ(table_.used(), kSharers);
  table_.CheckInvariants();
  uint32_t rest = 0;
  while (table_.RemoveEnded(list)) ++rest;
  EXPECT_LE(rest, kSharers);
  EXPECT_EQ(table_.used(), 0u);
  table_.CheckInvariants();
}

}  // namespace
}  // namespace tier::tiering
