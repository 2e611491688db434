#include "daemon/tiering/tables/lease_table.h"

#include <gtest/gtest.h>

namespace tier::tiering {
namespace {

LeaseIndex Give(LeaseTable& leases, uint16_t session) {
  const LeaseIndex index = leases.Allocate();
  leases.Edit(index).session = session;
  leases.Edit(index).kind = LeaseKind::kRead;
  return index;
}

TEST(LeaseTable, FindsALeaseByItsId) {
  LeaseTable leases;
  const LeaseIndex index = Give(leases, 3);
  EXPECT_EQ(leases.Find(leases.IdOf(index), 3), index);
  EXPECT_NE(leases.IdOf(index), 0u);
}

TEST(LeaseTable, AnotherSessionDoesNotFindIt) {
  LeaseTable leases;
  const LeaseIndex index = Give(leases, 3);
  EXPECT_EQ(leases.Find(leases.IdOf(index), 4), kNoLease);
}

TEST(LeaseTable, AnEndedLeaseIsNotFoundEvenWhenItsIndexIsUsedAgain) {
  LeaseTable leases;
  const LeaseIndex index = Give(leases, 3);
  const uint64_t id = leases.IdOf(index);
  leases.Free(index);
  EXPECT_EQ(leases.Find(id, 3), kNoLease);
  const LeaseIndex again = Give(leases, 3);
  EXPECT_EQ(again, index) << "last freed, first used";
  EXPECT_EQ(leases.Find(id, 3), kNoLease);
  EXPECT_EQ(leases.Find(leases.IdOf(again), 3), again);
}

TEST(LeaseTable, AnIndexWhoseSaltsAreUsedUpIsNotGivenOutAgain) {
  LeaseTable leases;
  const LeaseIndex index = Give(leases, 3);
  const uint64_t first = leases.IdOf(index);
  leases.Edit(index).salt = UINT32_MAX;  // As after 2^32 leases.
  const uint64_t last = leases.IdOf(index);
  leases.Free(index);
  EXPECT_EQ(leases.used(), 0u);
  for (int lease = 0; lease < 3; ++lease) {
    const LeaseIndex next = Give(leases, 3);
    EXPECT_EQ(leases.Find(first, 3), kNoLease) << "a name of long ago must not end lease " << lease;
    EXPECT_EQ(leases.Find(last, 3), kNoLease);
    EXPECT_EQ(leases.Find(leases.IdOf(next), 3), next);
    leases.Free(next);
  }
  EXPECT_EQ(leases.used(), 0u);
}

TEST(LeaseTable, ForgedIdsFindNothing) {
  LeaseTable leases;
  const LeaseIndex index = Give(leases, 3);
  const uint64_t id = leases.IdOf(index);
  for (const uint64_t forged :
       {uint64_t{0}, id + 1, id ^ (uint64_t{1} << 40), UINT64_MAX, uint64_t{UINT32_MAX}, id >> 32}) {
    EXPECT_EQ(leases.Find(forged, 3), kNoLease) << forged;
  }
}

TEST(LeaseTable, CountsWhatIsHeld) {
  LeaseTable leases;
  const LeaseIndex a = Give(leases, 1);
  Give(leases, 1);
  EXPECT_EQ(leases.used(), 2u);
  leases.Free(a);
  EXPECT_EQ(leases.used(), 1u);
}

TEST(LeaseTableDeathTest, EndingALeaseTwiceIsABug) {
  LeaseTable leases;
  const LeaseIndex index = Give(leases, 1);
  leases.Free(index);
  EXPECT_DEATH(leases.Free(index), "ended twice");
}

}  // namespace
}  // namespace tier::tiering
