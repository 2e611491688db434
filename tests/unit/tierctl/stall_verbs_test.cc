// Stalls on the command line: how an answer is shown.
#include "tools/tierctl/stall_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Stall* Add(v1::ListStallsResponse* answer, const char* key, int64_t milliseconds) {
  v1::Stall* stall = answer->add_stalls();
  stall->set_operation("acquire");
  stall->set_id(31);
  stall->set_key(key);
  stall->set_tensor_count(1);
  stall->set_outcome("OK");
  stall->mutable_duration()->set_seconds(milliseconds / 1000);
  stall->mutable_duration()->set_nanos(static_cast<int32_t>(milliseconds % 1000 * 1'000'000));
  v1::StallPart* part = stall->add_parts();
  part->set_cause(v1::STALL_CAUSE_SSD_READ);
  *part->mutable_duration() = stall->duration();
  return stall;
}

TEST(StallVerbs, ShowWhichTensorHowLongAndWhy) {
  v1::ListStallsResponse answer;
  answer.mutable_threshold()->set_nanos(10'000'000);
  answer.set_ended_total(5);
  v1::Stall* first = Add(&answer, "layer0", 2000);
  first->set_step(41);
  first->mutable_parts(0)->mutable_duration()->set_seconds(1);
  v1::StallPart* second_part = first->add_parts();
  second_part->set_cause(v1::STALL_CAUSE_RAM);
  second_part->mutable_duration()->set_seconds(1);
  v1::Stall* second = Add(&answer, "", 12);
  second->set_waiting(true);
  second->set_outcome("");
  second->set_tensor_count(3);
  const std::string text = RenderStalls(answer, {});
  EXPECT_THAT(text, AllOf(HasSubstr("2.00 s"), HasSubstr("acquire"), HasSubstr("layer0"), HasSubstr("  41  "),
                          HasSubstr("ssd_read 50 %, ram 50 %")));
  EXPECT_THAT(
      text, AllOf(HasSubstr("12.0 ms"), HasSubstr("0x1f and 2 more"), HasSubstr("waits"), HasSubstr("ssd_read 100 %")));
  EXPECT_THAT(text, HasSubstr("and 4 earlier ones of 10.0 ms or longer, which are not kept\n"));
}

TEST(StallVerbs, WithoutStallsThereIsASentence) {
  v1::ListStallsResponse answer;
  answer.mutable_threshold()->set_seconds(1);
  EXPECT_EQ(RenderStalls(answer, {}), "no request waited for 1.00 s or longer\n");
}

TEST(StallVerbs, TheLongestComeFirstWhereThatIsAsked) {
  v1::ListStallsResponse answer;
  for (const int64_t milliseconds : {20, 300, 10}) Add(&answer, "k", milliseconds);
  SortLongestFirst(&answer);
  ASSERT_EQ(answer.stalls_size(), 3);
  EXPECT_EQ(answer.stalls(0).duration().nanos(), 300'000'000);
  EXPECT_EQ(answer.stalls(2).duration().nanos(), 10'000'000);
}

TEST(StallVerbs, KeysSteerNoTerminal) {
  v1::ListStallsResponse answer;
  Add(&answer, "\033[2J", 20);
  EXPECT_THAT(RenderStalls(answer, {}), AllOf(HasSubstr("\\x1b[2J"), Not(HasSubstr("\033"))));
}

}  // namespace
}  // namespace tier::tierctl
