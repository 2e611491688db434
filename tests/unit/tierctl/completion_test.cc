#include "tools/tierctl/completion.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

const std::vector<CommandWords> kCommands = {{"", {"status", "job", "--json"}}, {"job", {"list", "show"}}};

std::string RunBash(const std::string& script) {
  std::string output;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(("bash -c '" + script + "'").c_str(), "r"), ::pclose);
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) output += buffer.data();
  return output;
}

TEST(Completion, BashCompletesTopAndNestedWords) {
  char path[] = "/tmp/tier-completion-XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  std::ofstream(path) << CompletionScript("bash", kCommands);
  const std::string load = std::string("source ") + path + "; ";
  EXPECT_EQ(RunBash(load + "COMP_WORDS=(tierctl st); COMP_CWORD=1; _tierctl; echo ${COMPREPLY[@]}"), "status\n");
  EXPECT_EQ(RunBash(load + "COMP_WORDS=(tierctl job sh); COMP_CWORD=2; _tierctl; echo ${COMPREPLY[@]}"), "show\n");
  ::close(fd);
  ::remove(path);
}

TEST(Completion, KnowsTwoShells) {
  EXPECT_NE(CompletionScript("zsh", kCommands).find("bashcompinit"), std::string::npos);
  EXPECT_TRUE(CompletionScript("fish", kCommands).empty());
}

}  // namespace
}  // namespace tier::tierctl
