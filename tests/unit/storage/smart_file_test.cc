// The file by which tierd-smart tells the daemon: what is written is read back, and nothing else is taken.
#include "daemon/storage/smart_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

SmartReport Report() {
  return {.time = 1'764'266'400,
          .devices = {{.path = "/dev/nvme0n1",
                       .name = "nvme0n1",
                       .serial = "S4EWNX0R123456",
                       .time = 1'764'266'400,
                       .figures = {.temperature_kelvin = 311,
                                   .available_spare = 100,
                                   .spare_threshold = 10,
                                   .percentage_used = 2,
                                   .written_bytes = 632'098'304'000,
                                   .media_errors = 0}},
                      {.path = "/mnt/a disk/tier.ssd",
                       .name = "nvme1n1",
                       .serial = kSmartSerialUnknown,
                       .time = 1'764'262'000,
                       .figures = {.warnings = 5,
                                   .available_spare = 3,
                                   .spare_threshold = 10,
                                   .percentage_used = 255,
                                   .written_bytes = std::numeric_limits<uint64_t>::max(),
                                   .media_errors = 9}}}};
}
const std::string kText =
    "tierd-smart 2\n"
    "time 1764266400\n"
    "device 1764266400 0 311 100 10 2 632098304000 0 nvme0n1 S4EWNX0R123456 /dev/nvme0n1\n"
    "device 1764262000 5 0 3 10 255 18446744073709551615 9 nvme1n1 - /mnt/a disk/tier.ssd\n"
    "end 2\n";

// docs/formats.md has this text as its example.
TEST(SmartFile, AReportIsWrittenAsTheDocumentSays) { EXPECT_EQ(FormatSmartReport(Report()), kText); }

TEST(SmartFile, WhatIsWrittenIsReadBack) {
  EXPECT_EQ(ParseSmartReport(kText), Report());
  const SmartReport none{.time = 0, .devices = {}};
  EXPECT_EQ(ParseSmartReport(FormatSmartReport(none)), none);
}

TEST(SmartFile, ATextThatIsCutShortIsRefusedAnywhere) {
  for (size_t length = 0; length < kText.size(); ++length) {
    const auto report = ParseSmartReport(std::string_view(kText).substr(0, length));
    ASSERT_FALSE(report) << length << " bytes";
    EXPECT_EQ(report.error().code, Code::kCorrupt);
  }
}

TEST(SmartFile, EveryOtherByteAtAnyPlaceIsRefusedOrSaysAnotherFigure) {
  for (size_t at = 0; at < kText.size(); ++at) {
    for (const char other : {'\0', '\n', ' ', '-', '0', '9', 'x', '\x7f', '\xff'}) {
      if (kText[at] == other) continue;
      std::string text = kText;
      text[at] = other;
      const auto report = ParseSmartReport(text);
      if (!report) continue;
      EXPECT_NE(*report, Report()) << "byte " << at;
      EXPECT_EQ(FormatSmartReport(*report), text) << "one report has one text";
    }
  }
}

