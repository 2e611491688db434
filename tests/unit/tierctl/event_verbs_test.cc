// An event as a line for people.
#include "tools/tierctl/event_verbs.h"

#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

v1::Event MakeEvent(const std::string& kind, const std::string& message) {
  v1::Event event;
  event.set_sequence(17);
  event.mutable_event_time()->set_seconds(1'763'985'601);
  event.mutable_event_time()->set_nanos(250'000'000);
  event.set_kind(kind);
  event.set_message(message);
  return event;
}

class EventTextTest : public ::testing::Test {
 protected:
  EventTextTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

TEST_F(EventTextTest, SaysWhenAndWhat) {
  EXPECT_EQ(EventText(MakeEvent("job_opened", "job 'train' of uid 1000 opened"), {}),
            "2025-11-24 12:00:01  job_opened        job 'train' of uid 1000 opened");
}

TEST_F(EventTextTest, TellsJobsOfOneNameApart) {
  v1::Event event = MakeEvent("torn", "job 'train' has 1 torn tensor");
  event.set_job("train");
  event.set_uid(1001);
  EXPECT_EQ(EventText(event, {}), "2025-11-24 12:00:01  torn              1001/train: job 'train' has 1 torn tensor");
  event.set_uid(0);
  EXPECT_EQ(EventText(event, {}), "2025-11-24 12:00:01  torn              0/train: job 'train' has 1 torn tensor");
  event.set_uid(4026531840);
  event.set_owner("pod-a");
  EXPECT_EQ(EventText(event, {}), "2025-11-24 12:00:01  torn              pod-a/train: job 'train' has 1 torn tensor");
}

TEST_F(EventTextTest, TheNumberForSinceStandsBelowTheRecentOnes) {
  EXPECT_EQ(SinceText(1764223200000017, {}), "what comes behind these: tierctl events --since 1764223200000017\n");
  EXPECT_EQ(SinceText(0, {}), "");
}

TEST_F(EventTextTest, ThatThereIsNoneIsSaidWithSinceWhen) {
  EXPECT_EQ(NoneText({}, 1'763'985'601), "no event that you may see since tierd started at 2025-11-24 12:00:01");
  EXPECT_EQ(NoneText({}, std::nullopt), "no event that you may see yet");
  EXPECT_EQ(NoneText({.sequence = 17}, std::nullopt), "no event behind 17");
  EXPECT_EQ(NoneText({.ago = std::chrono::seconds(5)}, std::nullopt), "no event that you may see in that time");
}

TEST_F(EventTextTest, GoesOnBelowItselfOnATerminal) {
  EXPECT_EQ(EventText(MakeEvent("drain", "the daemon is being drained and takes no new work"), {.width = 70}),
            "2025-11-24 12:00:01  drain             the daemon is being drained and\n"
            "                                       takes no new work");
}

TEST_F(EventTextTest, StandsBelowItsTimeOnANarrowTerminal) {
  v1::Event event = MakeEvent("session_attached", "session 1 of uid 0 attached to job 'train' (rank -1)");
  event.set_job("train");
  event.set_uid(0);
  for (const size_t width : {size_t{40}, size_t{60}}) {
    EXPECT_EQ(EventText(event, {.width = width}).substr(0, 39), "2025-11-24 12:00:01 session_attached\n  ") << width;
  }
  EXPECT_EQ(EventText(event, {.width = 40}),
            "2025-11-24 12:00:01 session_attached\n"
            "  0/train: session 1 of uid 0 attached\n"
            "  to job 'train' (rank -1)");
  EXPECT_EQ(EventText(event, {.width = 80}),
            "2025-11-24 12:00:01  session_attached  0/train: session 1 of uid 0 attached to\n"
            "                                       job 'train' (rank -1)");
}

TEST_F(EventTextTest, SteersNoTerminal) {
  const std::string text = EventText(MakeEvent("x\033[2J", "job '\u202e' ended:\n\033]0;t\a"), {});
  EXPECT_EQ(text, R"(2025-11-24 12:00:01  x\x1b[2J          job '\u{202e}' ended:\x0a\x1b]0;t\x07)");
}

TEST(ParseSince, TakesTheNumberOfAnEventOrATime) {
  EXPECT_EQ(ParseSince("0")->sequence, 0u);
  EXPECT_EQ(ParseSince("18446744073709551615")->sequence, UINT64_MAX);
  EXPECT_EQ(ParseSince("60")->ago, std::nullopt) << "a number alone is that of an event";
  EXPECT_EQ(ParseSince("10min")->ago, std::chrono::minutes(10));
  EXPECT_EQ(ParseSince("1h")->ago, std::chrono::hours(1));
  for (const char* text :
       {"", "-1", "+1", " 1", "1 ", "0x10", "1e3", "18446744073709551616", "1.5", "x", "0s", "5ms", "90000h", "-1h"}) {
    EXPECT_FALSE(ParseSince(text)) << text;
    EXPECT_NE(SinceMistake(text), "");
  }
  EXPECT_EQ(SinceMistake("10min"), "");
}

}  // namespace
}  // namespace tier::tierctl
