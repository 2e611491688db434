// Configuration: what is read, what is refused, and that every mistake is told with its line and what would be right.
#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/config.h"
#include "daemon/config/options.h"
#include "daemon/config/quantity.h"
#include "proto/units.h"

namespace tier::config {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Mistake(const std::string& text) {
  const auto config = ParseConfig(text, "tierd.toml");
  if (config) return "accepted";
  EXPECT_EQ(config.error().code, Code::kInvalid);
  return config.error().message;
}

TEST(Config, EmptyFileIsTheDefaults) {
  EXPECT_EQ(ParseConfig("", "x").value(), DefaultConfig());
  const Config config = DefaultConfig();
  EXPECT_EQ(config.arena.maximum.share, 0.25);
  EXPECT_EQ(config.engine.deadline, std::chrono::seconds(60));
  EXPECT_EQ(config.jobs.reclaim_deadline, std::chrono::seconds(30)) << "what a request waits for comes before it ends";
  EXPECT_EQ(config.metrics.listen, "auto");
  EXPECT_EQ(config.arena.numa_node, -1);
  EXPECT_FALSE(config.daemon.is_private);
}

TEST(Config, PrintedDefaultsParseToTheDefaults) {
  const std::string printed = PrintDefaultConfig();
  const auto config = ParseConfig(printed, "printed");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, DefaultConfig());
  for (const Option& option : Options()) {
    EXPECT_THAT(printed, HasSubstr(std::string(option.key.substr(option.key.find('.') + 1)) + " = ")) << option.key;
  }
}

TEST(Config, ReadsEveryKindOfValue) {
  const auto config = ParseConfig(R"(
[daemon]
socket_directory = "/run/x"
private = true
starter_pid = 42
[arena]
maximum = "64GiB"
window_size = "256MiB"
numa_node = -1
[ssd]
devices = ["/dev/nvme0n1", "/srv/tier.ssd"]
queue_depth = 64
engine = "threads"
drive_writes_per_day = 0.3
smart_file = ""
[engine]
deadline = "250ms"
write_behind = "12.5%"
)",
                                  "tierd.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->daemon.socket_directory, "/run/x");
  EXPECT_TRUE(config->daemon.is_private);
  EXPECT_EQ(config->daemon.starter_pid, 42);
  EXPECT_EQ(config->arena.maximum.bytes, 64 * kGiB);
  EXPECT_EQ(config->arena.window_size, 256 * kMiB);
  EXPECT_EQ(config->ssd.devices, (std::vector<std::string>{"/dev/nvme0n1", "/srv/tier.ssd"}));
  EXPECT_EQ(config->ssd.queue_depth, 64u);
  EXPECT_EQ(config->ssd.engine, "threads");
  EXPECT_EQ(config->ssd.drive_writes_per_day, 0.3);
  EXPECT_EQ(config->ssd.smart_file, "");
  EXPECT_EQ(config->engine.deadline, milliseconds(250));
  EXPECT_EQ(config->engine.write_behind, 0.125);
}

struct MistakeCase {
  const char* text;
  const char* message;
};

