// Jobs by the names of their owners, as administrators write them.
#include "daemon/session/job_names.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::kAdmin;
using testing::kAlice;
using testing::SessionWorld;

const Caller kMallory = testing::kBob;

class CountedUsers final : public UserDirectory {
 public:
  UserEntry FindUser(uint32_t) override { return {}; }
  Result<uint32_t> FindUserId(const std::string& name) override {
    asked.push_back(name);
    if (!answers) return Fail(Code::kTimeout, "the user database does not answer");
    return name == "alice" ? Result<uint32_t>(kAlice.uid) : NoUser(name);
  }
  Result<uint32_t> FindGroupId(const std::string& name) override { return NoGroup(name); }

  bool answers = true;
  std::vector<std::string> asked;
};

class JobNamesTest : public ::testing::Test {
 protected:
  testing::TemporaryDirectory directory_;
  OwnerTable owners_{directory_.path() + "/owners", {}};
  CountedUsers users_;
  const uint32_t pod_ = owners_.Open("pod-a").value();
  const std::string numbered_ = std::to_string(pod_) + "/train";
};

TEST_F(JobNamesTest, ANameOfAnOwnerOrUserIsItsNumber) {
  const JobNames names(&owners_, &users_, nullptr);
  EXPECT_EQ(names.WithNumber("pod-a/train"), numbered_);
  EXPECT_THAT(users_.asked, IsEmpty()) << "the name means the owner";
  EXPECT_EQ(names.WithNumber("alice/a/b"), "1000/a/b");
  EXPECT_EQ(names.WithNumber("bob/train"), std::nullopt);
  EXPECT_EQ(names.WithNumber("train"), std::nullopt);
  EXPECT_EQ(names.WithNumber("/train"), std::nullopt);
  EXPECT_EQ(names.WithNumber("1000/train"), std::nullopt);
  EXPECT_THAT(users_.asked, ElementsAre("alice", "bob"));
  EXPECT_EQ(JobNames(nullptr, nullptr, nullptr).WithNumber("alice/train"), std::nullopt);
}

TEST_F(JobNamesTest, TheJobOfTheOwnerGoesFirst) {
  const JobNames names(&owners_, &users_, nullptr);
  std::vector<std::string> asked;
  const auto found = names.Find(kAdmin, "alice/train", [&](const std::string& name) -> Status {
    asked.push_back(name);
    return {};
  });
  EXPECT_TRUE(found);
  EXPECT_THAT(asked, ElementsAre("1000/train"));
}

TEST_F(JobNamesTest, OnlyOfAnAdministratorIsANameOfTwoParts) {
  const JobNames names(&owners_, &users_, nullptr);
  std::vector<std::string> asked;
  EXPECT_TRUE(names.Find(kAlice, "alice/train", [&](const std::string& name) -> Status {
    asked.push_back(name);
    return {};
  }));
  EXPECT_THAT(asked, ElementsAre("alice/train"));
  EXPECT_THAT(users_.asked, IsEmpty());
}

TEST_F(JobNamesTest, WithoutTheUserDatabaseNoJobIsTakenForThatOfAUser) {
  const JobNames names(&owners_, &users_, nullptr);
  users_.answers = false;
  const auto any = [](const std::string&) -> Status { return {}; };
  const auto unsure = names.Find(kAdmin, "alice/train", any);
  EXPECT_EQ(unsure.error().code, Code::kTimeout);
  EXPECT_THAT(unsure.error().message, HasSubstr("UID/JOB"));
  EXPECT_TRUE(names.Find(kAdmin, "pod-a/train", any));
  EXPECT_TRUE(names.Find(kAdmin, "1000/train", any));
  EXPECT_TRUE(names.Find(kAdmin, "train", any));
}

TEST_F(JobNamesTest, AnErrorHasTheNameThatWasWritten) {
  const JobNames names(&owners_, &users_, nullptr);
  const auto absent = [](const std::string& name) -> Status { return Fail(Code::kNotFound, "no " + name); };
  EXPECT_EQ(names.Find(kAdmin, "alice/train", absent).error().message, "no alice/train");
  const auto busy = [](const std::string& name) -> Status {
    return Fail(name == "alice/train" ? Code::kNotFound : Code::kTimeout, name);
  };
  EXPECT_EQ(names.Find(kAdmin, "alice/train", busy).error().message, "1000/train");
  EXPECT_EQ(names.Find(kAlice, "alice/train", busy).error().code, Code::kNotFound) << "only administrators may";
}

