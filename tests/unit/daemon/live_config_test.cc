// What a reload and a change of one option make of the running configuration; the parts of the daemon are hooks.
#include "daemon/live_config.h"

#include <sys/resource.h>

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/option_values.h"

namespace tier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr char kStart[] = "[engine]\ndeadline = \"30s\"\n[ssd]\nqueue_depth = 8\n";

class LiveConfigTest : public ::testing::Test {
 protected:
  config::Config Parse() { return config::ParseConfig(file_, "tierd.toml").value(); }
  session::OptionState Of(const std::string& name, bool with_file = true) {
    for (const session::OptionState& option : live_.List(with_file).options) {
      if (option.name == name) return option;
    }
    ADD_FAILURE() << "no option " << name;
    return {};
  }
  Status Set(const std::string& name, const std::string& value) {
    return live_.Set({.uid = 7, .name = name, .value = value});
  }
  std::string Refused(const std::string& name, const std::string& value) {
    const config::Config before = live_.running();
    const Status set = Set(name, value);
    EXPECT_FALSE(set) << name << " " << value;
    EXPECT_EQ(live_.running(), before);
    EXPECT_THAT(events_, IsEmpty());
    if (set) return {};
    EXPECT_EQ(set.error().code, Code::kInvalid) << set.error().message;
    return set.error().message;
  }

  std::string file_ = kStart;
  Status may_;      // What the process may do, of what is checked.
  Status fits_;     // Another minimum than the first one.
  Status restart_;  // Whether a restart would be refused.
  Status metrics_;  // Whether their address can be had.
  std::vector<std::string> moved_;
  std::vector<std::string> at_restart_;
  std::vector<config::Config> applied_;
  std::vector<std::pair<std::string, std::string>> events_;
  std::vector<std::string> told_to_others_;
  LiveConfig live_{config::ParseConfig(kStart, "tierd.toml").value(),
                   {.file = "tierd.toml", .read = [this] { return config::ParseConfig(file_, "tierd.toml"); }},
                   {.check =
                        [this](const config::Config& next) {
                          if (next.arena.minimum != config::Config{}.arena.minimum && !fits_) return fits_;
                          return next.jobs.kills_keepers() ? may_ : Status();
                        },
                    .check_restart = [this](const config::Config&) { return restart_; },
                    .move_metrics =
                        [this](const config::Config& next) {
                          moved_.push_back(next.metrics.listen);
                          return metrics_;
                        },
                    .at_restart = [this](const config::Config&) { return at_restart_; },
                    .apply =
                        [this](const config::Config& next, const std::function<void()>& done) {
                          applied_.push_back(next);
                          done();
                        },
                    .tell =
                        [this](const char* kind, const std::string& message, const std::string& for_others) {
                          events_.emplace_back(kind, message);
                          told_to_others_.push_back(for_others);
                        },
                    .post = [](const std::function<void()>& run) { run(); }}};
};

TEST_F(LiveConfigTest, AFileThatARestartWouldRefuseIsRefused) {
  restart_ = Fail(Code::kInvalid, "/dev/a is named twice");
  file_ = "[engine]\ndeadline = \"5s\"\n[ssd]\nqueue_depth = 8\n";
  live_.Reload();
  EXPECT_THAT(applied_, IsEmpty());
  EXPECT_TRUE(live_.reload_failure());
  EXPECT_THAT(live_.List(true).file_error, HasSubstr("/dev/a is named twice"));
  restart_ = {};
  live_.Reload();
  EXPECT_FALSE(live_.reload_failure());
}

TEST_F(LiveConfigTest, SizesThatFitOnlyTheNextStartsArenaWaitForIt) {
  fits_ = Fail(Code::kInvalid, "does not fit");
  file_ = "[arena]\nminimum = \"1GiB\"\n[engine]\ndeadline = \"5s\"\n[ssd]\nqueue_depth = 8\n";
  live_.Reload();
  EXPECT_THAT(applied_, IsEmpty());  // The arena that runs is to have it, and cannot.
  file_ = "[arena]\nmaximum = \"2GiB\"\n" + file_.substr(std::string("[arena]\n").size());
  live_.Reload();
  ASSERT_EQ(applied_.size(), 1u);
  EXPECT_EQ(applied_[0].engine.deadline, std::chrono::seconds(5));
  EXPECT_EQ(applied_[0].arena.minimum, config::Config{}.arena.minimum);
  EXPECT_THAT(events_.back().second, HasSubstr("only a restart changes arena.maximum, arena.minimum"));
}

