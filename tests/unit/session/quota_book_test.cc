// Which quota holds for whom: levels, groups, what was set at run time, and what is kept of it.
#include "daemon/session/quota_book.h"

#include <unistd.h>

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/quota_file.h"
#include "proto/units.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tiering::kUnlimited;
using tiering::QuotaLevel;
using tiering::QuotaLimit;

class FakeUsers final : public UserDirectory {
 public:
  std::map<uint32_t, UserEntry> users;
  int asked = 0;
  bool failing = false;

  UserEntry FindUser(uint32_t uid) override {
    ++asked;
    if (failing) return {.failed = true};
    const auto found = users.find(uid);
    return found == users.end() ? UserEntry{} : found->second;
  }
  Result<uint32_t> FindUserId(const std::string& name) override {
    for (const auto& [uid, user] : users)
      if (user.name == name) return uid;
    return failing ? Fail(Code::kTimeout, "no answer") : NoUser(name);
  }
  Result<uint32_t> FindGroupId(const std::string& name) override {
    for (const auto& [uid, user] : users)
      for (const UserGroup& group : user.groups)
        if (group.name == name) return group.id;
    return failing ? Fail(Code::kTimeout, "no answer") : NoGroup(name);
  }
};

class QuotaBookTest : public ::testing::Test {
 protected:
  QuotaBookTest() {
    users_.users[1001] = {.name = "alice", .groups = {{100, "staff"}, {200, "students"}}};
    users_.users[1002] = {.name = "bob", .groups = {{200, "students"}}};
  }
  void Make(QuotaTable table) {
    book_.emplace(QuotaBookOptions{.table = std::move(table),
                                   .ssd = {.most = kGiB},
                                   .jobs = {.most = 64},
                                   .file = directory_.path() + "/quotas"},
                  LoadQuotas(directory_.path() + "/quotas").value(), users_, clock_);
  }
  ResolvedQuota Of(uint32_t uid) {
    book_->Learn(uid);
    return book_->QuotaOf(uid);
  }

  testing::TemporaryDirectory directory_;
  testing::SharedClock clock_;
  FakeUsers users_;
  std::optional<QuotaBook> book_;
};

TEST_F(QuotaBookTest, WithoutQuotasTheOptionsHoldAndNobodyIsLookedUp) {
  Make({});
  EXPECT_EQ(Of(1001), (ResolvedQuota{.bytes = {.ssd = {.most = kGiB}}, .jobs = {.most = 64}}));
  Make({.by_default = {.ram = 5}, .users = {{"1001", {.ram = 6}}}, .groups = {}});
  EXPECT_EQ(book_->KnowsUser(1001), QuotaBook::Known::kNow);
  EXPECT_EQ(Of(1001).bytes.ram, (QuotaLimit{6, {QuotaLevel::kUser, false, 1001}}));
  EXPECT_EQ(Of(1002).bytes.ram, (QuotaLimit{5, {QuotaLevel::kDefault, false, 0}}));
  EXPECT_EQ(users_.asked, 0) << "numbers need no name";
}

TEST_F(QuotaBookTest, TheOptionsMayChange) {
  Make({});
  EXPECT_FALSE(book_->SetOptions({.most = kGiB}, {.most = 64})) << "they say the same";
  EXPECT_TRUE(book_->SetOptions({.most = 2 * kGiB}, {.most = 65}));
  EXPECT_EQ(Of(1001).bytes.ssd.most, 2 * kGiB);
  EXPECT_EQ(Of(1001).jobs.most, 65u);
  EXPECT_TRUE(book_->SetOptions({}, {.most = 65}));
  EXPECT_EQ(Of(1001).bytes.ssd.most, kUnlimited);
}

TEST_F(QuotaBookTest, EachFieldIsDecidedByItself) {
  Make({.by_default = {.ram = 1, .ssd = 2, .guarantee = 3},
        .users = {{"alice", {.ram = 10}}},
        .groups = {{"staff", {.ram = 20, .ssd = 21}}, {"200", {.ssd = 30, .guarantee = 0}}}});
  EXPECT_EQ(Of(1001).bytes.ram, (QuotaLimit{10, {QuotaLevel::kUser, false, 1001}}));
  EXPECT_EQ(Of(1001).bytes.ssd, (QuotaLimit{30, {QuotaLevel::kGroup, false, 200}})) << "the most generous group";
  EXPECT_EQ(Of(1001).bytes.guarantee, (QuotaLimit{0, {QuotaLevel::kGroup, false, 200}})) << "a group says more than "
                                                                                            "the default, also nothing";
  EXPECT_EQ(Of(1001).jobs, (QuotaLimit{64, {}})) << "no quota says: the option";
  EXPECT_EQ(Of(1002).bytes.ram.most, 1U);
  EXPECT_EQ(Of(4711).bytes.ssd.most, 2U) << "a user whom the system does not know";
}