TEST_F(JobNamesTest, WhatAnOwnerKeepsIsTheJobThatIsMeant) {
  bool kept = true;
  const JobNames names(&owners_, &users_, [&kept](uint32_t uid, const std::string& name) -> Result<bool> {
    EXPECT_EQ(uid, kAlice.uid);
    EXPECT_EQ(name, "train");
    return kept;
  });
  const auto of_another = [](const std::string& name) -> Status {
    return name == "alice/train" ? Status{} : Fail(Code::kNotFound, "no " + name);
  };
  EXPECT_EQ(names.Find(kAdmin, "alice/train", of_another).error().message, "no 1000/train");
  kept = false;
  EXPECT_TRUE(names.Find(kAdmin, "alice/train", of_another));
}

TEST_F(JobNamesTest, EveryCallOfAnAdministratorFindsTheJob) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  ControlServer& control = world.control();
  ASSERT_TRUE(control.OpenJob({.uid = pod_}, {.name = "train", .named = true}));
  ASSERT_TRUE(control.OpenJob(kAlice, {.name = "train", .named = true}));
  for (const auto& [name, uid] : {std::pair<std::string, uint32_t>("pod-a/train", pod_), {"alice/train", kAlice.uid}}) {
    const auto set = control.SetJob(kAdmin, name, {.limit_bytes = 1 << 30});
    ASSERT_TRUE(set) << set.error().message;
    EXPECT_EQ(set->uid, uid);
    EXPECT_TRUE(control.ListStalls(kAdmin, name));
    EXPECT_TRUE(control.ListTensors(kAdmin, name, 0, 1));
    EXPECT_TRUE(control.Drain(kAdmin, name, seconds(10)));
    EXPECT_EQ(control.ListStalls({.uid = 1001}, name).error().code, Code::kNotFound);
    EXPECT_TRUE(control.CloseJob(kAdmin, name, false));
    EXPECT_THAT(control.CloseJob(kAdmin, name, false).error().message, HasSubstr(name));
  }
}

TEST_F(JobNamesTest, NoOneTakesWhatIsMeantForTheJobOfAnother) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  ControlServer& control = world.control();
  ASSERT_TRUE(control.OpenJob({.uid = pod_}, {.name = "train", .named = true}));
  ASSERT_TRUE(control.OpenJob(kAlice, {.name = "train", .named = true}));
  const std::pair<std::string, uint32_t> meant[] = {{"pod-a/train", pod_}, {"alice/train", kAlice.uid}};
  for (const auto& [name, uid] : meant) ASSERT_TRUE(control.OpenJob(kMallory, {.name = name, .named = true}));
  for (const auto& [name, uid] : meant) {
    EXPECT_EQ(control.SetJob(kAdmin, name, {.limit_bytes = 1 << 30})->uid, uid);
    EXPECT_TRUE(control.Drain(kAdmin, name, seconds(10)));
    EXPECT_TRUE(control.CloseJob(kAdmin, name, false));
    EXPECT_EQ(control.SetJob(kAdmin, name, {.limit_bytes = 1 << 30})->uid, kMallory.uid) << "the owner has none";
  }
}

TEST_F(JobNamesTest, NoOneTakesWhatIsMeantForWhatAnotherPersisted) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  world.OnEngine([&] {
    world.engine.kept = {{.key = "1000/train", .ssd_bytes = 7, .damage = {}}};
    return 0;
  });
  ControlServer& control = world.control();
  ASSERT_TRUE(control.OpenJob(kMallory, {.name = "alice/train", .named = true}));
  EXPECT_EQ(control.SetJob(kAdmin, "alice/train", {.guarantee_bytes = 1 << 20}).error().code, Code::kNotFound);
  EXPECT_THAT(control.CloseJob(kAdmin, "alice/train", false).error().message, HasSubstr("--purge"));
  EXPECT_TRUE(control.CloseJob(kAdmin, "alice/train", true));
  EXPECT_THAT(control.ListJobs(kAdmin), SizeIs(1)) << "Mallory's";
}

TEST_F(JobNamesTest, AListOfManyTensorsAsksOnceWhoseTheyAre) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train", .named = true}));
  EXPECT_TRUE(world.control().ListTensors(kAdmin, "alice/train", 0, 1000));
  EXPECT_THAT(users_.asked, ElementsAre("alice"));
}

}  // namespace
}  // namespace tier::session