TEST_F(LiveConfigTest, AReloadTakesOverWhatMayChangeAndNamesTheRest) {
  file_ = "[engine]\ndeadline = \"5s\"\n[ssd]\nqueue_depth = 16\n";
  live_.Reload();
  ASSERT_EQ(applied_.size(), 1u);
  EXPECT_EQ(applied_[0].engine.deadline, std::chrono::seconds(5));
  EXPECT_EQ(applied_[0].ssd.queue_depth, 8u) << "that waits for a restart";
  EXPECT_EQ(live_.running(), applied_[0]);
  EXPECT_THAT(events_, ElementsAre(Pair(kConfigReloaded, AllOf(HasSubstr("engine.deadline (\"30s\" to \"5s\")"),
                                                               HasSubstr("only a restart changes ssd.queue_depth")))));
}

TEST_F(LiveConfigTest, WhatARestartWouldDoIsToldWhereOptionsWaitForIt) {
  at_restart_ = {"tier.ssd keeps its 512 MiB"};
  live_.Reload();
  EXPECT_THAT(events_, ElementsAre(Pair(kConfigReloaded, Not(HasSubstr("tier.ssd")))));
  file_ = "[engine]\ndeadline = \"30s\"\n[ssd]\nqueue_depth = 16\n";
  live_.Reload();
  EXPECT_THAT(events_.back().second, EndsWith("only a restart changes ssd.queue_depth; tier.ssd keeps its 512 MiB"));
}

TEST_F(LiveConfigTest, AFileWithAMistakeChangesNothing) {
  file_ = "[engine]\ndeadline = \"5s\"\nevict = 3\n";
  const config::Config before = live_.running();
  live_.Reload();
  EXPECT_THAT(applied_, IsEmpty());
  EXPECT_EQ(live_.running(), before);
  EXPECT_THAT(events_, ElementsAre(Pair(kConfigReloadFailed, AllOf(HasSubstr("tierd.toml:3: option engine.evict"),
                                                                   HasSubstr("all settings stay as they are")))));
}

TEST_F(LiveConfigTest, WhatTheProcessHasNoRightToChangesNothing) {
  may_ = Fail(Code::kDenied, "it needs CAP_KILL");
  file_ = "[engine]\ndeadline = \"5s\"\n[jobs]\non_unreturned = \"kill\"\n";
  const config::Config before = live_.running();
  live_.Reload();
  EXPECT_THAT(events_, ElementsAre(Pair(kConfigReloadFailed, AllOf(HasSubstr("it needs CAP_KILL"),
                                                                   HasSubstr("all settings stay as they are")))));
  EXPECT_EQ(live_.List(true).file_error, "it needs CAP_KILL") << "what the file says is shown beside it";
  EXPECT_EQ(Of("engine.deadline").in_file, "\"5s\"");
  EXPECT_EQ(live_.List(false).file_error, "") << "the file is for those who may see it";
  const Status set = Set("jobs.on_unreturned", "kill");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, Code::kDenied);
  EXPECT_THAT(applied_, IsEmpty());
  EXPECT_EQ(live_.running(), before);
  may_ = {};
  ASSERT_TRUE(Set("jobs.on_unreturned", "kill"));
  ASSERT_EQ(applied_.size(), 1u);
  EXPECT_TRUE(applied_[0].jobs.kills_keepers());
}

TEST_F(LiveConfigTest, ThatTheLastReloadWasRefusedIsKnownUntilOneIsNot) {
  EXPECT_FALSE(live_.reload_failure());
  file_ = "[engine]\ndeadline = 5\n";
  live_.Reload();
  ASSERT_TRUE(live_.reload_failure());
  EXPECT_THAT(live_.reload_failure()->why,
              AllOf(HasSubstr("engine.deadline"), EndsWith("all settings stay as they are")));
  EXPECT_THAT(live_.reload_failure()->for_others, Not(HasSubstr("deadline"))) << "the file is the administrators'";
  EXPECT_GT(live_.reload_failure()->unix_time_ms, 0);
  ASSERT_TRUE(Set("engine.deadline", "6s"));
  EXPECT_TRUE(live_.reload_failure()) << "the file is wrong as before";
  may_ = Fail(Code::kDenied, "it needs CAP_KILL");
  file_ = "[jobs]\non_unreturned = \"kill\"\n";
  live_.Reload();
  ASSERT_TRUE(live_.reload_failure());
  EXPECT_THAT(live_.reload_failure()->why, HasSubstr("it needs CAP_KILL")) << "of the last one";
  file_ = kStart;
  live_.Reload();
  EXPECT_FALSE(live_.reload_failure());
}

