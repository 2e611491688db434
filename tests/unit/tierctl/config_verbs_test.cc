// Options on the command line: what is shown of an answer.
#include "tools/tierctl/config_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::DaemonOption* Add(v1::ListOptionsResponse* answer, const char* name, const char* value, const char* file) {
  v1::DaemonOption* option = answer->add_options();
  option->set_name(name);
  option->set_value(value);
  option->set_default_value("0");
  if (file != nullptr) option->set_file_value(file);
  return option;
}

TEST(ConfigVerbs, OnlyOptionsThatChangeAtRunTimeAreNamedForSet) {
  EXPECT_THAT(OptionNames(), Contains("ssd.queue_depth"));
  EXPECT_THAT(OptionNames(), Contains("log.level"));
  EXPECT_THAT(OptionNamesForSet(), Contains("log.level"));
  EXPECT_THAT(OptionNamesForSet(), Not(Contains("ssd.queue_depth")));
}

TEST(ConfigVerbs, ASizeWithoutItsUnitIsRefused) {
  EXPECT_EQ(MistakeIn("jobs.max_ssd_per_uid", "64"),
            "jobs.max_ssd_per_uid 64 is 64 bytes; write 64GiB, or 64B if bytes are meant");
  EXPECT_EQ(MistakeIn("arena.minimum", "25%"), std::nullopt);
  EXPECT_EQ(MistakeIn("arena.minimum", "0"), std::nullopt);
  EXPECT_EQ(MistakeIn("ssd.queue_depth", "64"), std::nullopt) << "a count";
}

TEST(ConfigVerbs, AsksWhetherTheNearestOptionWasMeant) {
  EXPECT_EQ(NoSuchOptionText("engine.deadlin"),
            "no option 'engine.deadlin'; did you mean 'engine.deadline'? tierctl config get lists all");
  EXPECT_THAT(NoSuchOptionText("jobs.deadline"), HasSubstr("did you mean 'engine.deadline'?")) << "in another section";
  EXPECT_EQ(NoSuchOptionText("nope"), "no option 'nope'; tierctl config get lists all") << "none is near";
}

TEST(ConfigVerbs, DifferencesAreAllThatIsNotAsInTheFileOrByDefault) {
  v1::ListOptionsResponse answer;
  answer.set_file("tierd.toml");
  Add(&answer, "same", "0", "0");
  Add(&answer, "from-file", "1", "1");
  Add(&answer, "waits", "0", "2");
  Add(&answer, "not-reloaded", "0", "3")->set_changes_at_run_time(true);
  Add(&answer, "set", "4", "4")->set_set_at_run_time(true);
  Add(&answer, "unknown-file", "0", nullptr);
  const v1::ListOptionsResponse differences = DifferencesIn(answer);
  EXPECT_EQ(differences.file(), "tierd.toml");
  EXPECT_EQ(RenderDifferences(differences, {}),
            "OPTION        RUNNING  FILE OR --set  DEFAULT  NOTE\n"
            "from-file     1        1              0\n"
            "waits         0        2              0        needs a restart\n"
            "not-reloaded  0        3              0        needs a reload\n"
            "set           4        4              0        set at run time\n");
}

TEST(ConfigVerbs, WithoutDifferencesThereIsASentence) {
  v1::ListOptionsResponse answer;
  Add(&answer, "same", "0", "0");
  EXPECT_EQ(RenderDifferences(DifferencesIn(answer), {}), "every option is at its default, and as the file says\n");
}

TEST(ConfigVerbs, AMistakeInTheFileComesFirstAndSteersNoTerminal) {
  v1::ListOptionsResponse answer;
  answer.set_file_error("tierd.toml:2: \033[2J");
  Add(&answer, "set", "\033[3J", nullptr);
  const std::string text = RenderDifferences(DifferencesIn(answer), {});
  EXPECT_THAT(text, StartsWith("a reload refuses the file: tierd.toml:2: \\x1b[2J\n"));
  EXPECT_THAT(text, HasSubstr("\\x1b[3J"));
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(ConfigVerbs, ListsWhenEachChanges) {
  v1::ListOptionsResponse answer;
  Add(&answer, "engine.deadline", "\"60s\"", nullptr)->set_changes_at_run_time(true);
  Add(&answer, "ssd.queue_depth", "64", nullptr);
  EXPECT_EQ(RenderOptions(answer, {}),
            "OPTION           VALUE  CHANGES\n"
            "engine.deadline  \"60s\"  at run time\n"
            "ssd.queue_depth  64     at a restart\n");
}

}  // namespace
}  // namespace tier::tierctl