TEST(Config, SizesWithoutAUnitAreBytes) {
  const char* text = "[arena]\nmaximum = 68719476736\nwindow_size = 0\n[ssd]\nfile_size = \"1073741824\"\n";
  auto config = ParseConfig(text, "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->arena.maximum, (SizeOrShare{.bytes = 64 * kGiB}));
  EXPECT_EQ(config->arena.window_size, 0u);
  EXPECT_EQ(config->ssd.file_size, kGiB);
  ASSERT_TRUE(ApplyOverride("ssd.file_size=2147483648", &*config));
  EXPECT_EQ(config->ssd.file_size, 2 * kGiB);
}

TEST(Config, MistakesAreToldWithLineAndRemedy) {
  const MistakeCase cases[] = {
      {"[arena]\nmaximun = \"1GiB\"\n", "tierd.toml:2: unknown option 'arena.maximun'; the nearest is 'arena.maximum'"},
      {"socket_directory = \"/x\"\n",
       "tierd.toml:1: unknown option 'socket_directory'; the nearest is 'daemon.socket_directory'"},
      {"[ssd]\nmaximum = \"1GiB\"\n", "the nearest is 'arena.maximum'"},
      {"[arena.maximum]\nx = 1\n", "arena.maximum"},
      {"[nothing]\nx = 1\n", "tierd.toml:1: unknown section 'nothing'"},
      {"[arnea]\nmaximum = \"1GiB\"\n", "tierd.toml:1: unknown section 'arnea'; the nearest is 'arena'"},
      {"[log.arena]\nx = 1\n", "unknown section 'log.arena'"},
      {"sdd = { engine = \"auto\" }\n", "unknown section 'sdd'; the nearest is 'ssd'"},
      {"arena = 5\n", "unknown option 'arena'"},
      {"[arena]\nmaximum = 64\n",
       "tierd.toml:2: option arena.maximum: 64 bytes are out of range, allowed are 2 MiB to 1024 TiB; write it "
       "like \"64GiB\""},
      {"[arena]\nmaximum = -64\n", "must be a size like \"64GiB\", or a number of bytes"},
      {"[arena]\nmaximum = 64.0\n", "must be a size"},
      {"[arena]\nmaximum = \"\"\n", "must be a size"},
      {"[arena]\nmaximum = \"64 Gigs\"\n", "unit 'Gigs'; known are B, KiB, MiB, GiB"},
      {"[arena]\nmaximum = \"64\"\n", "64 bytes are out of range"},
      {"[arena]\nmaximum = \"1.5\"\n", "'1.5' has no unit; write it like \"64GiB\""},
      {"[arena]\nmaximum = \"-1GiB\"\n", "not a quantity"},
      {"[arena]\nmaximum = \"101%\"\n", "'101%' is not a share of 0% to 100%"},
      {"[arena]\nmaximum = \"1KiB\"\n", "out of range"},
      {"[arena]\nmaximum = true\n", "must be a size"},
      {"[arena]\nmaximum = 0\n", "tierd.toml:2: option arena.maximum: must not be 0"},
      {"[arena]\nwindow_size = \"3MiB\"\n", "tierd.toml:2: option arena.window_size: 3145728 bytes are not a power"},
      {"[arena]\nwindow_size = \"2GiB\"\n", "out of range"},
      {"[arena]\nmaximum = \"64MiB\"\nwindow_size = \"128MiB\"\n",
       "tierd.toml:2: option arena.maximum: 67108864 bytes are less than one window"},
      {"[arena]\nprefault = \"yes\"\n", "must be true or false"},
      {"[arena]\nhuge_pages = \"maybe\"\n", "\"maybe\" is not one of \"auto\", \"always\", \"never\""},
      {"[arena]\nnuma_node = -2\n", "allowed are -1 to 1023"},
      {"[ssd]\ndevices = \"/dev/x\"\n", "must be a list"},
      {"[ssd]\ndevices = [1]\n", "must be a text"},
      {"[ssd]\ndevices = [\"\"]\n", "empty path"},
      {"[ssd]\ndevices = [\"none\", \"/dev/x\"]\n", "tierd.toml:2: option ssd.devices: \"none\" stands alone"},
      {"[jobs]\nreclaim_deadline = \"500ms\"\n", "option jobs.reclaim_deadline"},
      {"[jobs]\non_unreturned = \"stop\"\n", "charge"},
      {"[jobs]\nidle_after = \"25h\"\n", "option jobs.idle_after"},
      {"[ssd]\nqueue_depth = 0\n", "allowed are 1 to 256"},
      {"[ssd]\nqueue_depth = \"8\"\n", "without a unit"},
      {"[ssd]\ndrive_writes_per_day = -0.1\n", "-0.1 is out of range, allowed are 0, and 0.001 to 1000"},
      {"[ssd]\ndrive_writes_per_day = nan\n", "out of range"},
      {"[ssd]\ndrive_writes_per_day = \"1\"\n", "must be a number like 0.5, without quotes"},
      {"[engine]\ndeadline = \"60\"\n", "no unit; write it like \"250ms\""},
      {"[engine]\ndeadline = 60\n", "must be a time"},
      {"[engine]\ndeadline = \"0s\"\n", "engine.deadline: 0s is out of range, allowed are 10ms to 24h"},
      {"[engine]\nwrite_behind = \"95%\"\n",
       "tierd.toml:2: option engine.write_behind: must not be above engine.evict"},
      {"[engine]\n\nevict = \"10%\"\n", "tierd.toml:3: option engine.write_behind: must not be above engine.evict"},
      {"[engine]\nwrite_behind = 0.5\n", "must be a share"},
      {"[jobs]\nmax_sessions = 99999999\n", "out of range"},
      {"[log]\nlevel = \"loud\"\n", "not one of"},
      {"[arena\n", "tierd.toml:1: "},
      {"[arena]\nmaximum = \"1GiB\"\nmaximum = \"2GiB\"\n", "tierd.toml:3: "},
      {"[daemon]\nsocket_directory = \"a\\u0000b\"\n", "NUL"},
  };
  for (const MistakeCase& c : cases) EXPECT_THAT(Mistake(c.text), HasSubstr(c.message)) << c.text;
}

TEST(Config, ADeviceIsNamedOnce) {
  EXPECT_EQ(Mistake("[ssd]\ndevices = [\"/dev/x\", \"/dev/y\", \"/dev/x\"]\n"),
            "tierd.toml:2: option ssd.devices: /dev/x is named twice: name it once");
  Config config = DefaultConfig();
  ASSERT_TRUE(ApplyOverride("ssd.devices=[\"/dev/x\", \"/dev/x\"]", &config));
  EXPECT_FALSE(CheckConfig(config));
}

TEST(Config, MissingQuotesAreTold) {
  const MistakeCase cases[] = {
      {"[jobs]\nmax_ssd_per_uid = 1GiB\n", "; write sizes in quotes: max_ssd_per_uid = \"1GiB\""},
      {"[arena]\nmaximum = 1.5TB  # of it\r\n", "; write sizes in quotes: maximum = \"1.5TB\""},
      {"[quota.default]\nram = 64 GiB", "tierd.toml:2: "},
      {"[quota.default]\nram = 64 GiB", "; write sizes in quotes: ram = \"64 GiB\""},
      {"[engine]\ndeadline = 60s\n", "; write times in quotes: deadline = \"60s\""},
      {"[engine]\nwrite_behind = 30%\n", "; write shares in quotes: write_behind = \"30%\""},
      {"[log]\nlevel = info\n", "; write texts in quotes: level = \"info\""},
      {"[daemon]\nsocket_directory = /run/x\n", "; write texts in quotes: socket_directory = \"/run/x\""},
  };
  for (const MistakeCase& c : cases) EXPECT_THAT(Mistake(c.text), HasSubstr(c.message)) << c.text;
}

TEST(Config, QuotesAreNotSaidToBeMissingWhereTheyWouldNotHelp) {
  for (const char* text : {"[arena]\nprefault = True\n", "[arena]\nprefault = yes\n", "[engine]\nwrite_behind = 130%\n",
                           "[ssd]\ndevices = [/dev/x]\n", "[arena]\nmaximum = \"1GiB\nx = 1\n", "[arena\n",
                           "[arena]\nmaximum = # 1GiB\n", "[arena]\nmaximum = 1GiB, 2GiB\n", "= 1GiB\n", "level\n"})
    EXPECT_THAT(Mistake(text), Not(HasSubstr("quotes"))) << text;
}

// toml++ 3.3 runs into undefined behaviour on them by itself.
TEST(Config, CharactersFarFromAsciiAreReadOrRefusedByLine) {
  for (const char* character :
       {"\xc2\xa1", "\xc3\xa9", "\xc7\xa7", "\xe2\xb1\xa0", "\xe3\x81\x82", "\xef\xac\xa6", "\xef\xbb\xbb"}) {
    for (const std::string& line :
         {std::string("H") + character + "u = 1", std::string("[") + character + "]",
          std::string("maximum = \"\"\"\\") + character + "\"\"\"", std::string("maximum = 1") + character}) {
      const auto refused = ParseConfig("[arena]\n" + line + "\n", "tierd.toml");
      ASSERT_FALSE(refused.has_value()) << line;
      EXPECT_EQ(refused.error().message.find("tierd.toml:2: "), 0u) << refused.error().message;
    }
    EXPECT_TRUE(ParseConfig(std::string("# ") + character + "\n", "tierd.toml").has_value());
    const auto read = ParseConfig(std::string("[daemon]\ndata_directory = \"/") + character + "\"\n", "tierd.toml");
    EXPECT_TRUE(read.has_value()) << read.error().message;
  }
}

TEST(Config, EveryMistakeOfAFileHasItsLine) {
  for (const char* line : {"x = 1",
                           "arena.x = 1",
                           "[nothing]",
                           "arena.maximum = 0",
                           "arena.maximum = lots",
                           "[arena",
                           "=",
                           "a = ",
                           "[=",
                           "[[+",
                           "a.=1",
                           ".a = 1",
                           "a..b = 1",
                           "[]",
                           "[a.]",
                           "[.a]",
                           "\"\\x\" = 1",
                           "'",
                           "a b",
                           "engine = { evict = \"1%\" }",
                           "ssd.devices = [1]",
                           "a = 00",
                           "a = 2020-13-01",
                           "\x01"}) {
    for (const std::string before : {"", "\n", "# one\nlog.level = \"info\"\n\n"}) {
      const auto at = fmt::format("tierd.toml:{}: ", std::ranges::count(before, '\n') + 1);
      EXPECT_THAT(Mistake(before + line), StartsWith(at)) << line;
      EXPECT_THAT(Mistake(before + line + "\n# behind\n"), StartsWith(at)) << line;
    }
  }
}

TEST(Config, DevicesAndTheSmartFileHaveAbsolutePaths) {
  EXPECT_THAT(Mistake("[ssd]\ndevices = [\"tier.ssd\"]\n"),
              StartsWith("tierd.toml:2: option ssd.devices: \"tier.ssd\" is not an absolute path"));
  EXPECT_THAT(Mistake("[ssd]\ndevices = [\"/a\", \"../b\"]\n"), HasSubstr("\"../b\" is not an absolute path"));
  EXPECT_THAT(Mistake("[ssd]\nsmart_file = \"devices\"\n"), HasSubstr("\"devices\" is not an absolute path"));
}

TEST(Config, MetricsListenOnAWholeAddressOrNone) {
  for (const char* text : {"9464",
                           ":9464",
                           "foo:",
                           ":abc",
                           ":70000",
                           "localhost:99999",
                           "localhost:-1",
                           "localhost:80s",
                           "localhost: 80",
                           "1.2.3:80",
                           "256.0.0.1:80",
                           "::1:80",
                           "[::g]:80",
                           "[]:80",
                           "a b:80",
                           "-:80",
                           "[::1]",
                           "+80",
                           "1.2.3.4:80,5.6.7.8:80",
                           "a\\u0000b:80"}) {
    EXPECT_THAT(Mistake(fmt::format("[metrics]\nlisten = \"{}\"\n", text)),
                HasSubstr("tierd.toml:2: option metrics.listen: "))
        << text;
  }
  EXPECT_THAT(Mistake("[metrics]\nlisten = \"9464\"\n"), HasSubstr("\"9464\" is not ADDRESS:PORT; write it like"));
  EXPECT_THAT(Mistake("[metrics]\nlisten = 9464\n"), HasSubstr("must be a text"));
  for (const std::string text :
       {"", "auto", "127.0.0.1:0", "0.0.0.0:65535", "[::1]:9464", "localhost:1", "node-3.rack:9464"}) {
    Config config = DefaultConfig();
    EXPECT_TRUE(ApplyOverride("metrics.listen=" + text, &config)) << text;
    EXPECT_EQ(config.metrics.listen, text);
  }
}

TEST(Override, TakesTomlAndPlainText) {
  Config config = DefaultConfig();
  EXPECT_TRUE(ApplyOverride("arena.maximum=1GiB", &config));
  EXPECT_TRUE(ApplyOverride("arena.maximum=\"2GiB\"", &config));
  EXPECT_EQ(config.arena.maximum.bytes, 2 * kGiB);
  EXPECT_TRUE(ApplyOverride("daemon.private=true", &config));
  EXPECT_TRUE(config.daemon.is_private);
  EXPECT_TRUE(ApplyOverride("ssd.devices=[\"/a\", \"/b\"]", &config));
  EXPECT_EQ(config.ssd.devices.size(), 2u);
  EXPECT_TRUE(ApplyOverride("daemon.socket_directory=/tmp/a=b", &config));
  EXPECT_EQ(config.daemon.socket_directory, "/tmp/a=b");
  EXPECT_TRUE(ApplyOverride("metrics.listen=", &config));
  EXPECT_EQ(config.metrics.listen, "");
  EXPECT_TRUE(ApplyOverride("ssd.drive_writes_per_day=2", &config));
  EXPECT_EQ(config.ssd.drive_writes_per_day, 2.0) << "a whole number is one too";
  EXPECT_TRUE(ApplyOverride("engine.deadline=2s", &config));
  EXPECT_EQ(config.engine.deadline, std::chrono::seconds(2));
}

TEST(Override, RefusesAWriteBudgetThatIsNone) {
  Config config = DefaultConfig();
  for (const char* value : {"1e-300", "0.0009", "-1e-300", "1000.5", "inf"}) {
    const Status set = ApplyOverride(std::string("ssd.drive_writes_per_day=") + value, &config);
    ASSERT_FALSE(set) << value;
    EXPECT_THAT(set.error().message, HasSubstr("out of range, allowed are 0, and 0.001 to 1000")) << value;
  }
  EXPECT_EQ(config, DefaultConfig());
}

TEST(Override, RefusesLikeTheFile) {
  Config config = DefaultConfig();
  EXPECT_THAT(ApplyOverride("arena.maximum", &config).error().message, HasSubstr("OPTION=VALUE"));
  EXPECT_THAT(ApplyOverride("arena.max=1GiB", &config).error().message, HasSubstr("arena.maximum"));
  EXPECT_FALSE(ApplyOverride("arena.maximum=lots", &config));
  EXPECT_FALSE(ApplyOverride("ssd.queue_depth=-1", &config));
  EXPECT_FALSE(ApplyOverride("ssd.drive_writes_per_day=much", &config));
  EXPECT_FALSE(ApplyOverride("daemon.private=1\nx=2", &config));
  EXPECT_EQ(config, DefaultConfig());
}

TEST(Config, ChangedOptionsAreNamedInTheOrderOfTheTable) {
  const auto before = ParseConfig("[arena]\nmaximum = \"1GiB\"", "before").value();
  EXPECT_TRUE(ChangedOptions(before, before).empty());
  const auto after = ParseConfig(R"(
[log]
level = "debug"
[engine]
deadline = "1s"
[ssd]
devices = ["/dev/nvme0n1"]
[daemon]
private = true
[arena]
maximum = "25%"
[metrics]
listen = "auto"
)",
                                 "after")
                         .value();
  EXPECT_THAT(ChangedOptions(before, after),
              ElementsAre("daemon.private", "arena.maximum", "ssd.devices", "engine.deadline", "log.level"))
      << "metrics.listen is what it was";
}

