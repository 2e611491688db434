// Jobs by the names of their owners, as administrators write them.
#include "daemon/session/job_names.h"

#include <string>
#include <vector>

#include <fmt/format.h>
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
using testing::kAdmin;
using testing::kAlice;
using testing::SessionWorld;
using ::testing::SizeIs;

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
  const JobNames names(&owners_, &users_);
  EXPECT_EQ(names.WithNumber("pod-a/train"), numbered_);
  EXPECT_THAT(users_.asked, IsEmpty()) << "the name means the owner";
  EXPECT_EQ(names.WithNumber("alice/a/b"), "1000/a/b");
  EXPECT_EQ(names.WithNumber("bob/train"), std::nullopt);
  EXPECT_EQ(names.WithNumber("train"), std::nullopt);
  EXPECT_EQ(names.WithNumber("/train"), std::nullopt);
  EXPECT_EQ(names.WithNumber("1000/train"), std::nullopt);
  EXPECT_THAT(users_.asked, ElementsAre("alice", "bob"));
  EXPECT_EQ(JobNames(nullptr, nullptr).WithNumber("alice/train"), std::nullopt);
}

TEST_F(JobNamesTest, TheJobOfTheOwnerGoesFirst) {
  const JobNames names(&owners_, &users_);
  std::vector<std::string> asked;
  const auto found = names.Find(kAdmin, "alice/train", [&](const std::string& name) -> Status {
    asked.push_back(name);
    return {};
  });
  EXPECT_TRUE(found);
  EXPECT_THAT(asked, ElementsAre("1000/train"));
}

TEST_F(JobNamesTest, OnlyOfAnAdministratorIsANameOfTwoParts) {
  const JobNames names(&owners_, &users_);
  std::vector<std::string> asked;
  EXPECT_TRUE(names.Find(kAlice, "alice/train", [&](const std::string& name) -> Status {
    asked.push_back(name);
    return {};
  }));
  EXPECT_THAT(asked, ElementsAre("alice/train"));
  EXPECT_THAT(users_.asked, IsEmpty());
}

TEST_F(JobNamesTest, WithoutTheUserDatabaseNoJobIsTakenForThatOfAUser) {
  const JobNames names(&owners_, &users_);
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
  const JobNames names(&owners_, &users_);
  const auto absent = [](const std::string& name) -> Status {
    return Fail(Code::kNotFound,
                fmt::format("no job '{0}' (job remove --purge {0}), no '2{0}', '{0}s' or '{0}'", name));
  };
  EXPECT_EQ(names.Find(kAdmin, "alice/train", absent).error().message,
            "no job 'alice/train' (job remove --purge alice/train), no '21000/train', '1000/trains' or 'alice/train'");
  const auto busy = [](const std::string& name) -> Status { return Fail(Code::kTimeout, name); };
  EXPECT_EQ(names.Find(kAdmin, "alice/train", busy).error().code, Code::kTimeout);
  EXPECT_EQ(names.Find(kAdmin, "alice/train", busy).error().message, "alice/train");
}

TEST_F(JobNamesTest, AJobThatSomebodyHasCalledSoIsNeverMeant) {
  const JobNames names(&owners_, &users_);
  std::vector<std::string> asked;
  const auto of_another = [&](const std::string& name) -> Status {
    asked.push_back(name);
    return name == "alice/train" ? Status{} : Fail(Code::kNotFound, "no " + name);
  };
  EXPECT_EQ(names.Find(kAdmin, "alice/train", of_another).error().code, Code::kNotFound);
  EXPECT_THAT(asked, ElementsAre("1000/train"));
  EXPECT_TRUE(names.Find(kAlice, "alice/train", of_another)) << "who is no administrator names a job of its own";
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
    EXPECT_TRUE(control.CloseJob(kAdmin, name, {}));
    EXPECT_THAT(control.CloseJob(kAdmin, name, {}).error().message, HasSubstr(name));
  }
}

