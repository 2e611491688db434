// The owners of sockets: their names, their numbers, and the file of both.
#include "daemon/session/owner_table.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/quota_book.h"
#include "daemon/storage/checksum.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using ::testing::HasSubstr;
using tiering::QuotaLevel;

std::string WithChecksum(const std::string& lines) {
  return lines + fmt::format("crc32c {:08x}\n", storage::Crc32c(std::as_bytes(std::span(lines))));
}

class OwnerTableTest : public ::testing::Test {
 protected:
  OwnerTable Read() { return {path_, LoadOwners(path_).value()}; }
  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/owners";
};

TEST(OwnerName, IsAWordAndNeverAPath) {
  for (const char* name : {"a", "pod-a", "Pod_1.b", "0x7", "1-2"}) EXPECT_TRUE(CheckOwnerName(name)) << name;
  EXPECT_TRUE(CheckOwnerName(std::string(kOwnerNameSizeMax, 'x')));
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/a"), std::string("-a"),
        std::string("_a"), std::string(".a"), std::string("a b"), std::string("a\n"), std::string("a\0b", 3),
        std::string("\xc3\xa4"), std::string("1001"), std::string("a:b"), std::string(kOwnerNameSizeMax + 1, 'x')}) {
    const Status named = CheckOwnerName(name);
    ASSERT_FALSE(named) << name;
    EXPECT_EQ(named.error().code, Code::kInvalid);
    EXPECT_THAT(named.error().message, HasSubstr("the name of an owner"));
  }
}

TEST_F(OwnerTableTest, ANameKeepsItsNumberAcrossRestartsAndClosing) {
  {
    OwnerTable table = Read();
    EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst);
    EXPECT_EQ(table.Open("pod-b").value(), kOwnerUidFirst + 1);
    EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst) << "it is open";
    ASSERT_TRUE(table.Close("pod-a"));
    ASSERT_TRUE(table.Close("pod-a")) << "again";
  }
  OwnerTable table = Read();
  const auto listed = table.List();
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].second, (OwnerEntry{.uid = kOwnerUidFirst, .open = false}));
  EXPECT_EQ(listed[1].second, (OwnerEntry{.uid = kOwnerUidFirst + 1, .open = true}));
  EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst);
  EXPECT_EQ(table.UidOf("pod-b"), kOwnerUidFirst + 1);
  EXPECT_EQ(table.NameOf(kOwnerUidFirst + 1), "pod-b");
  EXPECT_EQ(table.NameOf(1001), "");
  EXPECT_EQ(table.UidOf("pod-c"), std::nullopt);
  EXPECT_EQ(table.Close("pod-c").error().code, Code::kNotFound);
}

TEST_F(OwnerTableTest, ANumberIsNeverGivenTwice) {
  {
    OwnerTable table = Read();
    ASSERT_TRUE(table.Open("pod-a"));
    ASSERT_TRUE(table.Remove("pod-a"));
    EXPECT_EQ(table.Remove("pod-a").error().code, Code::kNotFound);
  }
  OwnerTable table = Read();
  EXPECT_TRUE(table.List().empty());
  EXPECT_EQ(table.Open("pod-b").value(), kOwnerUidFirst + 1);
  EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst + 2) << "another owner of this name";
}

TEST_F(OwnerTableTest, WhatCannotBeOpenedChangesNothing) {
  OwnerTable nowhere({}, {});
  EXPECT_EQ(nowhere.Open("pod-a").error().code, Code::kDenied);
  EXPECT_EQ(Read().Open("../tierd").error().code, Code::kInvalid);
  OwnerRecords many;
  for (size_t i = 0; i < kOwnersMax; ++i)
    many.owners.emplace("pod-" + std::to_string(i), OwnerEntry{.uid = many.next++, .open = false});
  OwnerTable full(path_, many);
  const auto refused = full.Open("one-more");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("tierctl socket close --owner NAME --purge"));
  EXPECT_TRUE(full.Open("pod-7")) << "it has a number";
  ASSERT_TRUE(full.Remove("pod-8"));
  EXPECT_TRUE(full.Open("one-more"));
  OwnerTable lost(directory_.path() + "/missing/owners", {});
  EXPECT_EQ(lost.Open("pod-a").error().code, Code::kIoError);
  EXPECT_EQ(lost.UidOf("pod-a"), std::nullopt);
}

