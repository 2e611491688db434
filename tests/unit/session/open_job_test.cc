// What may be asked for when a job is opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/control_api.h"
#include "daemon/session/job_registry.h"

namespace tier::session {
namespace {

using proto::OpenMode;
using ::testing::HasSubstr;

struct OpenJobCase {
  const char* what;
  OpenJobRequest request;
  const char* message;  // Null: valid.
};

TEST(ValidateOpenJob, EachFieldIsCheckedAndNamed) {
  const OpenJobCase cases[] = {
      {"nothing at all", {}, nullptr},
      {"every character a name may have", {.name = "aZ09._:/@-"}, nullptr},
      {"longest name", {.name = std::string(127, 'n')}, nullptr},
      {"name too long", {.name = std::string(128, 'n')}, "128 characters"},
      {"blank in name", {.name = "a b"}, "letters, digits"},
      {"NUL in name", {.name = std::string("a\0b", 3)}, "letters, digits"},
      {"umlaut in name", {.name = "tr\xc3\xa4in"}, "letters, digits"},
      {"token of other length", {.name = "a", .token = "abc"}, "64 hexadecimal"},
      {"token with other digits", {.name = "a", .token = std::string(64, 'g')}, "64 hexadecimal"},
      {"token and launch", {.name = "a", .token = std::string(64, 'a'), .launch = "l"}, "give one of them"},
      {"unknown mode", {.name = "a", .mode = static_cast<OpenMode>(5)}, "mode is 5"},
      {"resume-or-create of nothing", {.mode = OpenMode::kResumeOrCreate}, "need the job's name"},
      {"join of nothing", {.mode = OpenMode::kJoin}, "need the job's name"},
      {"named without name", {.named = true}, "needs a name"},
      {"rank without world", {.name = "a", .rank = 0}, "without a world_size"},
      {"world without rank", {.name = "a", .world_size = 2}, "rank is -1"},
      {"rank beyond world", {.name = "a", .rank = 2, .world_size = 2}, "0 to 1"},
      {"negative world", {.name = "a", .rank = 0, .world_size = -1}, "world_size is -1"},
      {"huge world", {.name = "a", .rank = 0, .world_size = kWorldSizeMax + 1}, "world_size"},
      {"limit below guarantee",
       {.name = "a", .guarantee_bytes = 4 << 20, .limit_bytes = 3 << 20},
       "a limit of 3 MiB is below the guarantee of 4 MiB: raise the limit"},
      {"limit below a block",
       {.name = "a", .limit_bytes = (2 << 20) - 1},
       "below 2 MiB, the least with which every tensor can be read: raise it, or give 0 for none"},
      {"SSD limit below guarantee",
       {.name = "a", .ssd_guarantee_bytes = 2 << 20, .ssd_limit_bytes = 1 << 20},
       "an SSD limit of 1 MiB is below the guarantee of 2 MiB"},
      {"guarantee without limit", {.name = "a", .guarantee_bytes = 2}, nullptr},
  };
  for (const OpenJobCase& c : cases) {
    const auto valid = ValidateOpenJob(c.request);
    EXPECT_EQ(valid.has_value(), c.message == nullptr) << c.what;
    if (!valid && c.message != nullptr) {
      EXPECT_EQ(valid.error().code, Code::kInvalid) << c.what;
      EXPECT_THAT(valid.error().message, HasSubstr(c.message)) << c.what;
    }
  }
}

}  // namespace
}  // namespace tier::session