struct Refused {
  const char* name;
  const char* text;
  Code code;
  const char* says;
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class SmartFileRefusals : public ::testing::TestWithParam<Refused> {};

TEST_P(SmartFileRefusals, SayWhichLineIsWrong) {
  const auto report = ParseSmartReport(GetParam().text);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, GetParam().code);
  EXPECT_THAT(report.error().message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, SmartFileRefusals,
    ::testing::Values(
        Refused{"Empty", "", Code::kCorrupt, "line 1"},
        Refused{"OtherProgram", "smartctl 1\n", Code::kCorrupt, "line 1"},
        Refused{"Earlier", "tierd-smart 1\nanything", Code::kVersion, "version 1"},
        Refused{"Later", "tierd-smart 3\nanything", Code::kVersion, "version 3"},
        Refused{"NoVersion", "tierd-smart x\n", Code::kCorrupt, "line 1"},
        Refused{"NoTime", "tierd-smart 2\nend 0\n", Code::kCorrupt, "line 2 has no time"},
        Refused{"LateTime", "tierd-smart 2\ntime 99999999999999\nend 0\n", Code::kCorrupt, "line 2"},
        Refused{"Negative", "tierd-smart 2\ntime -1\nend 0\n", Code::kCorrupt, "line 2"},
        Refused{"LeadingZero", "tierd-smart 2\ntime 01\nend 0\n", Code::kCorrupt, "line 2"},
        Refused{"UnknownLine", "tierd-smart 2\ntime 1\nfan 3\nend 0\n", Code::kCorrupt, "line 3"},
        Refused{"FewFields", "tierd-smart 2\ntime 1\ndevice 1 0 1 n s /a\nend 1\n", Code::kCorrupt, "line 3"},
        Refused{"Absurd", "tierd-smart 2\ntime 1\ndevice 1 0 0 101 0 0 0 0 n s /a\nend 1\n", Code::kCorrupt, "line 3"},
        Refused{"UnknownWarning", "tierd-smart 2\ntime 1\ndevice 1 64 0 1 0 0 0 0 n s /a\nend 1\n", Code::kCorrupt,
                "line 3"},
        Refused{"Overflow", "tierd-smart 2\ntime 1\ndevice 1 0 0 1 0 0 18446744073709551616 0 n s /a\nend 1\n",
                Code::kCorrupt, "line 3"},
        Refused{"LateDevice", "tierd-smart 2\ntime 1\ndevice 99999999999999 0 0 1 0 0 0 0 n s /a\nend 1\n",
                Code::kCorrupt, "line 3"},
        Refused{"NoPath", "tierd-smart 2\ntime 1\ndevice 1 0 0 1 0 0 0 0 n s \nend 1\n", Code::kCorrupt, "line 3"},
        Refused{"NoName", "tierd-smart 2\ntime 1\ndevice 1 0 0 1 0 0 0 0  s /a\nend 1\n", Code::kCorrupt, "line 3"},
        Refused{"NoSerial", "tierd-smart 2\ntime 1\ndevice 1 0 0 1 0 0 0 0 n /a\nend 1\n", Code::kCorrupt, "line 3"},
        Refused{"ControlInSerial", "tierd-smart 2\ntime 1\ndevice 1 0 0 1 0 0 0 0 n \t /a\nend 1\n", Code::kCorrupt,
                "line 3"},
        Refused{"ControlInPath", "tierd-smart 2\ntime 1\ndevice 1 0 0 1 0 0 0 0 n s /a\tb\nend 1\n", Code::kCorrupt,
                "line 3"},
        Refused{"Twice", "tierd-smart 2\ntime 1\ndevice 1 0 0 1 0 0 0 0 n s /a\ndevice 1 0 0 1 0 0 0 0 n s /a\nend 2\n",
                Code::kCorrupt, "line 4 names a device again"},
        Refused{"OtherCount", "tierd-smart 2\ntime 1\nend 1\n", Code::kCorrupt, "line 3 counts other devices"},
        Refused{"Behind", "tierd-smart 2\ntime 1\nend 0\n\n", Code::kCorrupt, "line 4 follows the end"}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(SmartFile, OneDeviceTooManyIsRefused) {
  std::string text = "tierd-smart 2\ntime 1\n";
  for (size_t i = 0; i <= kSmartDevicesMax; ++i) text += "device 1 0 0 1 0 0 0 0 n s /" + std::to_string(i) + "\n";
  EXPECT_THAT(ParseSmartReport(text + "end 129\n").error().message, HasSubstr("one device too many"));
}

// A RAID: the figures are as old as those of the device that is silent for the longest.
TEST(SmartFile, ThePathHasTheWorstOfWhatStandsBehindIt) {
  SmartReport report = Report();
  report.devices[0].path = report.devices[1].path;
  EXPECT_EQ(ParseSmartReport(FormatSmartReport(report)), report) << "a path may have several";
  const auto health = HealthOf(report, "/mnt/a disk/tier.ssd");
  ASSERT_TRUE(health);
  EXPECT_EQ(health->figures, WorseOf(report.devices[0].figures, report.devices[1].figures));
  EXPECT_EQ(health->time, 1'764'262'000);
  EXPECT_FALSE(HealthOf(report, "/dev/nvme0n1"));
}

TEST(SmartFile, IsStaleAfterAnHourAndAfterTheClockWasSet) {
  constexpr int64_t kTime = 10'000'000;
  EXPECT_FALSE(IsStale(kTime, kTime));
  EXPECT_FALSE(IsStale(kTime, kTime + kSmartStaleSeconds));
  EXPECT_TRUE(IsStale(kTime, kTime + kSmartStaleSeconds + 1));
  EXPECT_FALSE(IsStale(kTime, kTime - 60));
  EXPECT_TRUE(IsStale(kTime, kTime - kSmartStaleSeconds - 1)) << "it was written in the future";
}

TEST(SmartFile, IsReplacedAsAWhole) {
  const testing::ScratchDirectory directory;
  const std::string path = directory.File("devices");
  std::ofstream(path + ".new") << "tierd-smart 2\nof a run that was killed";
  ASSERT_TRUE(WriteSmartFile(path, Report()));
  EXPECT_EQ(ReadSmartFile(path), Report());
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  struct stat about{};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0644u) << "the daemon is another user";
  SmartReport later = Report();
  ++later.time;
  ASSERT_TRUE(WriteSmartFile(path, later));
  EXPECT_EQ(ReadSmartFile(path), later);
  EXPECT_EQ(WriteSmartFile(directory.File("no/devices"), later).error().code, Code::kNotFound);
}

// The one who writes is root.
TEST(SmartFile, ReplacesNothingButAFileOfItsOwn) {
  const testing::ScratchDirectory directory;
  const auto expect_refused = [](const std::string& path) {
    for (const Status& refused : {CheckSmartTarget(path), WriteSmartFile(path, Report())}) {
      ASSERT_FALSE(refused) << path;
      EXPECT_EQ(refused.error().code, Code::kInvalid) << path;
      EXPECT_THAT(refused.error().message, AllOf(HasSubstr(" is left untouched: "), HasSubstr("ssd.smart_file")));
    }
    EXPECT_FALSE(std::filesystem::is_regular_file(path + ".new")) << "no draft is left";
  };
  const std::string fifo = directory.File("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_refused(fifo);
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  const std::string folder = directory.File("folder");
  std::filesystem::create_directory(folder);
  expect_refused(folder);
  const std::string text = directory.File("text");
  for (const char* words : {"tierd", "tierd-smarter", "the only copy"}) {
    std::ofstream(text, std::ios::trunc) << words;
    expect_refused(text);
    EXPECT_EQ(std::filesystem::file_size(text), std::string(words).size());
  }
  const std::string link = directory.File("link");
  std::filesystem::create_symlink(text, link);
  expect_refused(link);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  expect_refused(text + "/below");
  const std::string path = directory.File("devices");
  ASSERT_EQ(::mkfifo((path + ".new").c_str(), 0600), 0);
  EXPECT_TRUE(CheckSmartTarget(path));
  EXPECT_EQ(WriteSmartFile(path, Report()).error().code, Code::kInvalid) << "what has the draft's name";
  EXPECT_TRUE(std::filesystem::is_fifo(path + ".new"));
}

TEST(SmartFile, ReplacesOneThatIsEmptyOrOfAnotherVersion) {
  const testing::ScratchDirectory directory;
  const std::string path = directory.File("devices");
  for (const char* words : {"", "tierd-smart 1\n", "tierd-smart 2\ncut sho"}) {
    std::ofstream(path, std::ios::trunc) << words;
    EXPECT_TRUE(WriteSmartFile(path, Report())) << words;
    EXPECT_EQ(ReadSmartFile(path), Report());
  }
}

TEST(SmartFile, WhatIsNoFileOfItsIsRefused) {
  const testing::ScratchDirectory directory;
  EXPECT_EQ(ReadSmartFile(directory.File("absent")).error().code, Code::kNotFound);
  EXPECT_EQ(ReadSmartFile(directory.path()).error().code, Code::kInvalid);
  const std::string fifo = directory.File("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(ReadSmartFile(fifo).error().code, Code::kInvalid) << "and nothing waits for its writer";
  const std::string link = directory.File("link");
  std::filesystem::create_symlink("/etc/passwd", link);
  EXPECT_EQ(ReadSmartFile(link).error().code, Code::kInvalid);
  const std::string path = directory.File("devices");
  std::ofstream(path) << std::string(kSmartFileMax + 1, 'x');
  EXPECT_THAT(ReadSmartFile(path).error().message, HasSubstr("more than"));
  std::ofstream(path, std::ios::trunc) << "tierd-smart 2\n";
  EXPECT_THAT(ReadSmartFile(path).error().message, AllOf(HasSubstr(path), HasSubstr("line 2")));
}

}  // namespace
}  // namespace tier::storage
