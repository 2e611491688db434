#include "daemon/session/unread_windows.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace tier::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::TimePoint kStart{seconds(100)};

UnreadLimits SmallLimits() { return {.of_one_uid_max = 10}; }

TEST(UnreadWindows, LimitIsSharedByTheSessionsOfAUser) {
  UnreadWindows unread(SmallLimits());
  unread.Add(1, 1000, kStart);
  unread.Add(2, 1000, kStart);
  unread.Add(3, 1001, kStart);
  for (int i = 0; i < 4; ++i) unread.OnSent(1, kStart);
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(unread.HasRoom(2));
    unread.OnSent(2, kStart);
  }
  EXPECT_FALSE(unread.HasRoom(1));
  EXPECT_FALSE(unread.HasRoom(2));
  EXPECT_TRUE(unread.HasRoom(3)) << "another user";
  unread.OnCounted(1, 3, kStart);
  EXPECT_TRUE(unread.HasRoom(2)) << "one was read";
  unread.Remove(2);
  EXPECT_EQ(unread.unread_of(1000), 3u);
  unread.CheckInvariants();
}

TEST(UnreadWindows, SessionThatReadsIsNeverStalled) {
  UnreadWindows unread(SmallLimits());
  unread.Add(1, 1000, kStart);
  for (int i = 0; i < 10; ++i) unread.OnSent(1, kStart);
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
  unread.OnSent(1, kStart + seconds(60));
  unread.OnSent(1, kStart + seconds(64));
  EXPECT_FALSE(unread.IsStalled(1, kStart + seconds(64)));
  EXPECT_TRUE(unread.IsStalled(1, kStart + seconds(65)));
}

TEST(UnreadWindows, PacketsWithoutDescriptorsDoNotCountAsUnreadWindows) {
  UnreadWindows unread(SmallLimits());
  unread.Add(1, 1000, kStart);
  unread.OnSent(1, kStart);
  unread.OnCounted(1, 5, kStart + seconds(1));
  EXPECT_EQ(unread.unread(1), 1u);
}

TEST(UnreadWindows, WhoHasTheMostUnreadOfAFullUserGoesOnceItIsStalled) {
  UnreadWindows unread(SmallLimits());
  for (uint64_t session = 1; session <= 4; ++session) unread.Add(session, 1000, kStart);
  for (int i = 0; i < 3; ++i) unread.OnSent(1, kStart);
  for (int i = 0; i < 6; ++i) unread.OnSent(2, kStart);
  EXPECT_FALSE(unread.StalledOfUser(1000, kStart + seconds(9))) << "there is room";
  unread.OnSent(4, kStart + seconds(9));
  EXPECT_EQ(unread.StalledOfUser(1000, kStart + seconds(9)), 2u);
  unread.SetEnding(2);
  EXPECT_EQ(unread.StalledOfUser(1000, kStart + seconds(9)), 1u);
  unread.SetEnding(1);
  EXPECT_FALSE(unread.StalledOfUser(1000, kStart + seconds(9))) << "the others are ending, and 4 has just begun";
}

TEST(UnreadWindows, ShortageEndsTheMostUnreadOfAllSooner) {
  UnreadWindows unread({.of_one_uid_max = 100});
  unread.Add(1, 1000, kStart);
  unread.Add(2, 1001, kStart);
  unread.OnSent(1, kStart);
  for (int i = 0; i < 2; ++i) unread.OnSent(2, kStart);
  EXPECT_FALSE(unread.StalledInShortage(kStart + milliseconds(999)));
  EXPECT_EQ(unread.StalledInShortage(kStart + seconds(1)), 2u);
  unread.OnCounted(2, 0, kStart + seconds(1));
  EXPECT_EQ(unread.StalledInShortage(kStart + seconds(1)), 1u);
}

TEST(UnreadWindows, SumsHoldThroughRandomHistories) {
  std::mt19937_64 random(7);
  UnreadWindows unread({.of_one_uid_max = 64});
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
    } else if (unread.HasRoom(session)) {
      unread.OnSent(session, now);
    }
    ASSERT_LE(unread.unread_of(static_cast<uint32_t>(session % 3)), 64u);
    unread.CheckInvariants();
  }
}

}  // namespace
}  // namespace tier::session