TEST_F(QuotaBookTest, UnlimitedIsTheMostGenerous) {
  Make({.by_default = {.ssd = 5}, .users = {}, .groups = {{"staff", {.ssd = kUnlimited}}, {"students", {.ssd = 30}}}});
  EXPECT_FALSE(Of(1001).bytes.ssd.any());
  EXPECT_EQ(Of(1002).bytes.ssd.most, 30U);
}

TEST_F(QuotaBookTest, UsersAreKnownForAMinute) {
  Make({.by_default = {.jobs = 1}, .users = {}, .groups = {{"staff", {.jobs = 7}}}});
  EXPECT_EQ(book_->KnowsUser(1001), QuotaBook::Known::kNot);
  EXPECT_EQ(book_->QuotaOf(1001).jobs.most, 1U) << "not learnt yet";
  EXPECT_EQ(Of(1001).jobs.most, 7U);
  users_.users[1001].groups.clear();
  clock_.Advance(kUserEntryLifetime - std::chrono::seconds(1));
  EXPECT_EQ(Of(1001).jobs.most, 7U);
  EXPECT_EQ(users_.asked, 1);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(book_->KnowsUser(1001), QuotaBook::Known::kStale);
  EXPECT_EQ(book_->QuotaOf(1001).jobs.most, 7U) << "what was learnt last";
  EXPECT_EQ(Of(1001).jobs.most, 1U);
}

// A server of the network that is down makes no user one without groups.
TEST_F(QuotaBookTest, ALookupThatFailsChangesNothingAndIsTriedAgainSoon) {
  Make({.by_default = {}, .users = {}, .groups = {{"staff", {.jobs = 7}}}});
  EXPECT_EQ(Of(1001).jobs.most, 7U);
  users_.failing = true;
  clock_.Advance(kUserEntryLifetime);
  EXPECT_EQ(Of(1001).jobs.most, 7U);
  EXPECT_EQ(users_.asked, 2);
  EXPECT_EQ(Of(1001).jobs.most, 7U) << "it is not asked with each request";
  EXPECT_EQ(users_.asked, 2);
  users_.failing = false;
  users_.users[1001].groups.clear();
  clock_.Advance(kUserEntryRetry);
  EXPECT_EQ(Of(1001).jobs.most, 64U);
  EXPECT_EQ(users_.asked, 3);
}