// The file was lost, or an older copy of it was put back.
TEST_F(OwnerTableTest, ANumberThatIsInUseElsewhereIsGivenToNoOne) {
  {
    OwnerTable table = Read();
    for (const uint32_t uid : {uint32_t{1001}, kOwnerUidLast + 1, kOwnerUidFirst + 1, kOwnerUidFirst + 2})
      table.Exclude(uid);
    EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst);
    EXPECT_EQ(table.Open("pod-b").value(), kOwnerUidFirst + 3);
  }
  OwnerTable table = Read();
  EXPECT_EQ(table.Open("pod-c").value(), kOwnerUidFirst + 4) << "as durable as any other";
}

// One quota, by a mistake, of the highest number there is.
TEST_F(OwnerTableTest, ANumberThatIsInUseKeepsNoOtherFromOwners) {
  OwnerTable table = Read();
  table.Exclude(kOwnerUidLast);
  EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst);
  EXPECT_EQ(table.Open("pod-b").value(), kOwnerUidFirst + 1);
}

TEST_F(OwnerTableTest, OnceTheLastNumberWasGivenThoseThatNothingNamesAreGivenAgain) {
  OwnerTable table(path_, {.next = kOwnerUidLast, .owners = {{"pod-z", {.uid = kOwnerUidFirst + 1, .open = true}}}});
  table.Exclude(kOwnerUidFirst);
  EXPECT_EQ(table.Open("last").value(), kOwnerUidLast);
  EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst + 2) << "one is excluded, the other is that of pod-z";
  ASSERT_TRUE(table.Remove("pod-a"));
  EXPECT_EQ(table.Open("pod-a").value(), kOwnerUidFirst + 3) << "who was pod-a may be connected still";
  OwnerTable next = Read();
  EXPECT_EQ(next.UidOf("pod-a"), kOwnerUidFirst + 3);
  EXPECT_EQ(next.Open("pod-b").value(), kOwnerUidFirst) << "nothing names it any more";
  EXPECT_EQ(next.Open("pod-c").value(), kOwnerUidFirst + 2);
}

TEST_F(OwnerTableTest, ASuspendedOwnerIsNone) {
  OwnerTable table = Read();
  const uint32_t uid = table.Open("pod-a").value();
  EXPECT_TRUE(table.IsOwner(uid));
  EXPECT_FALSE(table.IsOwner(uid + 1));
  table.Suspend(uid);
  EXPECT_FALSE(table.IsOwner(uid));
  EXPECT_EQ(table.NameOf(uid), "pod-a") << "lists name it";
  table.EndSuspension(uid);
  EXPECT_TRUE(table.IsOwner(uid));
  ASSERT_TRUE(table.Remove("pod-a"));
  EXPECT_FALSE(table.IsOwner(uid));
}

TEST_F(OwnerTableTest, TheFileIsTextAsDocumented) {
  OwnerTable table = Read();
  ASSERT_TRUE(table.Open("pod-b"));
  ASSERT_TRUE(table.Open("pod-a"));
  ASSERT_TRUE(table.Close("pod-b"));
  std::string text;
  std::getline(std::ifstream(path_), text, '\0');
  EXPECT_EQ(text, WithChecksum("tierd-owners 1\n"
                               "next 4026531842\n"
                               "owner pod-a 4026531841 open\n"
                               "owner pod-b 4026531840 closed\n"));
}

TEST_F(OwnerTableTest, ADamagedFileIsRefusedAndNamed) {
  const std::string first = "tierd-owners 1\n";
  const std::string head = first + "next 4026531842\n";
  const std::string one = "owner pod-a 4026531840 open\n";
  for (const std::string& lines :
       {first + one, head + one + one, head + one + "owner pod-b 4026531840 open\n", head + "next 4026531843\n",
        head + "owner pod-a 4026531842 open\n", head + "owner pod-a 1001 open\n", head + "owner ../a 4026531840 open\n",
        head + "owner pod-a 4026531840\n", head + "owner pod-a 4026531840 shut\n",
        head + "owner pod-a +4026531840 open\n", head + "owner  pod-a 4026531840 open\n", head + "pod-a\n", head + "\n",
        first + "next 4026531840\n", first + "next 4294967295\n", first + "next\n"}) {
    const auto parsed = ParseOwners(WithChecksum(lines));
    ASSERT_FALSE(parsed) << lines;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt) << lines;
    EXPECT_THAT(parsed.error().message, HasSubstr("is no owner")) << lines;
  }
  EXPECT_TRUE(ParseOwners(WithChecksum(head + one)));
  EXPECT_EQ(ParseOwners("tierd-owners 2\n").error().code, Code::kVersion);
  EXPECT_EQ(ParseOwners(std::string(kOwnerFileBytesMax + 1, 'x')).error().code, Code::kCorrupt);
  Write(WithChecksum(head + one).replace(40, 1, "9"));
  const auto loaded = LoadOwners(path_);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kCorrupt);
  EXPECT_THAT(loaded.error().message, HasSubstr("the owners of sockets cannot be read from " + path_));
}