TEST_F(JobNamesTest, NoOneTakesWhatIsMeantForTheJobOfAnother) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  ControlServer& control = world.control();
  ASSERT_TRUE(control.OpenJob({.uid = pod_}, {.name = "train", .named = true}));
  ASSERT_TRUE(control.OpenJob(kAlice, {.name = "train", .named = true}));
  const std::pair<std::string, uint32_t> meant[] = {
      {"pod-a/train", pod_}, {"alice/train", kAlice.uid}, {"1300/train", 1300}};
  ASSERT_TRUE(control.OpenJob({.uid = 1300}, {.name = "train", .named = true}));
  for (const auto& [name, uid] : meant) ASSERT_TRUE(control.OpenJob(kMallory, {.name = name, .named = true}));
  for (const auto& [name, uid] : meant) {
    EXPECT_EQ(control.SetJob(kAdmin, name, {.limit_bytes = 1 << 30})->uid, uid);
    EXPECT_TRUE(control.Drain(kAdmin, name, seconds(10)));
    EXPECT_TRUE(control.CloseJob(kAdmin, name, {}));
    // It has none now, and Mallory still has one that is called so.
    EXPECT_EQ(control.SetJob(kAdmin, name, {.guarantee_bytes = 1 << 20}).error().code, Code::kNotFound) << name;
    EXPECT_EQ(control.CloseJob(kAdmin, name, {}).error().code, Code::kNotFound);
    EXPECT_EQ(control.CloseJob(kAdmin, name, {.purge = true}).error().code, Code::kNotFound);
    EXPECT_EQ(control.Drain(kAdmin, name, seconds(10)).error().code, Code::kNotFound);
    EXPECT_EQ(control.ListTensors(kAdmin, name, 0, 1).error().code, Code::kNotFound);
    EXPECT_EQ(control.ListStalls(kAdmin, name).error().code, Code::kNotFound);
    EXPECT_EQ(control.SetJob(kMallory, name, {.limit_bytes = 1 << 30})->uid, kMallory.uid) << "its own";
    EXPECT_EQ(control.SetJob(kAdmin, "1001/" + name, {.limit_bytes = 1 << 30})->uid, kMallory.uid);
  }
}

TEST_F(JobNamesTest, ANameThatBeginsWithNoOneIsThatOfTheJob) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "vision/train", .named = true}));
  EXPECT_TRUE(world.control().SetJob(kAdmin, "vision/train", {.limit_bytes = 1 << 30}));
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
  EXPECT_THAT(control.CloseJob(kAdmin, "alice/train", {}).error().message, HasSubstr("--purge"));
  EXPECT_TRUE(control.CloseJob(kAdmin, "alice/train", {.purge = true}));
  EXPECT_THAT(control.ListJobs(kAdmin).value(), SizeIs(1)) << "Mallory's";
}

TEST_F(JobNamesTest, NoOneLosesWhatItPersistedUnderTheNameOfAnother) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  world.OnEngine([&] {
    world.engine.kept = {{.key = "1001/1000/train"}, {.key = "1001/alice/train"}};
    return 0;
  });
  ControlServer& control = world.control();
  for (const char* const name : {"1000/train", "alice/train", "01000/train"}) {
    EXPECT_EQ(control.CloseJob(kAdmin, name, {.purge = true}).error().code, Code::kNotFound) << name;
  }
  EXPECT_THAT(control.ListStoredManifests(kAdmin, "", 9).value(), SizeIs(2));
  EXPECT_TRUE(control.CloseJob(kAdmin, "1001/1000/train", {.purge = true}));
  EXPECT_TRUE(control.CloseJob(kMallory, "alice/train", {.purge = true}));
  EXPECT_THAT(control.ListStoredManifests(kAdmin, "", 9).value(), IsEmpty());
}

TEST_F(JobNamesTest, AListOfManyTensorsAsksOnceWhoseTheyAre) {
  SessionWorld world({.owners = &owners_, .users = &users_});
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train", .named = true}));
  EXPECT_TRUE(world.control().ListTensors(kAdmin, "alice/train", 0, 1000));
  EXPECT_THAT(users_.asked, ElementsAre("alice"));
}

}  // namespace
}  // namespace tier::session
