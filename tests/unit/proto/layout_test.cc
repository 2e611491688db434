// Layouts that other programs and other versions rely on: sizes, places and sums of what crosses processes.
#include <cstring>
#include <set>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include "proto/codes.h"
#include "proto/handshake.h"
#include "proto/message.h"
#include "proto/ring.h"
#include "proto/window_kind.h"

namespace tier::proto {
namespace {

template <typename... T>
constexpr bool kAllPlain = (... && (std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>));

TEST(Layout, EverythingThatCrossesIsPlainMemory) {
  EXPECT_TRUE((kAllPlain<PacketHeader, Hello, Welcome, WindowPacket, WindowReturnPacket, SessionEnd, Goodbye>));
  EXPECT_TRUE((kAllPlain<RequestEntry, CompletionEntry, SpanRecord, ErrorRecord, TensorRecord, SessionHeader>));
  EXPECT_TRUE((std::has_unique_object_representations_v<RequestEntry>));
  EXPECT_TRUE((std::has_unique_object_representations_v<PacketHeader>));
  EXPECT_TRUE((std::has_unique_object_representations_v<WindowPacket>));
  EXPECT_TRUE((std::has_unique_object_representations_v<WindowReturnPacket>));
}

TEST(Layout, HelloHasNoHiddenPadding) {
  EXPECT_EQ(offsetof(Hello, job) + kJobNameSize, offsetof(Hello, token));
  EXPECT_EQ(offsetof(Hello, token) + kTokenSize, offsetof(Hello, client));
  EXPECT_EQ(offsetof(Hello, client) + sizeof(Hello::client), offsetof(Hello, launch));
  EXPECT_EQ(offsetof(Hello, launch) + kLaunchSize, sizeof(Hello));
}

TEST(Layout, WelcomeHasNoHiddenPadding) {
  EXPECT_EQ(offsetof(Welcome, message), sizeof(PacketHeader) + 8);
  EXPECT_EQ(offsetof(Welcome, job_name) + kJobNameSize, offsetof(Welcome, token));
  EXPECT_EQ(offsetof(Welcome, daemon) + sizeof(Welcome::daemon), sizeof(Welcome));
}

// What a client of another language reads by hand (formats.md).
TEST(Layout, AWindowPacketSaysKindSizeAndPlace) {
  EXPECT_EQ(offsetof(WindowPacket, window), sizeof(PacketHeader));
  EXPECT_EQ(offsetof(WindowPacket, kind), 20u);
  EXPECT_EQ(offsetof(WindowPacket, page_size), 24u);
  EXPECT_EQ(offsetof(WindowPacket, place) + 8, sizeof(WindowPacket));
  EXPECT_EQ(static_cast<uint16_t>(WindowKind::kBlock), 0u);
  EXPECT_EQ(static_cast<uint16_t>(WindowKind::kSlot), 1u);
}

TEST(Layout, AReturnedWindowIsNamedByItsIndexAlone) {
  EXPECT_EQ(offsetof(WindowReturnPacket, window), sizeof(PacketHeader));
  EXPECT_EQ(offsetof(WindowReturnPacket, reserved0) + 4, sizeof(WindowReturnPacket));
}

TEST(Layout, TheAddressSpaceHoldsTheLargestArenaTwiceAndFitsAProcess) {
  EXPECT_EQ(kAddressSpaceMax, 2 * uint64_t{kWindowsMax} * kWindowSizeMax);
  EXPECT_LT(kAddressSpaceMax, uint64_t{1} << 47);
}

TEST(Layout, MagicsSpellWhatTheySay) {
  const auto spelled = [](uint64_t magic) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &magic, 8);
    return text;
  };
  EXPECT_EQ(spelled(kHandshakeMagic), "TERHELLO");
  EXPECT_EQ(spelled(kSessionMagic), "TIERSESS");
  EXPECT_EQ(spelled(kEngineMagic), "TIERENGE");
}

TEST(Layout, EntriesForRecordsHoldsThem) {
  for (uint32_t records = 0; records <= kSpansPerCompletionMax; ++records) {
    const uint32_t entries = EntriesForRecords(records);
    ASSERT_GE(entries * 2 - 1, records);
    ASSERT_TRUE(entries == 1 || (entries - 1) * 2 - 1 < records) << records;
  }
  EXPECT_EQ(EntriesForRecords(kItemsPerRequestMax), kRequestEntriesPerMessageMax);
  EXPECT_EQ(EntriesForRecords(kSpansPerCompletionMax), kCompletionEntriesPerMessageMax);
}

TEST(Layout, EntriesForTextBeginsInTheSecondEntry) {
  EXPECT_EQ(EntriesForText(0), 1u);
  EXPECT_EQ(EntriesForText(1), 2u);
  EXPECT_EQ(EntriesForText(kEntrySize), 2u);
  EXPECT_EQ(EntriesForText(kEntrySize + 1), 3u);
  EXPECT_LE(EntriesForText(kKeyLengthMax), kRequestEntriesPerMessageMax);
  EXPECT_LE(EntriesForText(kDetailLengthMax), kCompletionEntriesPerMessageMax);
}

TEST(Layout, LongestMessagesFitTheirRings) {
  EXPECT_LE(kRequestEntriesPerMessageMax, kRequestEntries);
  EXPECT_LE(kCompletionEntriesPerMessageMax, kCompletionEntries);
  EXPECT_EQ(kRequestEntries & (kRequestEntries - 1), 0u);
  EXPECT_EQ(kCompletionEntries & (kCompletionEntries - 1), 0u);
}

TEST(Layout, CursorsOfBothSidesLieOnDifferentCacheLines) {
  EXPECT_GE(offsetof(RingControl, head) - offsetof(RingControl, tail), 64u);
  EXPECT_GE(offsetof(RingControl, wake_sequence) - offsetof(RingControl, head), 64u);
}

TEST(Codes, EachHasItsOwnName) {
  std::set<std::string_view> names;
  for (uint16_t code = 0; code < kCodeCount; ++code) names.insert(CodeName(static_cast<Code>(code)));
  EXPECT_EQ(names.size(), kCodeCount);
  EXPECT_FALSE(names.contains("UNKNOWN"));
  EXPECT_EQ(CodeName(static_cast<Code>(kCodeCount)), "UNKNOWN");
}

}  // namespace
}  // namespace tier::proto
