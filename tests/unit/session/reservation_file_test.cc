// The file of reserved jobs: what is written is read again, and what is broken keeps no daemon from starting.
#include "daemon/session/reservation_file.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/checksum.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string WithChecksum(const std::string& lines) {
  return lines + fmt::format("crc32c {:08x}\n", storage::Crc32c(std::as_bytes(std::span(lines))));
}

std::vector<Reservation> Some() {
  return {{.uid = 1001, .name = "step-4711", .named = false, .terms = {.guarantee_bytes = 68719476736}},
          {.uid = 1001,
           .name = "nightly",
           .named = true,
           .terms = {.guarantee_bytes = 1, .limit_bytes = 2 * kMiB, .ssd_guarantee_bytes = 3, .ssd_limit_bytes = 4}},
          {.uid = 4026531840, .name = "step-4711", .named = false, .terms = {}}};
}

class ReservationFileTest : public ::testing::Test {
 protected:
  std::vector<Reservation> Load() const {
    const StoredReservations loaded = LoadReservations(path_);
    EXPECT_EQ(loaded.warning, "");
    return loaded.reservations;
  }
  static std::string TextOf(const std::string& path) {
    std::string text;
    std::getline(std::ifstream(path, std::ios::binary), text, '\0');
    return text;
  }

  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/reservations";
};

TEST_F(ReservationFileTest, IsReadAsItWasWritten) {
  EXPECT_THAT(Load(), IsEmpty()) << "there is no file";
  ReservationFile file(path_, std::vector<Reservation>());
  ASSERT_TRUE(file.Save({.version = 1, .reservations = Some()}));
  EXPECT_EQ(Load(), Some());
  ASSERT_TRUE(file.Save({.version = 2, .reservations = {}}));
  EXPECT_THAT(Load(), IsEmpty());
}

// tierctl job set gives a reserved job any of them: the daemon must start again.
TEST_F(ReservationFileTest, HasEveryTermThatAJobMayHave) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const std::vector<Reservation> large = {
      {.uid = 1, .name = "limit", .terms = {.limit_bytes = uint64_t{1} << 61}},
      {.uid = 1, .name = "most", .terms = {kMost, kMost, kMost, kMost}},
      {.uid = 4294967294, .name = std::string(proto::kJobNameSize - 1, 'x'), .named = true, .terms = {1, kMost, 1, 2}}};
  ReservationFile file(path_, std::nullopt);
  ASSERT_TRUE(file.Save({.version = 1, .reservations = large}));
  EXPECT_EQ(Load(), large);
}

TEST_F(ReservationFileTest, AnOlderListDoesNotReplaceALaterOne) {
  ReservationFile file(path_, std::vector<Reservation>());
  ASSERT_TRUE(file.Save({.version = 2, .reservations = Some()}));
  ASSERT_TRUE(file.Save({.version = 1, .reservations = {}}));
  EXPECT_EQ(Load(), Some());
}

// Who compares the latest list with the file need not write it; one that was made before that is late all the same.
TEST_F(ReservationFileTest, AListThatIsThereAlreadyMakesOlderOnesOlder) {
  ReservationFile file(path_, std::vector<Reservation>());
  EXPECT_FALSE(file.Has(0)) << "of another run";
  ASSERT_TRUE(file.Save({.version = 1, .reservations = Some()}));
  EXPECT_TRUE(file.Holds({.version = 3, .reservations = Some()}));
  EXPECT_TRUE(file.Has(3) && !file.Has(1));
  ASSERT_TRUE(file.Save({.version = 2, .reservations = {}}));
  EXPECT_EQ(Load(), Some());
  EXPECT_TRUE(file.Has(3));
}

TEST_F(ReservationFileTest, AWriteThatFailsLeavesItUnknownWhatTheFileHas) {
  const std::string path = directory_.path() + "/missing/reservations";
  ReservationFile file(path, std::vector<Reservation>());
  EXPECT_TRUE(file.Holds({}));
  EXPECT_TRUE(file.Has(0));
  EXPECT_EQ(file.Save({.version = 1, .reservations = Some()}).error().code, Code::kIoError);
  EXPECT_FALSE(file.Holds({})) << "the new file may stand there";
  EXPECT_FALSE(file.Holds({.version = 1, .reservations = Some()}));
  EXPECT_FALSE(file.Has(0) || file.Has(1));
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/missing"));
  ASSERT_TRUE(file.Save({.version = 2, .reservations = {}}));
  EXPECT_TRUE(std::filesystem::exists(path)) << "written, though it is what was there first";
  EXPECT_TRUE(file.Holds({}));
  EXPECT_TRUE(file.Has(2));
}