TEST_F(LiveConfigTest, OthersThanAdministratorsAreToldNothingOfTheFile) {
  file_ = "[engine]\ndeadline = \"5s\"\n[quota.user.alice]\nram = { most = 1 }\n";
  live_.Reload();
  file_ = "[engine]\ndeadline = \"5s\"\n";
  live_.Reload();
  ASSERT_TRUE(Set("engine.deadline", "6s"));
  EXPECT_THAT(events_,
              ElementsAre(Pair(kConfigReloadFailed, HasSubstr("alice")), Pair(kConfigReloaded, HasSubstr("\"5s\"")),
                          Pair(kConfigChanged, HasSubstr("uid 7"))));
  EXPECT_THAT(told_to_others_, ElementsAre("the reload of the configuration failed; all settings stay as they are",
                                           "the configuration was read again", "an administrator changed an option"));
}

TEST_F(LiveConfigTest, AnAddressOfMetricsThatCannotBeTakenRefusesTheWholeFile) {
  metrics_ = Fail(Code::kInvalid, "cannot serve metrics on 127.0.0.1:1");
  file_ = "[engine]\ndeadline = \"5s\"\n[ssd]\nqueue_depth = 8\n[metrics]\nlisten = \"127.0.0.1:1\"\n";
  const config::Config before = live_.running();
  live_.Reload();
  EXPECT_EQ(live_.running(), before);
  EXPECT_TRUE(live_.reload_failure());
  EXPECT_THAT(events_, ElementsAre(Pair(kConfigReloadFailed, HasSubstr("cannot serve metrics on 127.0.0.1:1"))));
  EXPECT_FALSE(Set("metrics.listen", "127.0.0.1:1"));
  EXPECT_THAT(applied_, IsEmpty());
  EXPECT_EQ(live_.List(true).file_error, "cannot serve metrics on 127.0.0.1:1");
  EXPECT_EQ(live_.List(false).file_error, "") << "the file is for those who may see it";
  const std::string refused = std::exchange(file_, kStart);
  EXPECT_EQ(live_.List(true).file_error, "") << "it is another file now";
  file_ = refused;
  metrics_ = {};
  live_.Reload();
  EXPECT_EQ(live_.List(true).file_error, "");
  EXPECT_EQ(live_.running().metrics.listen, "127.0.0.1:1");
  EXPECT_EQ(live_.running().engine.deadline, std::chrono::seconds(5));
  ASSERT_TRUE(Set("metrics.listen", "auto"));
  EXPECT_EQ(applied_.back().metrics.listen, "auto");
}

// Else it would serve elsewhere though nothing has changed.
TEST_F(LiveConfigTest, TheAddressOfMetricsIsTakenLast) {
  may_ = Fail(Code::kDenied, "it needs CAP_KILL");
  file_ = "[jobs]\non_unreturned = \"kill\"\n[metrics]\nlisten = \"127.0.0.1:1\"\n";
  live_.Reload();
  EXPECT_FALSE(Set("jobs.on_unreturned", "kill"));
  EXPECT_THAT(moved_, IsEmpty());
  may_ = {};
  live_.Reload();
  EXPECT_THAT(moved_, ElementsAre("127.0.0.1:1"));
}

TEST_F(LiveConfigTest, AnOptionBeyondWhatTheProcessMayHaveIsSetAndWarnedOf) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const bool enough = files.rlim_max >= 2 * 16384;
  ASSERT_TRUE(Set("jobs.max_sessions", "16384"));
  EXPECT_EQ(Of("jobs.max_sessions").warning.empty(), enough);
  EXPECT_EQ(Of("jobs.max_metadata").warning, "");
  EXPECT_EQ(Of("log.level").warning, "");
}