TEST(Options, NamesAreUniqueAndHelpIsThere) {
  std::set<std::string_view> keys;
  for (const Option& option : Options()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_GT(option.help.size(), 20u) << option.key;
    EXPECT_EQ(FindOption(option.key), &option);
    EXPECT_EQ(NearestOption(option.key)->key, option.key);
    EXPECT_EQ(option.kind == Kind::kChoice, !option.choices.empty()) << option.key;
  }
}

TEST(Config, AnOptionThatIsLikeNoneIsAnsweredWithTheCommandThatListsAll) {
  const auto refused = ParseConfig("[ssd]\nnope = 1\n", "tierd.toml");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "tierd.toml:2: unknown option 'ssd.nope'; tierd --print-default-config lists all");
}

TEST(Options, AreFoundInSentences) {
  EXPECT_TRUE(NamesAnOption("it is too large; lower arena.maximum"));
  EXPECT_FALSE(NamesAnOption("the arena is at its maximum"));
}

TEST(Options, TheNearestIsOneThatMayHaveBeenMeant) {
  const auto nearest = [](std::string_view key) {
    const Option* const option = NearestOption(key);
    return option == nullptr ? std::string_view() : option->key;
  };
  EXPECT_EQ(nearest("engine.deadlin"), "engine.deadline");
  EXPECT_EQ(nearest("jobs.deadline"), "engine.deadline") << "in another section";
  EXPECT_EQ(nearest("queue_dpeth"), "ssd.queue_depth");
  EXPECT_EQ(nearest("arena.max"), "arena.maximum") << "its beginning";
  for (const std::string& key : {std::string(), std::string("nope"), std::string("no.such.option"), std::string("x.y"),
                                 std::string(100'000, 'x')})
    EXPECT_EQ(nearest(key), "") << key.substr(0, 20);
}

TEST(Quantity, DurationsAreWrittenInTheLargestUnitThatLeavesNothingOver) {
  for (const auto* text : {"0s", "1ns", "1500ns", "10ms", "60s", "90s", "24h"}) {
    const auto duration = ParseDuration(text);
    ASSERT_TRUE(duration) << text;
    EXPECT_EQ(ParseDuration(FormatDuration(*duration)).value(), *duration) << text;
  }
  EXPECT_EQ(FormatDuration(std::chrono::milliseconds(1500)), "1500ms");
  EXPECT_EQ(FormatDuration(std::chrono::minutes(2)), "120s");
  EXPECT_EQ(FormatDuration(std::chrono::hours(24)), "24h");
}

TEST(Quantity, SizesHaveBinaryAndDecimalUnits) {
  EXPECT_EQ(ParseSize("64GiB").value(), 64 * kGiB);
  EXPECT_EQ(ParseSize("1.5 GiB").value(), 1536 * kMiB);
  EXPECT_EQ(ParseSize("0.5MiB").value(), 512 * kKiB);
  EXPECT_EQ(ParseSize("4096B").value(), 4096u);
  EXPECT_EQ(ParseSize("1GB").value(), 1'000'000'000u);
  EXPECT_EQ(ParseSize("2TiB").value(), 2048 * kGiB);
  EXPECT_EQ(ParseSize("4096").value(), 4096u);
  for (const char* bad : {"GiB", "1gib", "1e3GiB", "-1GiB", "+1GiB", "1 GiB ", " 1GiB", "1GiBx", "nanGiB", "infGiB",
                          "1e400GiB", "99999999999TiB", "0x10GiB"}) {
    EXPECT_FALSE(ParseSize(bad)) << bad;
  }
}

TEST(Quantity, TimesHaveUnits) {
  EXPECT_EQ(ParseDuration("250ms").value(), milliseconds(250));
  EXPECT_EQ(ParseDuration("1.5s").value(), milliseconds(1500));
  EXPECT_EQ(ParseDuration("2min").value(), std::chrono::seconds(120));
  EXPECT_EQ(ParseDuration("1h").value(), std::chrono::hours(1));
  EXPECT_EQ(ParseDuration("10us").value(), std::chrono::microseconds(10));
  for (const char* bad : {"5", "5 sec", "s", "-5s", "5d", "1e19s"}) EXPECT_FALSE(ParseDuration(bad)) << bad;
}

TEST(Quantity, SharesAreZeroToHundredPercent) {
  EXPECT_EQ(ParseShare("25%").value(), 0.25);
  EXPECT_EQ(ParseShare("0%").value(), 0.0);
  EXPECT_EQ(ParseShare("100 %").value(), 1.0);
  for (const char* bad : {"25", "%", "101%", "-1%", "25%%"}) EXPECT_FALSE(ParseShare(bad)) << bad;
}

TEST(SizeOrShare, IsOneOrTheOther) {
  EXPECT_EQ((SizeOrShare{.bytes = 5}).Of(100), 5u);
  EXPECT_EQ((SizeOrShare{.share = 0.25}).Of(100), 25u);
  EXPECT_TRUE(SizeOrShare{}.derived());
}

}  // namespace
}  // namespace tier::config
