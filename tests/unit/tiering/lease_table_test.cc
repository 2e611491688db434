#include "daemon/tiering/tables/lease_table.h"

#include <gtest/gtest.h>

namespace tier::tiering {
namespace {

LeaseSlot Give(LeaseTable& leases, uint16_t session) {
  const LeaseSlot slot = leases.Allocate();
  leases.Edit(slot).session = session;
  leases.Edit(slot).kind = LeaseKind::kRead;
  return slot;
}

TEST(LeaseTable, FindsALeaseByItsId) {
  LeaseTable leases;
  const LeaseSlot slot = Give(leases, 3);
  EXPECT_EQ(leases.Find(leases.IdOf(slot), 3), slot);
  EXPECT_NE(leases.IdOf(slot), 0u);
}

TEST(LeaseTable, AnotherSessionDoesNotFindIt) {
  LeaseTable leases;
  const LeaseSlot slot = Give(leases, 3);
  EXPECT_EQ(leases.Find(leases.IdOf(slot), 4), kNoLease);
}

TEST(LeaseTable, AnEndedLeaseIsNotFoundEvenWhenItsSlotIsUsedAgain) {
  LeaseTable leases;
  const LeaseSlot slot = Give(leases, 3);
  const uint64_t id = leases.IdOf(slot);
  leases.Free(slot);
  EXPECT_EQ(leases.Find(id, 3), kNoLease);
  const LeaseSlot again = Give(leases, 3);
  EXPECT_EQ(again, slot) << "last freed, first used";
  EXPECT_EQ(leases.Find(id, 3), kNoLease);
  EXPECT_EQ(leases.Find(leases.IdOf(again), 3), again);
}

TEST(LeaseTable, ASlotWhoseSaltsAreUsedUpIsNotGivenOutAgain) {
  LeaseTable leases;
  const LeaseSlot slot = Give(leases, 3);
  const uint64_t first = leases.IdOf(slot);
  leases.Edit(slot).salt = UINT32_MAX;  // As after 2^32 leases.
  const uint64_t last = leases.IdOf(slot);
  leases.Free(slot);
  EXPECT_EQ(leases.used(), 0u);
  for (int lease = 0; lease < 3; ++lease) {
    const LeaseSlot next = Give(leases, 3);
    EXPECT_EQ(leases.Find(first, 3), kNoLease) << "a name of long ago must not end lease " << lease;
    EXPECT_EQ(leases.Find(last, 3), kNoLease);
    EXPECT_EQ(leases.Find(leases.IdOf(next), 3), next);
    leases.Free(next);
  }
  EXPECT_EQ(leases.used(), 0u);
}

TEST(LeaseTable, ForgedIdsFindNothing) {
  LeaseTable leases;
  const LeaseSlot slot = Give(leases, 3);
  const uint64_t id = leases.IdOf(slot);
  for (const uint64_t forged :
       {uint64_t{0}, id + 1, id ^ (uint64_t{1} << 40), UINT64_MAX, uint64_t{UINT32_MAX}, id >> 32}) {
    EXPECT_EQ(leases.Find(forged, 3), kNoLease) << forged;
  }
}

TEST(LeaseTable, CountsWhatIsHeld) {
  LeaseTable leases;
  const LeaseSlot a = Give(leases, 1);
  Give(leases, 1);
  EXPECT_EQ(leases.used(), 2u);
  leases.Free(a);
  EXPECT_EQ(leases.used(), 1u);
}

TEST(LeaseTableDeathTest, EndingALeaseTwiceIsABug) {
  LeaseTable leases;
  const LeaseSlot slot = Give(leases, 1);
  leases.Free(slot);
  EXPECT_DEATH(leases.Free(slot), "ended twice");
}

}  // namespace
}  // namespace tier::tiering