TEST_F(ReservationFileTest, IsTextAsDocumented) {
  EXPECT_EQ(FormatReservations(Some()),
            WithChecksum("tierd-reservations 1\n"
                         "job 1001 step-4711 guarantee=68719476736\n"
                         "job 1001 nightly named=1 guarantee=1 limit=2097152 ssd_guarantee=3 "
                         "ssd_limit=4\n"
                         "job 4026531840 step-4711\n"));
}

TEST_F(ReservationFileTest, ALineThatIsNoneIsLeftOutAndTheOthersAreTaken) {
  const std::string head = "tierd-reservations 1\njob 1 first\n";
  for (const char* line : {"",
                           "job",
                           "job 1001",
                           "job 1001 ",
                           "job 1001  limit=5",
                           "job x step",
                           "job 4294967295 step",
                           "job 1001 st$ep",
                           "job 1001 step named=0",
                           "job 1001 step named=1 named=1",
                           "job 1001 step guarantee=0",
                           "job 1001 step guarantee=1 guarantee=1",
                           "job 1001 step guarantee",
                           "job 1001 step guarantee=1x",
                           "job 1001 step size=1",
                           "job 1001 step guarantee=3145728 limit=2097152",
                           "job 1001 step limit=2097151",
                           "job 1001 step ssd_guarantee=2 ssd_limit=1",
                           "job 1001 step guarantee=18446744073709551616",
                           "user 1001 step",
                           "job 1 first"}) {
    const auto parsed = ParseReservations(WithChecksum(head + line + "\njob 1 last\n"));
    EXPECT_FALSE(parsed.failure) << line;
    EXPECT_THAT(parsed.refused_lines, ElementsAre(3)) << line;
    ASSERT_EQ(parsed.reservations.size(), 2U) << line;
    EXPECT_EQ(parsed.reservations[0].name, "first");
    EXPECT_EQ(parsed.reservations[1].name, "last");
  }
}

TEST_F(ReservationFileTest, NothingIsTakenWithoutTheChecksumOrOfAnotherVersion) {
  const auto cut = ParseReservations("tierd-reservations 1\njob 1 a\n");
  ASSERT_TRUE(cut.failure);
  EXPECT_EQ(cut.failure->code, Code::kCorrupt);
  EXPECT_THAT(cut.reservations, IsEmpty());
  EXPECT_EQ(ParseReservations("tierd-reservations 2\n").failure->code, Code::kVersion);
  EXPECT_EQ(ParseReservations(std::string(kReservationFileBytesMax + 1, 'x')).failure->code, Code::kCorrupt);
}

// A start takes what there is, and nothing is lost of what it cannot take.
TEST_F(ReservationFileTest, WhatIsNotTakenIsToldAndItsBytesAreKept) {
  const std::string kept = path_ + ".refused";
  for (const std::string& text : {WithChecksum("tierd-reservations 1\njob 1 a\njob 1 b size=1\n"),
                                  std::string("tierd-reservations 1\njob 1 a\n"), std::string("not at all")}) {
    std::ofstream(path_, std::ios::binary) << text;
    const StoredReservations loaded = LoadReservations(path_);
    EXPECT_THAT(loaded.warning, HasSubstr(path_));
    EXPECT_THAT(loaded.warning, HasSubstr("it is kept as " + kept));
    EXPECT_THAT(loaded.warning, HasSubstr("tierctl job open --uid"));
    ReservationFile file(path_, std::nullopt);
    ASSERT_TRUE(file.Save({.version = 1, .reservations = loaded.reservations}));
    EXPECT_EQ(TextOf(kept), text) << "also once the file is another";
    EXPECT_TRUE(LoadReservations(path_).warning.empty());
  }
  EXPECT_THAT(LoadReservations(path_).reservations, IsEmpty()) << "of the last one";
}

TEST_F(ReservationFileTest, AThingThatIsNoFileIsMovedAside) {
  ASSERT_TRUE(std::filesystem::create_directory(path_));
  const StoredReservations loaded = LoadReservations(path_);
  EXPECT_THAT(loaded.warning, HasSubstr("cannot be read"));
  EXPECT_TRUE(std::filesystem::is_directory(path_ + ".refused"));
  ReservationFile file(path_, std::nullopt);
  EXPECT_TRUE(file.Save({.version = 1, .reservations = Some()}));
}

}  // namespace
}  // namespace tier::session
