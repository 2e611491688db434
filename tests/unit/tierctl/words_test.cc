#include "tools/tierctl/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

class WordsTest : public ::testing::Test {
 protected:
  WordsTest() : app_("", "tierctl") {
    app_.set_version_flag("--version", "0");
    app_.add_flag("--json", json_);
    app_.add_option("--socket", socket_);
    app_.add_subcommand("status");
    CLI::App* job = app_.add_subcommand("job");
    job->add_subcommand("show");
    job->add_subcommand("set")->add_option("--guarantee", guarantee_);
  }

  bool json_ = false;
  std::string socket_;
  std::string guarantee_;
  CLI::App app_;
};

TEST_F(WordsTest, NamesTheFirstUnknownVerbAndThoseThatAre) {
  EXPECT_EQ(UnknownWord(app_, {"frob"}), "unknown verb 'frob'; one of status, job");
  EXPECT_EQ(UnknownWord(app_, {"--json", "--socket", "/s", "frob", "x"}), "unknown verb 'frob'; one of status, job");
  EXPECT_EQ(UnknownWord(app_, {"--socket=/s", "job", "frob"}), "unknown verb 'frob' of job; one of show, set");
}

TEST_F(WordsTest, AsksWhetherTheNearestVerbWasMeant) {
  EXPECT_EQ(UnknownWord(app_, {"statsu"}), "unknown verb 'statsu'; did you mean 'status'? The verbs are status, job");
  EXPECT_EQ(UnknownWord(app_, {"job", "sohw"}),
            "unknown verb 'sohw' of job; did you mean 'show'? The verbs are show, set");
  EXPECT_EQ(UnknownWord(app_, {std::string(300, 's')}),
            "unknown verb '" + std::string(300, 's') + "'; one of status, job");
  EXPECT_EQ(UnknownWord(app_, {"\033[2J"}), "unknown verb '\\x1b[2J'; one of status, job");
}

TEST_F(WordsTest, NamesAnUnknownOptionWhereThereIsNoVerbToKnowIt) {
  EXPECT_EQ(UnknownWord(app_, {"--nonsense"}), "unknown option '--nonsense' before the verb");
  EXPECT_EQ(UnknownWord(app_, {"job", "--nonsense=1", "set"}), "unknown option '--nonsense=1' before the verb");
}

TEST_F(WordsTest, AsksWhetherTheNearestOptionWasMeant) {
  const char* const kAll = "The options are --guarantee, --json, --socket";
  for (const char* typed : {"--guarante", "--guarante=4GiB", "--garantee"}) {
    EXPECT_THAT(UnknownOption(app_, {"job", "set", "train", typed}),
                Optional(AllOf(HasSubstr(" of job set; did you mean '--guarantee'?"), HasSubstr(kAll))));
  }
  EXPECT_EQ(UnknownOption(app_, {"status", "--jsn"}),
            "unknown option '--jsn' of status; did you mean '--json'? The options are --json, --socket");
  EXPECT_EQ(UnknownOption(app_, {"job", "show", "x", "-q"}),
            "unknown option '-q' of job show; one of --json, --socket");
  EXPECT_EQ(UnknownWord(app_, {"--jsno", "status"}), "unknown option '--jsno' before the verb; did you mean '--json'?");
  EXPECT_FALSE(UnknownOption(app_, {"job", "set", "train", "--guarantee", "--socket=/s"})) << "each is known";
  EXPECT_FALSE(UnknownOption(app_, {"job", "show", "--", "--json2"})) << "a job may be called so";
  EXPECT_FALSE(UnknownOption(app_, {"job", "show", "-5"})) << "a number";
}

TEST_F(WordsTest, LeavesEverythingElseToTheParser) {
  EXPECT_FALSE(UnknownWord(app_, {}));
  EXPECT_FALSE(UnknownWord(app_, {"job"}));
  EXPECT_FALSE(UnknownWord(app_, {"status", "--nonsense"}));
  EXPECT_FALSE(UnknownWord(app_, {"job", "show", "frob"})) << "a job may be called so";
  EXPECT_FALSE(UnknownWord(app_, {"job", "--socket", "frob", "set", "x"}));
}

TEST_F(WordsTest, WhoNamesNoVerbIsShownThem) {
  EXPECT_THAT(MissingVerb(app_, {}), Optional(AllOf(HasSubstr("Usage: tierctl"), HasSubstr("status"))));
  EXPECT_THAT(MissingVerb(app_, {"--socket", "status"}), Optional(HasSubstr("Usage: tierctl")));
  EXPECT_THAT(MissingVerb(app_, {"job", "--json"}), Optional(AllOf(HasSubstr("Usage: tierctl job"), HasSubstr("set"))));
  EXPECT_FALSE(MissingVerb(app_, {"status"}));
  EXPECT_FALSE(MissingVerb(app_, {"job", "show"}));
  EXPECT_FALSE(MissingVerb(app_, {"frob"}));
  for (const char* option : {"-h", "--help", "--version"}) {
    EXPECT_FALSE(UnknownWord(app_, {option}));
    EXPECT_FALSE(MissingVerb(app_, {option}));
  }
}

TEST_F(WordsTest, HelpIsAWordToo) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(WithHelpAsOption({"help"}), Words({"--help"}));
  EXPECT_EQ(WithHelpAsOption({"help", "job", "set"}), Words({"job", "set", "--help"}));
  EXPECT_EQ(WithHelpAsOption({"job", "show", "help"}), Words({"job", "show", "help"}));
}

TEST_F(WordsTest, ANounAloneMayStandForOneOfItsVerbs) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(WithVerbOfNoun(app_, {"job"}, "job", "show"), (Words{"job", "show"}));
  EXPECT_EQ(WithVerbOfNoun(app_, {"--json", "job", "--socket", "/s"}, "job", "show"),
            (Words{"--json", "job", "--socket", "/s", "show"}));
  for (const Words& words :
       {Words{"job", "set"}, Words{"job", "--help"}, Words{"job", "frob"}, Words{"status"}, Words{}})
    EXPECT_EQ(WithVerbOfNoun(app_, words, "job", "show"), words);
}

TEST(InOurWords, SaysWhatIsMissing) {
  EXPECT_EQ(InOurWords("value is required"), "an argument is missing: value");
  EXPECT_EQ(InOurWords("--owner is required"), "an option is missing: --owner");
  EXPECT_EQ(InOurWords("--max: no number"), "--max: no number");
}

}  // namespace
}  // namespace tier::tierctl
