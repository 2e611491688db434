// Options by ControlApi: who may see the file and who may change what; and limits that change while sessions are there.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::DataClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kAdmin;
using testing::kAlice;
using testing::MakeHello;
using testing::SessionWorld;

class SettingsServer : public ::testing::Test {
 protected:
  static SettingsReport ReportOf(const std::string& deadline, bool with_file) {
    OptionState option{.name = "engine.deadline",
                       .running = deadline,
                       .by_default = "\"60s\"",
                       .in_file = std::nullopt,
                       .changes_at_run_time = true,
                       .help = {}};
    if (with_file) option.in_file = "\"30s\"";
    return {.file = "tierd.toml", .file_error = {}, .options = {option}};
  }

  std::string deadline_ = "\"60s\"";
  std::vector<std::string> changes_;
  Error refusal_{Code::kOk, {}};
  SessionWorld world_{{.settings = {.list = [this](bool with_file) { return ReportOf(deadline_, with_file); },
                                    .set = [this](const SettingChange& change) -> Status {
                                      if (refusal_.code != Code::kOk) return std::unexpected(refusal_);
                                      changes_.push_back(std::to_string(change.uid) + " " + change.name);
                                      deadline_ = change.value;
                                      return {};
                                    }}}};
  ControlServer& control_{world_.control()};
};

TEST_F(SettingsServer, OnlyAdministratorsSeeTheFile) {
  const auto of_alice = control_.ListOptions(kAlice);
  ASSERT_TRUE(of_alice);
  EXPECT_EQ(of_alice->options[0].running, "\"60s\"");
  EXPECT_EQ(of_alice->options[0].in_file, std::nullopt);
  EXPECT_EQ(control_.ListOptions(kAdmin)->options[0].in_file, "\"30s\"");
}

TEST_F(SettingsServer, OnlyAdministratorsSetOptions) {
  const auto refused = control_.SetOption(kAlice, "engine.deadline", "5s");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("only an administrator may set an option"));
  EXPECT_THAT(changes_, IsEmpty());
  const auto set = control_.SetOption(kAdmin, "engine.deadline", "5s");
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->running, "5s");
  EXPECT_THAT(changes_, ElementsAre("0 engine.deadline"));
}

TEST_F(SettingsServer, WhatIsRefusedBelowIsRefusedHere) {
  refusal_ = {Code::kInvalid, "option engine.deadline: …"};
  EXPECT_EQ(control_.SetOption(kAdmin, "engine.deadline", "x").error().message, refusal_.message);
}

TEST_F(SettingsServer, NamesAndValuesHaveASize) {
  for (const auto& [name, value] :
       {std::pair(std::string(), std::string("1")), std::pair(std::string(129, 'x'), std::string("1")),
        std::pair(std::string("log.level"), std::string(4097, 'x'))}) {
    const auto refused = control_.SetOption(kAdmin, name, value);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refused.error().message, HasSubstr("allowed are 1 to 128 and 4096"));
  }
  EXPECT_THAT(changes_, IsEmpty());
}

TEST(SettingsOfNoDaemon, AreDenied) {
  SessionWorld world;
  EXPECT_EQ(world.control().ListOptions(kAdmin).error().code, Code::kDenied);
  EXPECT_EQ(world.control().SetOption(kAdmin, "log.level", "debug").error().code, Code::kDenied);
}

TEST(SessionsMax, ALowerOneEndsNoSessionAndRefusesTheNext) {
  SessionWorld world{{.table = {.sessions_max = 8, .one_user = true}}};
  DataClient first(world.socket_path());
  ASSERT_EQ(first.Attach(MakeHello("one")).code, 0);
  DataClient second(world.socket_path());
  ASSERT_EQ(second.Attach(MakeHello("two")).code, 0);
  world.OnEngine([&] { world.table().SetTerms(1, 7000); });
  DataClient third(world.socket_path());
  EXPECT_NE(third.Attach(MakeHello("three")).code, 0);
  EXPECT_EQ(world.sessions(), 2u);
  world.OnEngine([&] { world.table().SetTerms(3, 7000); });
  DataClient fourth(world.socket_path());
  const proto::Welcome welcome = fourth.Attach(MakeHello("four"));
  EXPECT_EQ(welcome.code, 0);
  EXPECT_EQ(welcome.request_timeout_ms, 7000u) << "as the engine has it by now";
}

}  // namespace
}  // namespace tier::session
