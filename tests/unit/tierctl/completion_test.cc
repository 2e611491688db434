#include "tools/tierctl/completion.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"

namespace tier::tierctl {
namespace {

using Asked = ArgumentWords::Asked;

const ArgumentWords kJob{.values = {}, .asked = Asked::kJobs};
const std::vector<CommandWords> kCommands = {
    {.path = "",
     .verbs = {{"status", ""}, {"job", ""}, {"tensor", ""}, {"device", ""}, {"quota", ""}, {"config", ""}},
     .options = {{"--json", "it's JSON"}, {"--socket", "", true}}},
    {.path = "config", .verbs = {{"set", ""}}},
    {.path = "config set",
     .options = {{"--json", ""}},
     .arguments = {{.values = {"log.level", "log.format", "engine.deadline"}}, {}}},
    {.path = "status", .options = {{"--json", ""}}},
    {.path = "job", .verbs = {{"list", ""}, {"show", "One job"}, {"set", ""}}},
    {.path = "job list"},
    {.path = "job show", .options = {{"--show-token", ""}}, .arguments = {kJob}},
    {.path = "job set", .options = {{"--limit", "", true}, {"--guarantee", "", true}}, .arguments = {kJob}},
    {.path = "tensor", .verbs = {{"show", ""}}},
    {.path = "tensor show", .arguments = {kJob, {}}},
    {.path = "device", .verbs = {{"drain", ""}, {"purge", ""}}},
    {.path = "device drain", .arguments = {{.values = {}, .asked = Asked::kDevices}}},
    {.path = "device purge", .arguments = {{.values = {}, .asked = Asked::kMissingDevices}}},
    {.path = "quota", .verbs = {{"set", ""}}},
    {.path = "quota set",
     .options = {{"--ram", "", true}},
     .arguments = {{.values = {"default", "user", "group"}}, {}}}};

// As `job names` and `device list` print them.
constexpr char kTierctl[] =
    "tierctl() { case \"$*\" in "
    "\"job names\") echo train; echo 1001/train ;; "
    "\"device list\") printf \"%s\\n\" \"DEVICE  PATH\" \"     0  /a  12 GiB\" \"    12  /b\" "
    "\"device 0 is not empty yet\" \"956cd917-41c1-4fd0-8a5c-2b9e6f1d7a30  /c\" ;; esac; }; ";

std::string RunBash(const std::string& script) {
  std::string output;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(("bash -c '" + script + "'").c_str(), "r"), ::pclose);
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) output += buffer.data();
  return output;
}

class BashCompletion : public ::testing::Test {
 protected:
  BashCompletion() { std::ofstream(path_) << CompletionScript("bash", kCommands); }
  // What is offered for the last of these words, with a tierctl that knows two jobs, two devices and a missing one.
  std::string Offer(const std::string& words, int at) {
    return RunBash("source " + path_ + "; " + kTierctl + "COMP_WORDS=(tierctl " + words +
                   "); COMP_CWORD=" + std::to_string(at) + "; _tierctl; echo ${COMPREPLY[@]}");
  }
  const session::testing::TemporaryDirectory folder_;
  const std::string path_ = folder_.path() + "/completion";
};

TEST_F(BashCompletion, CompletesNounsVerbsAndTheirOptions) {
  EXPECT_EQ(Offer("st", 1), "status\n");
  EXPECT_EQ(Offer("job sh", 2), "show\n");
  EXPECT_EQ(Offer("job set --l", 3), "--limit\n");
  EXPECT_EQ(Offer("job set train --g", 4), "--guarantee\n");
  EXPECT_EQ(Offer("--json job set --l", 4), "--limit\n") << "an option before the noun is no noun";
  EXPECT_EQ(Offer("job list --l", 3), "\n") << "that is another verb's";
}

TEST_F(BashCompletion, CompletesNamesOfJobsWhereOneIsMeant) {
  EXPECT_EQ(Offer("job show t", 3), "train\n");
  EXPECT_EQ(Offer("job show 1", 3), "1001/train\n");
  EXPECT_EQ(Offer("job list t", 3), "\n");
}

TEST_F(BashCompletion, OffersInEachPlaceWhatBelongsThere) {
  EXPECT_EQ(Offer("tensor show t", 3), "train\n");
  EXPECT_EQ(Offer("tensor show train t", 4), "\n") << "a tensor belongs there";
  EXPECT_EQ(Offer("job set --limit 4GiB tr", 5), "train\n") << "the value of an option is no argument";
  EXPECT_EQ(Offer("job set --limit = 4GiB tr", 6), "train\n") << "as bash splits --limit=4GiB";
  EXPECT_EQ(Offer("job set --limit t", 4), "\n") << "a size belongs there";
  EXPECT_EQ(Offer("--socket job job sh", 4), "show\n") << "the value of an option is no noun";
  EXPECT_EQ(Offer("device drain \"\"", 3), "0 12\n");
  EXPECT_EQ(Offer("device purge 9", 3), "956cd917-41c1-4fd0-8a5c-2b9e6f1d7a30\n");
  EXPECT_EQ(Offer("quota set u", 3), "user\n");
  EXPECT_EQ(Offer("quota set user u", 4), "\n");
}

TEST_F(BashCompletion, RunsNothingOfWhatADaemonSays) {
  const std::string made = folder_.path() + "/made";
  const std::string tierctl = "tierctl() { printf \"%s\\n\" train \"\\$(touch " + made + ")\" \"\\`touch " + made +
                              "\\`\" \"t\\$(touch\\${IFS}" + made + ")\" \"*\"; }; ";
  const std::string script = "source " + path_ + "; " + tierctl + "COMP_WORDS=(tierctl job show t); COMP_CWORD=3; ";
  EXPECT_EQ(RunBash(script + "_tierctl; printf \"%s\\n\" \"${COMPREPLY[@]}\""),
            "train\nt\\$\\(touch\\$\\{IFS\\}" + made + "\\)\n")
      << "and in the line it is a word that runs nothing";
  EXPECT_FALSE(std::filesystem::exists(made));
}

TEST_F(BashCompletion, CompletesAWordThatBeginsWithAQuote) { EXPECT_EQ(Offer("job show \\\"t", 3), "train\n"); }

TEST_F(BashCompletion, CompletesWhatAnArgumentMayBe) {
  EXPECT_EQ(Offer("config set lo", 3), "log.level log.format\n");
  EXPECT_EQ(Offer("config set engine", 3), "engine.deadline\n");
  EXPECT_EQ(Offer("config lo", 2), "\n");
}

TEST(Completion, OfZshServesAsAFileOfItsFolderToo) {
  const std::string script = CompletionScript("zsh", kCommands);
  EXPECT_TRUE(script.starts_with("#compdef tierctl\n"));
  EXPECT_NE(script.find("\"job set\") offered=\"--limit --guarantee\""), std::string::npos) << script;
  EXPECT_NE(script.find("\"job set 0\") offered+=\" $(tierctl job names 2>/dev/null)\""), std::string::npos) << script;
}

TEST(Completion, OfFishQuotesWhatItSays) {
  const std::string script = CompletionScript("fish", kCommands);
  EXPECT_NE(script.find(R"(-l json -d 'it\'s JSON')"), std::string::npos) << script;
  EXPECT_NE(script.find("= \"job\"' -f -a show -d 'One job'"), std::string::npos) << script;
  EXPECT_NE(script.find("= \"config set 0\"' -f -a log.level\n"), std::string::npos) << script;
}

TEST(Completion, KnowsThreeShells) { EXPECT_TRUE(CompletionScript("tcsh", kCommands).empty()); }

}  // namespace
}  // namespace tier::tierctl
