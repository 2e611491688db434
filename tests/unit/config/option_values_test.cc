// Values of options as text, and what a running daemon takes over of another configuration.
#include "daemon/config/option_values.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/config.h"

namespace tier::config {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// What it says of the option, with the rest at its defaults.
Config Read(const Option& option, const std::string& value) {
  const size_t dot = option.key.find('.');
  const auto config =
      ParseConfig(fmt::format("[{}]\n{} = {}\n", option.key.substr(0, dot), option.key.substr(dot + 1), value), "text");
  EXPECT_TRUE(config) << option.key << " = " << value << ": " << (config ? "" : config.error().message);
  return config.value_or(DefaultConfig());
}

std::string TextAfter(std::string_view key, const std::string& value) {
  const Option& option = *FindOption(key);
  return ValueText(option, Read(option, value));
}

TEST(OptionValues, EveryDefaultIsReadAgainAsItself) {
  const Config defaults = DefaultConfig();
  for (const Option& option : Options()) EXPECT_EQ(Read(option, ValueText(option, defaults)), defaults) << option.key;
}

TEST(OptionValues, AreWrittenAsPeopleWriteThem) {
  EXPECT_EQ(TextAfter("arena.maximum", "\"64GiB\""), "\"64GiB\"");
  EXPECT_EQ(TextAfter("arena.maximum", "\"12.5%\""), "\"12.5%\"");
  EXPECT_EQ(TextAfter("arena.maximum", "3145728"), "\"3MiB\"");
  EXPECT_EQ(TextAfter("ssd.file_size", "100000001"), "100000001");
  EXPECT_EQ(TextAfter("ssd.file_size", "0"), "0");
  EXPECT_EQ(TextAfter("engine.write_behind", "\"29%\""), "\"29%\"");
  EXPECT_EQ(TextAfter("ssd.drive_writes_per_day", "0.3"), "0.3");
  EXPECT_EQ(TextAfter("ssd.drive_writes_per_day", "2"), "2");
  EXPECT_EQ(TextAfter("ssd.drive_writes_per_day", "0.001"), "0.001");
  EXPECT_EQ(TextAfter("ssd.drive_writes_per_day", "-0.0"), "0");
  EXPECT_EQ(TextAfter("engine.deadline", "\"1500ms\""), "\"1500ms\"");
  EXPECT_EQ(TextAfter("engine.deadline", "\"2min\""), "\"120s\"");
  EXPECT_EQ(TextAfter("jobs.idle_after", "\"0s\""), "\"0s\"");
  EXPECT_EQ(TextAfter("jobs.idle_after", "\"24h\""), "\"24h\"");
  EXPECT_EQ(TextAfter("arena.numa_node", "-1"), "-1");
  EXPECT_EQ(TextAfter("arena.prefault", "true"), "true");
  EXPECT_EQ(TextAfter("ssd.devices", R"(["/dev/a", "/x \"y\" \\"])"), R"(["/dev/a", "/x \"y\" \\"])");
  EXPECT_EQ(TextAfter("ssd.devices", "[]"), "[]");
}

TEST(OptionValues, WhateverIsWrittenIsReadAgainAsItself) {
  const std::pair<std::string_view, std::string> values[] = {{"daemon.data_directory", R"("/a \"b\" \\c\n\té")"},
                                                             {"ssd.devices", R"(["/\u0001", "/ü"])"},
                                                             {"jobs.max_metadata", "1073741825"},
                                                             {"engine.deadline", "\"10000001ns\""},
                                                             {"engine.evict", "\"99.9999%\""},
                                                             {"arena.host_reserve", "\"0.0001%\""},
                                                             {"metrics.listen", "\"[::1]:0\""},
                                                             {"log.level", "\"debug\""}};
  for (const auto& [key, value] : values) {
    const Option& option = *FindOption(key);
    const Config config = Read(option, value);
    EXPECT_EQ(Read(option, ValueText(option, config)), config) << key << " = " << value;
  }
}

// The list is part of what users rely on: a change of it is a change of the manual.
TEST(Options, ChangeAtRunTimeOrWaitForARestart) {
  std::vector<std::string_view> at_run_time;
  for (const Option& option : Options()) {
    if (option.change == Change::kAtRunTime) at_run_time.push_back(option.key);
  }
  EXPECT_THAT(
      at_run_time,
      ElementsAre("arena.minimum", "arena.host_reserve", "ssd.drive_writes_per_day", "ssd.smart_file", "engine.spin",
                  "engine.deadline", "engine.write_behind", "engine.evict", "engine.prefetch_maximum",
                  "engine.drain_timeout", "jobs.max_sessions", "jobs.max_jobs_per_uid", "jobs.max_attaches_per_second",
                  "jobs.max_tensors", "jobs.max_leases", "jobs.max_metadata", "jobs.max_ssd_per_uid",
                  "jobs.reclaim_deadline", "jobs.on_unreturned", "jobs.idle_after", "jobs.stall_threshold",
                  "metrics.listen", "log.level", "log.format"));
}

TEST(Options, TheDefaultFileSaysOfEachWhenAChangeTakesEffect) {
  const std::string text = PrintDefaultConfig();
  for (const Option& option : Options()) {
    const std::string line = fmt::format(
        "{}\n{} = {}\n",
        option.change == Change::kAtRunTime ? "# A change takes effect at a reload." : "# A change needs a restart.",
        option.key.substr(option.key.find('.') + 1), option.default_toml);
    EXPECT_NE(text.find(line), std::string::npos) << option.key;
  }
}

TEST(Options, TheDefaultFileListsTheValuesOfAChoice) {
  const std::string text = PrintDefaultConfig();
  const auto has = [&text](const char* lines) { return text.find(lines) != std::string::npos; };
  EXPECT_TRUE(
      has("# One of \"debug\", \"info\", \"warning\", \"error\".\n"
          "# A change takes effect at a reload.\nlevel = \"info\"\n"));
  EXPECT_TRUE(has("# One of \"auto\", \"never\".\n# A change needs a restart.\ncollapse = \"auto\"\n"));
}

TEST(OptionValues, OnlyWhatMayChangeIsTakenOver) {
  const Config running = ParseConfig("[ssd]\nqueue_depth = 8\n[engine]\nevict = \"80%\"\n", "running").value();
  const Config wanted = ParseConfig(R"(
[ssd]
queue_depth = 16
[engine]
deadline = "1s"
[arena]
prefault = true
[quota.default]
jobs = 3
)",
                                    "wanted")
                            .value();
  const Config next = WithRunTimeOptions(running, wanted);
  EXPECT_EQ(next.ssd.queue_depth, 8u);
  EXPECT_FALSE(next.arena.prefault);
  EXPECT_EQ(next.engine.deadline, std::chrono::seconds(1));
  EXPECT_EQ(next.engine.evict, DefaultConfig().engine.evict) << "the file names it no more";
  EXPECT_EQ(next.quota.by_default.jobs, 3u);
  EXPECT_THAT(WaitingForRestart(running, wanted), ElementsAre("arena.prefault", "ssd.queue_depth"));
  EXPECT_THAT(ChangedOptions(running, next), ElementsAreArray({"engine.deadline", "engine.evict"}));
}

}  // namespace
}  // namespace tier::config
