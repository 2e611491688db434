#include "tools/tierctl/words.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

class WordsTest : public ::testing::Test {
 protected:
  WordsTest() : app_("", "tierctl") {
    app_.add_flag("--json", json_);
    app_.add_option("--socket", socket_);
    app_.add_subcommand("status");
    CLI::App* job = app_.add_subcommand("job");
    job->add_subcommand("show");
    job->add_subcommand("set");
  }

  bool json_ = false;
  std::string socket_;
  CLI::App app_;
};

TEST_F(WordsTest, NamesTheFirstUnknownVerbAndThoseThatAre) {
  EXPECT_EQ(UnknownVerb(app_, {"frob"}), "unknown verb 'frob'; one of status, job");
  EXPECT_EQ(UnknownVerb(app_, {"--json", "--socket", "/s", "frob", "x"}), "unknown verb 'frob'; one of status, job");
  EXPECT_EQ(UnknownVerb(app_, {"--socket=/s", "job", "frob"}), "unknown verb 'frob' of job; one of show, set");
}

TEST_F(WordsTest, LeavesEverythingElseToTheParser) {
  EXPECT_FALSE(UnknownVerb(app_, {}));
  EXPECT_FALSE(UnknownVerb(app_, {"job"}));
  EXPECT_FALSE(UnknownVerb(app_, {"--nonsense", "status"}));
  EXPECT_FALSE(UnknownVerb(app_, {"job", "show", "frob"})) << "a job may be called so";
  EXPECT_FALSE(UnknownVerb(app_, {"job", "--socket", "frob", "set", "x"}));
}

TEST_F(WordsTest, HelpIsAWordToo) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(WithHelpAsOption({"help"}), Words({"--help"}));
  EXPECT_EQ(WithHelpAsOption({"help", "job", "set"}), Words({"job", "set", "--help"}));
  EXPECT_EQ(WithHelpAsOption({"job", "show", "help"}), Words({"job", "show", "help"}));
}

}  // namespace
}  // namespace tier::tierctl
