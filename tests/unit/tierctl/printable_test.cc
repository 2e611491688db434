// What tenants chose to call things, on its way to a terminal.
#include "tools/tierctl/printable.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

TEST(Printable, LeavesWhatIsPlainlyVisible) {
  for (const char* text : {"", "train", "layers.0/weight:3@x-y_z", "größe", "重み", "a b", "e\u0301", "😀"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(Printable, ShowsControlCharactersByTheirNumber) {
  EXPECT_EQ(Printable("\033]0;title\a"), R"(\x1b]0;title\x07)");
  EXPECT_EQ(Printable("\033[2Jx\r\b\177\n\t"), R"(\x1b[2Jx\x0d\x08\x7f\x0a\x09)");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), R"(a\x00b)");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            R"(\xc2\x9b2J)")
      << "CSI in one character (C1)";
  EXPECT_EQ(Printable("\xc2\x85"), R"(\xc2\x85)") << "next line";
}

TEST(Printable, ShowsWhatTurnsOrHidesTextByItsNumber) {
  EXPECT_EQ(Printable("a\u202eb\u202c"), R"(a\u{202e}b\u{202c})");
  EXPECT_EQ(Printable("\u2066\u2069\u200e\u200f\u061c"), R"(\u{2066}\u{2069}\u{200e}\u{200f}\u{61c})");
  EXPECT_EQ(Printable("a\u200bb\ufeff\u2028\u00ad"), R"(a\u{200b}b\u{feff}\u{2028}\u{ad})");
  EXPECT_EQ(Printable("\U000e0041"), R"(\u{e0041})") << "a tag";
}

TEST(Printable, ShowsBytesThatAreNoUtf8ByTheirNumber) {
  EXPECT_EQ(Printable("\xff\xfe"), R"(\xff\xfe)");
  EXPECT_EQ(Printable("\xc3"), R"(\xc3)") << "cut off";
  EXPECT_EQ(Printable("\xc3(\xe2\x82"), R"(\xc3(\xe2\x82)");
  EXPECT_EQ(Printable("\xc0\x9b"), R"(\xc0\x9b)") << "longer than it needs to be";
  EXPECT_EQ(Printable("\xe0\x82\x9b"), R"(\xe0\x82\x9b)");
  EXPECT_EQ(Printable("\xed\xa0\x80"), R"(\xed\xa0\x80)") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), R"(\xf4\x90\x80\x80)") << "beyond the last character";
  EXPECT_EQ(Printable("\x9b"
                      "2J"),
            R"(\x9b2J)")
      << "a bare C1 byte";
}

TEST(Printable, ABackslashIsNoNumber) { EXPECT_EQ(Printable(R"(\x1b)"), R"(\\x1b)"); }

TEST(Printable, ATerminalWithoutUtf8GetsAsciiAlone) {
  EXPECT_EQ(Printable("gr\u00f6\u00dfe", Characters::kAscii), R"(gr\u{f6}\u{df}e)");
  EXPECT_EQ(Printable("\u06db", Characters::kAscii), R"(\u{6db})") << "its second byte is CSI to such a terminal";
  EXPECT_EQ(Printable("plain ~", Characters::kAscii), "plain ~");
}

TEST(Printable, NothingOfAnyByteReachesTheTerminalAsACommand) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const char bytes[] = {static_cast<char>(first), static_cast<char>(second)};
      for (const char c : Printable({bytes, 2}, Characters::kAscii)) {
        ASSERT_TRUE(c >= ' ' && c <= '~') << first << " " << second;
      }
    }
  }
}

TEST(DisplayWidth, CountsColumnsAndNotBytes) {
  EXPECT_EQ(DisplayWidth(""), 0u);
  EXPECT_EQ(DisplayWidth("train"), 5u);
  EXPECT_EQ(DisplayWidth("größe"), 5u);
  EXPECT_EQ(DisplayWidth("重み"), 4u) << "wide characters";
  EXPECT_EQ(DisplayWidth("e\u0301"), 1u) << "a mark above its letter";
}

TEST(CutToWidth, LeavesOutTheMiddleOrTheEnd) {
  EXPECT_EQ(CutToWidth("short", 5, "…"), "short");
  EXPECT_EQ(CutToWidth("a-long-name-of-a-job", 9, "…"), "a-lo…-job");
  EXPECT_EQ(CutToWidth("a-long-name-of-a-job", 10, "…"), "a-lon…-job");
  EXPECT_EQ(CutToWidth("a sentence", 6, "…", CutAt::kEnd), "a sen…");
  EXPECT_EQ(CutToWidth("a sentence", 6, "...", CutAt::kEnd), "a s...");
  EXPECT_EQ(CutToWidth("abc", 1, "…"), "a");
  EXPECT_EQ(CutToWidth("abc", 0, "…"), "");
}

TEST(CutToWidth, NeverCutsACharacterAndNeverTakesMoreThanItMay) {
  const std::string text = "重み-größe-重み-e\u0301-重み";
  for (size_t width = 0; width <= DisplayWidth(text); ++width) {
    for (const CutAt at : {CutAt::kMiddle, CutAt::kEnd}) {
      const std::string cut = CutToWidth(text, width, "…", at);
      EXPECT_LE(DisplayWidth(cut), width);
      EXPECT_EQ(Printable(cut), cut) << "whole characters";
    }
  }
}

}  // namespace
}  // namespace tier::tierctl
