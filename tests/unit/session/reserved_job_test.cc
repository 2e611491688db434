// Jobs that an administrator reserved for a user: who joins them, by what, and how long they wait.
#include <string>

#include <gtest/gtest.h>

#include "daemon/session/job_registry.h"
#include "tests/support/session/job_registry_fixture.h"

namespace tier::session {
namespace {

using proto::OpenMode;

constexpr uint32_t kAlice = 1000;
constexpr uint32_t kBob = 1001;

using ReservedJob = testing::JobRegistryFixture;

// As a prolog reserves one, and torchrun or Slurm starts the run.
TEST_F(ReservedJob, AdmitsItsOwnersFirstRunInAnyModeWithoutItsToken) {
  const OpenJobRequest reserve{.mode = OpenMode::kCreate, .owner = kAlice};
  int number = 0;
  for (const OpenMode mode : {OpenMode::kAttach, OpenMode::kCreate, OpenMode::kJoin}) {
    for (const bool named : {false, true}) {
      OpenJobRequest asked = reserve;
      asked.name = "step-" + std::to_string(++number);
      asked.named = named;
      const Job reserved = Open(kAlice, asked, false).value();
      EXPECT_TRUE(reserved.reserved);
      const OpenJobRequest rank0{.name = asked.name, .launch = "torchrun-1", .mode = mode, .rank = 0, .world_size = 2};
      const OpenJobRequest rank1{
          .name = asked.name, .launch = "torchrun-1", .mode = OpenMode::kAttach, .rank = 1, .world_size = 2};
      EXPECT_NE(Refusal(kBob, {.name = asked.name, .mode = OpenMode::kJoin}), Code::kOk) << "another user's";
      const auto first = Open(kAlice, rank0);
      ASSERT_TRUE(first) << first.error().message;
      EXPECT_EQ(first->id, reserved.id);
      EXPECT_FALSE(first->reserved);
      EXPECT_EQ(Refusal(kAlice, rank1), Code::kOk) << "the others come by the launch";
      EXPECT_EQ(Refusal(kAlice, {.name = asked.name}), Code::kAlreadyExists) << "it is a job like any other now";
      registry_.Remove(reserved.id);
    }
  }
}

TEST_F(ReservedJob, AdmitsAProcessThatNamesNoRun) {
  const Job reserved = Open(kAlice, {.name = "step", .mode = OpenMode::kCreate, .owner = kAlice}, false).value();
  const auto first = Open(kAlice, {.name = "step"});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->id, reserved.id);
  EXPECT_EQ(first->token, reserved.token) << "which the administrator may have handed on";
}

TEST_F(ReservedJob, WaitsWithoutEndAndEndsWithItsRun) {
  const Job reserved = Open(kAlice, {.name = "step", .mode = OpenMode::kCreate, .owner = kAlice}, false).value();
  EXPECT_FALSE(registry_.NextExpiry());
  now_ = now_ + base::Duration(std::chrono::hours(24));
  EXPECT_TRUE(registry_.Expired(now_).empty());
  ASSERT_TRUE(Open(kAlice, {.name = "step"}));
  EXPECT_EQ(registry_.Leave(reserved.id, static_cast<tiering::SessionId>(last_session_)), reserved.id);
}

TEST_F(ReservedJob, IsReservedOnce) {
  const OpenJobRequest reserve{.name = "step", .mode = OpenMode::kCreate, .owner = kAlice};
  ASSERT_TRUE(Open(kAlice, reserve, false));
  const auto again = Open(kAlice, reserve, false);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kAlreadyExists);
}

// Its terms would be lost: the caller is told, and the job stays as it is.
TEST_F(ReservedJob, IsNotReservedOverAJobThatIsThere) {
  ASSERT_TRUE(Open(kAlice, {.name = "train", .named = true}, false));
  now_ = now_ + kUnattachedJobLifetime;
  for (const OpenMode mode :
       {OpenMode::kAttach, OpenMode::kCreate, OpenMode::kJoin, OpenMode::kResume, OpenMode::kResumeOrCreate}) {
    EXPECT_EQ(Refusal(kAlice, {.name = "train", .mode = mode, .guarantee_bytes = 4096, .owner = kAlice}),
              Code::kAlreadyExists);
  }
}

TEST_F(ReservedJob, ThatServesOneRunIsNotResumed) {
  ASSERT_TRUE(Open(kAlice, {.name = "step", .mode = OpenMode::kCreate, .owner = kAlice}, false));
  const auto refused = Open(kAlice, {.name = "step", .mode = OpenMode::kResume});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  EXPECT_NE(refused.error().message.find("resume_or_create, or attach"), std::string::npos) << refused.error().message;
  EXPECT_EQ(Refusal(kAlice, {.name = "step"}), Code::kOk) << "it waits still";
}

TEST_F(ReservedJob, CountsForItsOwner) {
  for (const char* name : {"a", "b", "c"})
    ASSERT_TRUE(Open(kAlice, {.name = name, .mode = OpenMode::kCreate, .owner = kAlice}, false));
  EXPECT_EQ(Refusal(kAlice, {.name = "d"}), Code::kDenied);
  EXPECT_EQ(Refusal(kBob, {.name = "d"}), Code::kOk);
}

}  // namespace
}  // namespace tier::session
