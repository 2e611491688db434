#include "daemon/session/unread_windows.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace tier::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::TimePoint kStart{seconds(100)};

// A user alone may have 10 unread.
UnreadLimits SmallLimits() { return {.in_flight_max = 80}; }

TEST(UnreadWindows, LimitIsSharedByTheSessionsOfAUser) {
  UnreadWindows unread(SmallLimits());
  unread.Add(1, 1000, kStart);
  unread.Add(2, 1000, kStart);
  unread.OnSent(1, 4, kStart);
  EXPECT_TRUE(unread.HasRoom(1000, 6));
  EXPECT_FALSE(unread.HasRoom(1000, 7));
  unread.OnSent(2, 6, kStart);
  EXPECT_FALSE(unread.HasRoom(1000, 1));
  EXPECT_TRUE(unread.HasRoom(1001, 1)) << "another user";
  unread.OnCounted(1, 3, kStart);
  EXPECT_TRUE(unread.HasRoom(1000, 1)) << "one was read";
  unread.Remove(2);
  EXPECT_EQ(unread.unread_of(1000), 3u);
  unread.CheckInvariants();
}

TEST(UnreadWindows, EachFurtherUserMayTakeAnEighthOfWhatIsLeft) {
  UnreadWindows unread({.in_flight_max = 4096});
  for (uint32_t uid = 1; uid <= 16; ++uid) {
    const size_t left = 4096 - unread.total();
    unread.Add(uid, uid, kStart);
    ASSERT_TRUE(unread.HasRoom(uid, 3)) << uid;
    while (unread.HasRoom(uid, 1)) unread.OnSent(uid, 1, kStart);
    ASSERT_EQ(unread.unread_of(uid), left / 8);
  }
  EXPECT_LT(unread.total(), 4096u * 9 / 10);
  unread.CheckInvariants();
}

TEST(UnreadWindows, UserWithNothingUnreadIsAlwaysSentAPacket) {
  UnreadWindows unread({.in_flight_max = 8});
  unread.Add(1, 1000, kStart);
  EXPECT_TRUE(unread.HasRoom(1000, 3));
  unread.OnSent(1, 3, kStart);
  EXPECT_FALSE(unread.HasRoom(1000, 1));
}

TEST(UnreadWindows, SessionThatReadsIsNeverStalled) {
  UnreadWindows unread(SmallLimits());
  unread.Add(1, 1000, kStart);
  for (int i = 0; i < 10; ++i) unread.OnSent(1, 1, kStart);
  for (int i = 9; i > 0; --i) {
    const base::TimePoint now = kStart + (10 - i) * seconds(4);
    EXPECT_FALSE(unread.IsStalled(1, now));
    unread.OnCounted(1, static_cast<size_t>(i), now);
  }
  EXPECT_FALSE(unread.IsStalled(1, kStart + seconds(40)));
  EXPECT_TRUE(unread.IsStalled(1, kStart + seconds(41)));
  unread.OnCounted(1, 0, kStart + seconds(42));
  EXPECT_FALSE(unread.IsStalled(1, kStart + seconds(1000))) << "nothing is unread";
}

TEST(UnreadWindows, PatienceBeginsWithTheFirstUnreadPacket) {
  UnreadWindows unread(SmallLimits());
  unread.Add(1, 1000, kStart);
  unread.OnSent(1, 1, kStart + seconds(60));
  unread.OnSent(1, 1, kStart + seconds(64));
  EXPECT_FALSE(unread.IsStalled(1, kStart + seconds(64)));
  EXPECT_TRUE(unread.IsStalled(1, kStart + seconds(65)));
}

TEST(UnreadWindows, PacketsWithoutDescriptorsDoNotCountAsUnreadWindows) {
  UnreadWindows unread(SmallLimits());
  unread.Add(1, 1000, kStart);
  unread.OnSent(1, 1, kStart);
  unread.OnCounted(1, 5, kStart + seconds(1));
  EXPECT_EQ(unread.unread(1), 1u);
}

TEST(UnreadWindows, SessionWithTheMostUnreadOfAUserIsNamedOnceItIsStalled) {
  UnreadWindows unread(SmallLimits());
  for (uint64_t session = 1; session <= 4; ++session) unread.Add(session, 1000, kStart);
  unread.OnSent(1, 3, kStart);
  unread.OnSent(2, 6, kStart);
  EXPECT_FALSE(unread.StalledOfUser(1000, kStart + seconds(4)));
  unread.OnSent(4, 1, kStart + seconds(9));
  EXPECT_EQ(unread.StalledOfUser(1000, kStart + seconds(9)), 2u);
  EXPECT_FALSE(unread.StalledOfUser(1001, kStart + seconds(9)));
  unread.SetEnding(2);
  EXPECT_EQ(unread.StalledOfUser(1000, kStart + seconds(9)), 1u);
  unread.SetEnding(1);
  EXPECT_FALSE(unread.StalledOfUser(1000, kStart + seconds(9))) << "the others are ending, and 4 has just begun";
  EXPECT_EQ(unread.unread_of(1000), 10u) << "what sessions that end leave unread still counts";
}

TEST(UnreadWindows, SumsHoldThroughRandomHistories) {
  std::mt19937_64 random(7);
  UnreadWindows unread({.in_flight_max = 512});
  std::map<uint64_t, bool> here;
  base::TimePoint now = kStart;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t session = random() % 12;
    now = now + milliseconds(random() % 50);
    if (!here[session]) {
      unread.Add(session, static_cast<uint32_t>(session % 3), now);
      here[session] = true;
    } else if (random() % 10 == 0) {
      unread.Remove(session);
      here[session] = false;
    } else if (random() % 3 == 0) {
      unread.OnCounted(session, random() % 70, now);
    } else if (unread.HasRoom(static_cast<uint32_t>(session % 3), 1)) {
      unread.OnSent(session, 1, now);
    }
    ASSERT_LE(unread.unread_of(static_cast<uint32_t>(session % 3)), 64u);
    unread.CheckInvariants();
  }
}

}  // namespace
}  // namespace tier::session