TEST_F(QuotaBookTest, TheNumberOfKnownUsersIsLimited) {
  Make({.by_default = {}, .users = {}, .groups = {{"staff", {.jobs = 7}}}});
  for (uint32_t uid = 0; uid <= kUserEntriesMax; ++uid) {
    book_->Learn(uid);
    clock_.Advance(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(book_->KnowsUser(0), QuotaBook::Known::kNot) << "the first one is forgotten";
  EXPECT_EQ(book_->KnowsUser(1), QuotaBook::Known::kNow);
}

TEST_F(QuotaBookTest, WhatIsSetAtRunTimeComesFirstAndOutlivesTheDaemon) {
  const QuotaTable table{.by_default = {.ram = 1, .jobs = 2}, .users = {{"alice", {.ram = 10}}}, .groups = {}};
  Make(table);
  ASSERT_TRUE(book_->Set({QuotaLevel::kUser, "alice"}, {.ram = 11}));
  ASSERT_TRUE(book_->Set({QuotaLevel::kUser, "1001"}, {.ssd = 12}));
  ASSERT_TRUE(book_->Set({QuotaLevel::kGroup, "students"}, {.jobs = 13}));
  ASSERT_TRUE(book_->Set({QuotaLevel::kDefault, ""}, {.ram = 14}));
  for (const bool again : {false, true}) {
    if (again) Make(table);
    EXPECT_EQ(Of(1001).bytes.ram, (QuotaLimit{11, {QuotaLevel::kUser, true, 1001}})) << again;
    EXPECT_EQ(Of(1001).bytes.ssd.most, 12U) << "the other field of it stayed";
    EXPECT_EQ(Of(1002).jobs, (QuotaLimit{13, {QuotaLevel::kGroup, true, 200}})) << again;
    EXPECT_EQ(Of(1002).bytes.ram, (QuotaLimit{14, {QuotaLevel::kDefault, true, 0}})) << again;
  }
  ASSERT_TRUE(book_->Clear({QuotaLevel::kUser, "alice"}));
  ASSERT_TRUE(book_->Clear({QuotaLevel::kDefault, ""}));
  Make(table);
  EXPECT_EQ(Of(1001).bytes.ram, (QuotaLimit{10, {QuotaLevel::kUser, false, 1001}}));
  EXPECT_EQ(Of(1002).bytes.ram.most, 1U);
  EXPECT_EQ(Of(1002).jobs.most, 13U);
}

TEST_F(QuotaBookTest, WhatCannotBeSetChangesNothing) {
  Make({});
  const auto refused = [&](const QuotaTarget& target, const QuotaFields& fields, Code code, const char* part) {
    const Status set = book_->Set(target, fields);
    ASSERT_FALSE(set) << part;
    EXPECT_EQ(set.error().code, code) << part;
    EXPECT_THAT(set.error().message, HasSubstr(part));
  };
  refused({QuotaLevel::kUser, "alice"}, {}, Code::kInvalid, "no quota is named: give at least one of ram, ssd");
  refused({QuotaLevel::kUser, "carol"}, {.ram = 1}, Code::kNotFound, "this system has no user 'carol'");
  refused({QuotaLevel::kGroup, "wheel"}, {.ram = 1}, Code::kNotFound, "this system has no group 'wheel'");
  refused({QuotaLevel::kUser, ""}, {.ram = 1}, Code::kInvalid, "a quota of a user needs its name or number");
  refused({QuotaLevel::kUser, "4294967295"}, {.ram = 1}, Code::kInvalid, "allowed are 0 to 4294967294");
  refused({QuotaLevel::kGroup, "42949672950"}, {.ram = 1}, Code::kInvalid, "allowed are 0 to 4294967294");
  refused({QuotaLevel::kDefault, ""}, {.jobs = 65537}, Code::kInvalid, "a quota of 65537 jobs: allowed are 0 to 65536");
  ASSERT_TRUE(book_->Set({QuotaLevel::kUser, "alice"}, {.guarantee = 2 * kMiB}));
  refused({QuotaLevel::kUser, "alice"}, {.ram = kMiB}, Code::kInvalid,
          "a quota of guarantees of 2 MiB is above that of RAM of 1 MiB: lower it too");
  const Status cleared = book_->Clear({QuotaLevel::kUser, "bob"});
  ASSERT_FALSE(cleared);
  EXPECT_EQ(cleared.error().code, Code::kNotFound);
  EXPECT_THAT(cleared.error().message, HasSubstr("no quota of user 1002 was set at run time"));
  EXPECT_EQ(LoadQuotas(directory_.path() + "/quotas").value(),
            (QuotaOverrides{.by_default = {}, .users = {{1001, {.guarantee = 2 * kMiB}}}, .groups = {}}));
}

TEST_F(QuotaBookTest, ANumberThatStandsForNoUserIsRefusedThoughTheSystemGivesIt) {
  users_.users[UINT32_MAX] = {.name = "broken", .groups = {{UINT32_MAX, "no-group"}}};
  Make({});
  for (const QuotaTarget& target :
       {QuotaTarget{QuotaLevel::kUser, "broken"}, QuotaTarget{QuotaLevel::kGroup, "no-group"}}) {
    const Status set = book_->Set(target, {.ram = 1});
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().code, Code::kInvalid);
    EXPECT_THAT(set.error().message, HasSubstr("the number 4294967295, which stands for none"));
    EXPECT_EQ(book_->Clear(target).error().code, Code::kInvalid);
  }
  EXPECT_TRUE(book_->List().empty());
}

TEST_F(QuotaBookTest, WithoutAFileNoneIsSetAndWithoutRoomNoneIsBelieved) {
  QuotaBook nowhere({.table = {}, .ssd = {}, .jobs = {.most = 64}, .file = {}}, {}, users_, clock_);
  EXPECT_EQ(nowhere.Set({QuotaLevel::kDefault, ""}, {.ram = 1}).error().code, Code::kDenied);
  QuotaBook lost({.table = {}, .ssd = {}, .jobs = {.most = 64}, .file = directory_.path() + "/gone/quotas"}, {}, users_,
                 clock_);
  EXPECT_FALSE(lost.Set({QuotaLevel::kDefault, ""}, {.ram = 1}));
  EXPECT_FALSE(lost.QuotaOf(1001).bytes.ram.any()) << "what is not kept does not hold";
}

TEST_F(QuotaBookTest, ListsBothTablesAndTellsUnknownNames) {
  Make({.by_default = {.jobs = 1},
        .users = {{"alice", {.ram = 2}}, {"alcie", {.ram = 3}}, {"77", {.ram = 4}}},
        .groups = {{"wheel", {.ssd = 5}}}});
  ASSERT_TRUE(book_->Set({QuotaLevel::kUser, "alice"}, {.ssd = 6}));
  std::vector<std::string> rows;
  for (const QuotaRow& row : book_->List()) {
    rows.push_back(fmt::format("{} {} {}", static_cast<int>(row.level), row.at_run_time ? "set" : "file", row.name));
  }
  EXPECT_THAT(rows, ElementsAre("1 file ", "2 file wheel", "3 set 1001", "3 file 77", "3 file alcie", "3 file alice"));
  EXPECT_THAT(book_->ListUnknown(), ElementsAre("quota.user.alcie", "quota.group.wheel"));
  users_.failing = true;
  EXPECT_TRUE(book_->ListUnknown().empty()) << "the system does not answer";
  EXPECT_EQ(book_->Set({QuotaLevel::kUser, "alcie"}, {.ram = 1}).error().code, Code::kTimeout);
  EXPECT_TRUE(book_->SetTable({}));
  EXPECT_FALSE(book_->SetTable({})) << "they are that already";
  EXPECT_EQ(book_->List().size(), 1U) << "what was set at run time stays";
}

// The real user database: this process's own user, and one that no system has.
TEST(SystemUserDirectory, FindsUsersAndTheirGroups) {
  SystemUserDirectory system;
  const UserEntry root = system.FindUser(0);
  EXPECT_EQ(root.name, "root");
  ASSERT_FALSE(root.groups.empty());
  EXPECT_EQ(root.groups.front().id, 0U);
  EXPECT_EQ(root.groups.front().name, "root");
  EXPECT_EQ(system.FindUserId("root"), 0U);
  EXPECT_EQ(system.FindGroupId("root"), 0U);
  EXPECT_TRUE(system.FindUser(4'000'000'123).name.empty());
  EXPECT_TRUE(system.FindUser(4'000'000'123).groups.empty());
  EXPECT_EQ(system.FindUserId("no-such-user-of-tierd").error().code, Code::kNotFound);
  EXPECT_EQ(system.FindGroupId("no-such-group-of-tierd").error().code, Code::kNotFound);
}

int no_answer = 0;  // Of the next two.
int NoUserNow(const char*, passwd*, char*, size_t, passwd** found) {
  *found = nullptr;
  return no_answer;
}
int NoGroupNow(const char*, group*, char*, size_t, group** found) {
  *found = nullptr;
  return no_answer;
}

// As glibc gives them: where nslcd is stopped, sssd is, or a server of the network does not answer. These systems have
// /etc/passwd.
TEST(SystemUserDirectory, AServerThatDoesNotAnswerDoesNotSayThatThereIsNoUser) {
  SystemUserDirectory system({.find_user = NoUserNow, .find_group = NoGroupNow});
  EXPECT_EQ(system.FindUserId("alice").error().code, Code::kNotFound);
  for (const int error : {ENOENT, ECONNREFUSED, EAGAIN, EIO, EMFILE}) {
    no_answer = error;
    const auto user = system.FindUserId("alice");
    ASSERT_FALSE(user);
    EXPECT_EQ(user.error().code, Code::kTimeout) << error;
    EXPECT_THAT(user.error().message, HasSubstr("does not say whether there is a user 'alice'"));
    EXPECT_THAT(user.error().message, HasSubstr("try again (getent passwd alice asks it too)"));
    EXPECT_THAT(system.FindGroupId("staff").error().message, HasSubstr("getent group staff"));
  }
  no_answer = 0;
}

}  // namespace
}  // namespace tier::session