class NoUsers final : public UserDirectory {
 public:
  UserEntry FindUser(uint32_t uid) override { return uid == 1001 ? UserEntry{.name = "alice"} : UserEntry{}; }
  Result<uint32_t> FindUserId(const std::string& name) override {
    return name == "alice" || name == "both" ? Result<uint32_t>(1001U) : NoUser(name);
  }
  Result<uint32_t> FindGroupId(const std::string& name) override { return NoGroup(name); }
};

TEST_F(OwnerTableTest, AQuotaMayNameAnOwner) {
  OwnerTable table = Read();
  const uint32_t uid = table.Open("pod-a").value();
  const uint32_t both = table.Open("both").value();
  NoUsers system;
  OwnerDirectory users(table, system);
  testing::SharedClock clock;
  QuotaBookOptions options;
  options.table.by_default.ram = 3;
  options.table.users["pod-a"].ram = 5;
  options.file = directory_.path() + "/quotas";
  QuotaBook book(options, {}, users, clock);
  book.Learn(uid);
  EXPECT_EQ(book.QuotaOf(uid).bytes.ram.most, 5U) << "of the configuration";
  ASSERT_TRUE(book.Set({QuotaLevel::kUser, "pod-a"}, {.ram = 7}));
  EXPECT_EQ(book.QuotaOf(uid).bytes.ram.most, 7U);
  ASSERT_TRUE(book.Set({QuotaLevel::kUser, "both"}, {.ram = 8}));
  EXPECT_EQ(book.QuotaOf(both).bytes.ram.most, 8U);
  EXPECT_EQ(book.QuotaOf(1001).bytes.ram.most, 3U) << "the user of the system that has this name too";
  ASSERT_TRUE(book.Set({QuotaLevel::kUser, "alice"}, {.ram = 9}));
  EXPECT_EQ(book.QuotaOf(1001).bytes.ram.most, 9U);
  EXPECT_TRUE(book.ListUnknown().empty()) << "an owner is known";
  EXPECT_TRUE(book.Clear({QuotaLevel::kUser, "pod-a"}));
}

// It would belong to no one, and keep the number from every owner to come.
TEST_F(OwnerTableTest, AQuotaNamesNoNumberOfAnOwnerThatIsNone) {
  OwnerTable table = Read();
  const uint32_t uid = table.Open("pod-a").value();
  NoUsers system;
  OwnerDirectory users(table, system);
  testing::SharedClock clock;
  QuotaBookOptions options;
  options.file = directory_.path() + "/quotas";
  QuotaBook book(options, {.by_default = {}, .users = {{kOwnerUidLast, {.ram = 1}}}, .groups = {}}, users, clock);
  const QuotaTarget owner{QuotaLevel::kUser, std::to_string(uid)};
  ASSERT_TRUE(book.Set(owner, {.ram = 7}));
  ASSERT_TRUE(table.Remove("pod-a"));
  for (const uint32_t none : {uid, uid + 1, kOwnerUidLast}) {
    const Status refused = book.Set({QuotaLevel::kUser, std::to_string(none)}, {.ram = 8});
    ASSERT_FALSE(refused) << none;
    EXPECT_EQ(refused.error().code, Code::kNotFound);
    EXPECT_THAT(refused.error().message, HasSubstr(fmt::format("no owner has {} (tierctl socket list)", none)));
  }
  EXPECT_TRUE(book.Clear(owner)) << "what is there can be cleared";
  EXPECT_TRUE(book.Clear({QuotaLevel::kUser, std::to_string(kOwnerUidLast)}));
  EXPECT_TRUE(book.Set({QuotaLevel::kUser, std::to_string(kOwnerUidLast + 1)}, {.ram = 1})) << "of no owner";
  EXPECT_TRUE(book.Set({QuotaLevel::kGroup, std::to_string(uid)}, {.ram = 1})) << "groups are no owners";
}

}  // namespace
}  // namespace tier::session