TEST_F(LiveConfigTest, AnOptionIsSetUntilTheNextReload) {
  ASSERT_TRUE(Set("engine.deadline", "5s"));
  EXPECT_EQ(live_.running().engine.deadline, std::chrono::seconds(5));
  EXPECT_THAT(events_, ElementsAre(Pair(kConfigChanged,
                                        "uid 7 set engine.deadline to \"5s\", until the next reload or "
                                        "restart; it was \"30s\"")));
  session::OptionState option = Of("engine.deadline");
  EXPECT_EQ(option.running, "\"5s\"");
  EXPECT_EQ(option.in_file, "\"30s\"");
  EXPECT_EQ(option.by_default, "\"60s\"");
  EXPECT_THAT(option.warning, HasSubstr("let engine.deadline be the longer one"));
  EXPECT_TRUE(option.changes_at_run_time);
  EXPECT_TRUE(option.set_at_run_time);
  live_.Reload();
  option = Of("engine.deadline");
  EXPECT_EQ(option.running, "\"30s\"");
  EXPECT_FALSE(option.set_at_run_time);
  EXPECT_EQ(applied_.size(), 2u);
}

TEST_F(LiveConfigTest, WhatIsWrongIsRefusedAndChangesNothing) {
  EXPECT_EQ(Refused("nope", "5s"), "unknown option 'nope'; tierctl config get lists all");
  EXPECT_THAT(Refused("engine.deadlin", "5s"), HasSubstr("unknown option 'engine.deadlin'; the nearest is 'engine.de"));
  EXPECT_THAT(Refused("engine.deadline", "5"), HasSubstr("option engine.deadline"));
  EXPECT_THAT(Refused("ssd.queue_depth", "16"),
              HasSubstr("ssd.queue_depth changes only at a restart: write it into tierd.toml and restart tierd"));
  EXPECT_THAT(Refused("engine.write_behind", "95%"), HasSubstr("must not be above engine.evict"));
  EXPECT_THAT(Refused("quota.default.jobs", "3"), HasSubstr("tierctl quota set"));
  EXPECT_THAT(Refused("ssd.queue_depth=16\nx", ""), HasSubstr("unknown option"));
  EXPECT_THAT(Refused("jobs.max_leases", "5\nmax_tensors = 1"), HasSubstr("max_leases"));
  EXPECT_THAT(Refused("", ""), HasSubstr("unknown option"));
}

TEST_F(LiveConfigTest, ADaemonThatStopsChangesNothing) {
  live_.Stop();
  const Status set = Set("engine.deadline", "5s");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, Code::kDisconnected);
  EXPECT_THAT(applied_, IsEmpty());
}

TEST_F(LiveConfigTest, TheFileIsReadOnlyForThoseWhoMaySeeIt) {
  file_ = "[engine]\ndeadline = 5\n";
  EXPECT_EQ(Of("engine.deadline", false).in_file, std::nullopt);
  EXPECT_EQ(live_.List(false).file_error, "");
  const session::SettingsReport report = live_.List(true);
  EXPECT_EQ(report.file, "tierd.toml");
  EXPECT_THAT(report.file_error, HasSubstr("tierd.toml:2: option engine.deadline"));
  EXPECT_EQ(report.options.size(), config::Options().size());
  EXPECT_EQ(Of("engine.deadline").in_file, std::nullopt);
}

TEST_F(LiveConfigTest, QuotasAreTakenOver) {
  file_ = std::string(kStart) + "[quota.default]\njobs = 3\n";
  live_.Reload();
  EXPECT_EQ(live_.running().quota.by_default.jobs, 3u);
  EXPECT_THAT(events_,
              ElementsAre(Pair(kConfigReloaded, AllOf(HasSubstr("changed: quotas"), Not(HasSubstr("restart"))))));
}

TEST(LiveConfig, WithoutAFileAReloadPutsBackWhatTheCommandLineSays) {
  const config::Config started = config::ParseConfig(kStart, "command line").value();
  std::string told;
  LiveConfig live(started, {.file = "", .read = [&]() -> Result<config::Config> { return started; }},
                  {.check = [](const config::Config&) { return Status(); },
                   .check_restart = [](const config::Config&) { return Status(); },
                   .move_metrics = [](const config::Config&) { return Status(); },
                   .at_restart = [](const config::Config&) { return std::vector<std::string>(); },
                   .apply = [](const config::Config&, const std::function<void()>& done) { done(); },
                   .tell = [&](const char*, const std::string& message, const std::string&) { told = message; },
                   .post = [](const std::function<void()>& run) { run(); }});
  ASSERT_TRUE(live.Set({.uid = 7, .name = "engine.deadline", .value = "5s"}));
  live.Reload();
  EXPECT_EQ(live.running(), started);
  EXPECT_EQ(told, "the command line (there is no file) was read again; changed: engine.deadline (\"5s\" to \"30s\")");
}

}  // namespace
}  // namespace tier
