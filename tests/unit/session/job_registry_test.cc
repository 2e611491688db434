// Whose job is it, and who may join: design §8, rule by rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/job_registry.h"
#include "tests/support/session/job_registry_fixture.h"

namespace tier::session {
namespace {

using proto::OpenMode;
using ::testing::HasSubstr;

constexpr uint32_t kAlice = 1000;
constexpr uint32_t kBob = 1001;

using JobRegistryTest = testing::JobRegistryFixture;

TEST_F(JobRegistryTest, AttachCreatesThenJoinsWithTheToken) {
  const Job first = Open(kAlice, {.name = "train"}).value();
  EXPECT_TRUE(last_created_);
  EXPECT_TRUE(IsToken(first.token));
  const Job second = Open(kAlice, {.name = "train", .token = first.token}).value();
  EXPECT_FALSE(last_created_);
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(second.members.size(), 2u);
}

TEST_F(JobRegistryTest, AttachWithoutTokenDoesNotJoinBySharingAName) {
  ASSERT_TRUE(Open(kAlice, {.name = "train"}));
  EXPECT_EQ(Refusal(kAlice, {.name = "train"}), Code::kAlreadyExists);
}

TEST_F(JobRegistryTest, WrongTokenIsDenied) {
  ASSERT_TRUE(Open(kAlice, {.name = "train"}));
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = std::string(64, 'a')}), Code::kDenied);
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = std::string(64, 'a'), .mode = OpenMode::kJoin}), Code::kDenied);
}

TEST_F(JobRegistryTest, CreateRefusesALiveJob) {
  const Job job = Open(kAlice, {.name = "train", .mode = OpenMode::kCreate}).value();
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = job.token, .mode = OpenMode::kCreate}), Code::kAlreadyExists);
}

TEST_F(JobRegistryTest, CreateSaysWhatGoesOnWithANamedJob) {
  const OpenJobRequest create{.name = "train", .mode = OpenMode::kCreate, .named = true};
  const Job job = Open(kAlice, create).value();
  EXPECT_THAT(Open(kAlice, create).error().message,
              HasSubstr("live with 1 session; attach to it, or remove it first (tierctl job remove --force train)"));
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_THAT(Open(kAlice, create).error().message,
              HasSubstr("live with 0 sessions; attach to it, go on with it (mode resume_or_create), or remove it first "
                        "(tierctl job remove train)"));
}

TEST_F(JobRegistryTest, JoinNeedsTheJobAndItsToken) {
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .mode = OpenMode::kJoin}), Code::kNotFound);
  const Job job = Open(kAlice, {.name = "train"}).value();
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .mode = OpenMode::kJoin}), Code::kDenied);
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token, .mode = OpenMode::kJoin}));
}

TEST_F(JobRegistryTest, NamesOfDifferentUsersAreDifferentJobs) {
  const Job alices = Open(kAlice, {.name = "train"}).value();
  const Job bobs = Open(kBob, {.name = "train"}).value();
  EXPECT_NE(alices.id, bobs.id);
  EXPECT_EQ(Refusal(kBob, {.name = "train", .token = alices.token, .mode = OpenMode::kJoin}), Code::kDenied);
}

TEST_F(JobRegistryTest, RanksAreThereOnceAndAgreeOnTheWorld) {
  const Job job = Open(kAlice, {.name = "train", .rank = 0, .world_size = 4}).value();
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = job.token, .rank = 0, .world_size = 4}), Code::kAlreadyExists);
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = job.token, .rank = 1, .world_size = 8}), Code::kAlreadyExists);
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token, .rank = 3, .world_size = 4}));
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token})) << "a helper process outside the world may join";
}

TEST_F(JobRegistryTest, RankMayComeBackAfterItsSessionEnded) {
  const Job job = Open(kAlice, {.name = "train", .rank = 0, .world_size = 2}).value();
  ASSERT_TRUE(Open(kAlice, {.name = "train", .token = job.token, .rank = 1, .world_size = 2}));
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token, .rank = 0, .world_size = 2}));
}

TEST_F(JobRegistryTest, FirstRankTellsTheWorldOfAJobThatALauncherOpened) {
  const Job job = Open(kAlice, {.name = "train"}, false).value();
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token, .rank = 1, .world_size = 2}));
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = job.token, .rank = 0, .world_size = 3}), Code::kAlreadyExists);
}

TEST_F(JobRegistryTest, EphemeralJobGoesWithItsLastSession) {
  const Job job = Open(kAlice, {.name = "train"}).value();
  ASSERT_TRUE(Open(kAlice, {.name = "train", .token = job.token}));
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_EQ(registry_.Leave(job.id, tiering::SessionId{2}), job.id);
  registry_.Remove(job.id);
  EXPECT_TRUE(registry_.jobs().empty());
  EXPECT_TRUE(Open(kAlice, {.name = "train", .mode = OpenMode::kCreate}));
}

TEST_F(JobRegistryTest, NamedJobStaysAndItsOwnerComesBack) {
  const Job job = Open(kAlice, {.name = "train", .named = true}).value();
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_EQ(Open(kAlice, {.name = "train"}).value().id, job.id);
}

TEST_F(JobRegistryTest, RanksOfOneLaunchMeetWithoutAToken) {
  const OpenJobRequest rank0{.name = "train", .launch = "torchrun 7", .rank = 0, .world_size = 2};
  OpenJobRequest rank1 = rank0;
  rank1.rank = 1;
  const Job job = Open(kAlice, rank0).value();
  const auto joined = Open(kAlice, rank1);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->id, job.id);
  EXPECT_EQ(joined->token, job.token);
  EXPECT_EQ(Refusal(kAlice, rank1), Code::kAlreadyExists) << "it is present";
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token})) << "a helper that was handed the token";

  rank1.launch = "torchrun 8";
  EXPECT_EQ(Refusal(kAlice, rank1), Code::kDenied) << "another launch";
  EXPECT_NE(Open(kBob, rank0).value().id, job.id) << "another user with the same variables";
}

TEST_F(JobRegistryTest, ALaunchDoesNotJoinAJobThatWasOpenedWithoutOne) {
  ASSERT_TRUE(Open(kAlice, {.name = "tokens", .token = std::string(64, 'a')}));
  ASSERT_TRUE(Open(kAlice, {.name = "plain"}));
  EXPECT_EQ(Refusal(kAlice, {.name = "tokens", .launch = "torchrun 7"}), Code::kDenied);
  EXPECT_EQ(Refusal(kAlice, {.name = "plain", .launch = "torchrun 7"}), Code::kDenied);
}

// The environment of a launch is no secret. A token that could be computed from it would give every user of the machine
// the rights of the job's owner.
TEST_F(JobRegistryTest, TheTokenOfALaunchCannotBeGuessed) {
  KernelTokenSource kernel;
  JobRegistry registry({}, kernel), other({}, kernel);
  const OpenJobRequest request{.name = "train", .launch = "torchrun\nnone\n127.0.0.1\n29500\n0"};
  const auto first = registry.Admit(kAlice, request, kStart);
  const auto second = other.Admit(kAlice, request, kStart);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(IsToken(first->job.token));
  EXPECT_NE(first->job.token, second->job.token);
}

TEST_F(JobRegistryTest, NextLaunchOfANamedJobGetsANewTokenAndItsWorld) {
  const OpenJobRequest before{.name = "train", .launch = "restart 0", .named = true, .rank = 0, .world_size = 2};
  OpenJobRequest after = before;
  after.launch = "restart 1";
  after.world_size = 3;
  const Job job = Open(kAlice, before).value();
  EXPECT_EQ(Refusal(kAlice, after), Code::kDenied) << "the first launch is still there";
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));

  const auto reopened = Open(kAlice, after);
  ASSERT_TRUE(reopened) << reopened.error().message;
  EXPECT_EQ(reopened->id, job.id);
  EXPECT_EQ(reopened->world_size, 3);
  EXPECT_NE(reopened->token, job.token);
  OpenJobRequest straggler = before;
  straggler.rank = 1;
  EXPECT_EQ(Refusal(kAlice, straggler), Code::kDenied) << "of the launch that is over";
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = job.token}), Code::kDenied) << "and its token with it";
  after.rank = 1;
  EXPECT_EQ(Open(kAlice, after)->token, reopened->token);
}

TEST_F(JobRegistryTest, AllRanksOfALaunchMayResume) {
  const auto rank = [](int32_t number, const char* launch) {
    return OpenJobRequest{
        .name = "train", .launch = launch, .mode = OpenMode::kResume, .rank = number, .world_size = 3};
  };
  const Job job = Open(kAlice, rank(1, "restart 0")).value();
  EXPECT_EQ(Open(kAlice, rank(0, "restart 0")).value().id, job.id);
  EXPECT_EQ(Refusal(kAlice, rank(2, "restart 1")), Code::kAlreadyExists) << "another run";
}

// An elastic restart with tokens that a launcher of the user's own hands out.
TEST_F(JobRegistryTest, NextRunOfANamedJobBringsItsOwnTokenAndWorld) {
  const std::string first_run(64, 'a');
  const std::string next_run(64, 'b');
  const Job job =
      Open(kAlice, {.name = "train", .token = first_run, .named = true, .rank = 0, .world_size = 2}).value();
  const OpenJobRequest rank0{.name = "train", .token = next_run, .named = true, .rank = 0, .world_size = 3};
  EXPECT_EQ(Refusal(kAlice, rank0), Code::kDenied) << "the first run is still there";
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));

  const auto reopened = Open(kAlice, rank0);
  ASSERT_TRUE(reopened) << reopened.error().message;
  EXPECT_EQ(reopened->id, job.id);
  EXPECT_EQ(reopened->token, next_run);
  EXPECT_EQ(reopened->world_size, 3);
  const auto other = Open(kAlice, {.name = "train", .token = next_run, .named = true, .rank = 1, .world_size = 3});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->members.size(), 2u);
  const OpenJobRequest straggler{.name = "train", .token = first_run, .named = true, .rank = 1, .world_size = 2};
  EXPECT_EQ(Refusal(kAlice, straggler), Code::kDenied) << "of the run that is over";
}

TEST_F(JobRegistryTest, NextRunWithTheSameTokenBringsItsWorld) {
  const Job job = Open(kAlice, {.name = "train", .named = true, .rank = 0, .world_size = 2}).value();
  const OpenJobRequest rank1{.name = "train", .token = job.token, .named = true, .rank = 1, .world_size = 3};
  EXPECT_EQ(Refusal(kAlice, rank1), Code::kAlreadyExists) << "the world of two is still there";
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));

  const auto reopened = Open(kAlice, rank1);
  ASSERT_TRUE(reopened) << reopened.error().message;
  EXPECT_EQ(reopened->world_size, 3);
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = job.token, .rank = 0, .world_size = 2}), Code::kAlreadyExists)
      << "of the run that is over";
}

TEST_F(JobRegistryTest, WorldGoesWithItsLastRankAndNotWithAHelper) {
  const Job job = Open(kAlice, {.name = "train", .rank = 0, .world_size = 2}).value();
  ASSERT_TRUE(Open(kAlice, {.name = "train", .token = job.token}));
  ASSERT_TRUE(Open(kAlice, {.name = "train", .token = job.token}));
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{2}));
  EXPECT_EQ(registry_.Find(job.id)->world_size, 2);
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token, .rank = 0, .world_size = 3}))
      << "a helper is left, which is of no world";
}

TEST_F(JobRegistryTest, NextRunMayBeOpenedByItsLauncher) {
  const Job job =
      Open(kAlice, {.name = "train", .token = std::string(64, 'a'), .named = true, .rank = 0, .world_size = 2}).value();
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  const std::string token(64, 'b');
  EXPECT_EQ(Open(kAlice, {.name = "train", .token = token, .named = true}, false).value().token, token);
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = token, .rank = 1, .world_size = 4}))
      << "it left the world to the first rank";
}

TEST_F(JobRegistryTest, RunThatALauncherOpenedIsAwaitedAndTakenOverByNoOther) {
  const std::string other(64, 'b');
  const Job job = Open(kAlice, {.name = "train", .named = true}, false).value();
  const OpenJobRequest other_rank{.name = "train", .token = other, .named = true, .rank = 0, .world_size = 2};
  const auto refused = Open(kAlice, other_rank);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("waits up to 60 s"));
  EXPECT_FALSE(Open(kAlice, {.name = "train", .token = other, .named = true}, false)) << "another launcher";

  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto joined = Open(kAlice, {.name = "train", .token = job.token, .rank = rank, .world_size = 4});
    ASSERT_TRUE(joined) << joined.error().message;
  }
  EXPECT_EQ(Refusal(kAlice, other_rank), Code::kDenied) << "its run is there";
  for (uint64_t session = 1; session <= 4; ++session) registry_.Leave(job.id, tiering::SessionId{session});
  EXPECT_EQ(Open(kAlice, other_rank).value().token, other) << "its run is over";
}

TEST_F(JobRegistryTest, LauncherThatComesAfterAnotherRunWaitsForItsEnd) {
  const std::string first_run(64, 'a');
  const std::string token(64, 'b');
  const OpenJobRequest rank0{.name = "train", .token = first_run, .named = true, .rank = 0, .world_size = 2};
  const OpenJobRequest launcher{.name = "train", .token = token, .named = true};
  const Job job = Open(kAlice, rank0).value();
  EXPECT_FALSE(Open(kAlice, launcher, false)) << "the run is there";
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  ASSERT_TRUE(Open(kAlice, launcher, false));
  EXPECT_EQ(Refusal(kAlice, rank0), Code::kDenied) << "the run is over, and the next one awaited";
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = token, .rank = 1, .world_size = 4}));
}

TEST_F(JobRegistryTest, RunThatNobodyJoinsIsAwaitedNoLongerThanItsTime) {
  const OpenJobRequest launcher{.name = "train", .token = std::string(64, 'a'), .named = true};
  const OpenJobRequest other{.name = "train", .token = std::string(64, 'b')};
  ASSERT_TRUE(Open(kAlice, launcher, false));
  now_ = kStart + kUnattachedJobLifetime / 2;
  ASSERT_TRUE(Open(kAlice, launcher, false)) << "and from here again";
  now_ = kStart + kUnattachedJobLifetime;
  EXPECT_EQ(Refusal(kAlice, other), Code::kDenied);
  now_ = now_ + kUnattachedJobLifetime / 2;
  EXPECT_EQ(Open(kAlice, other).value().token, other.token);
  EXPECT_EQ(registry_.NextExpiry(), std::nullopt) << "a named job stays";
}

TEST_F(JobRegistryTest, OwnerWithoutATokenComesToAnAwaitedRunAsItIs) {
  const Job job = Open(kAlice, {.name = "train", .named = true}, false).value();
  EXPECT_EQ(Open(kAlice, {.name = "train"}).value().token, job.token);
  EXPECT_TRUE(Open(kAlice, {.name = "train", .token = job.token, .rank = 0, .world_size = 2}));
}

TEST_F(JobRegistryTest, NextRunIsItsOwnersAlone) {
  const std::string token(64, 'b');
  const Job job = Open(kAlice, {.name = "train", .named = true}).value();
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_EQ(Refusal(kBob, {.name = "train", .token = token, .mode = OpenMode::kJoin}), Code::kNotFound);
  EXPECT_NE(Open(kBob, {.name = "train", .token = token}).value().id, job.id) << "a job of his own";
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = token, .mode = OpenMode::kJoin}), Code::kDenied)
      << "join is for those who know the token";
  EXPECT_EQ(registry_.Find(job.id)->token, job.token) << "refusals change nothing";

  const Job nobodys = Open(kOverflowUid, {.name = "train", .token = token, .named = true}).value();
  EXPECT_FALSE(registry_.Leave(nobodys.id, nobodys.members.front().session));
  EXPECT_EQ(Refusal(kOverflowUid, {.name = "train", .token = std::string(64, 'c')}), Code::kDenied)
      << "its uid stands for everybody";
}

TEST_F(JobRegistryTest, AdmissionToTheNextRunChangesNothingUntilItIsCommitted) {
  const Job job = Open(kAlice, {.name = "train", .named = true}).value();
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  ASSERT_TRUE(registry_.Admit(kAlice, {.name = "train", .token = std::string(64, 'b')}, kStart));
  EXPECT_EQ(registry_.Find(job.id)->token, job.token);
}

TEST_F(JobRegistryTest, EphemeralJobThatNobodyHasJoinedYetKeepsItsToken) {
  ASSERT_TRUE(Open(kAlice, {.name = "train"}, false));
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = std::string(64, 'b')}), Code::kDenied);
}

TEST_F(JobRegistryTest, ResumeTakesANamedJobWithoutSessions) {
  const Job job = Open(kAlice, {.name = "train", .named = true}).value();
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .token = job.token, .mode = OpenMode::kResume}), Code::kAlreadyExists);
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_EQ(Open(kAlice, {.name = "train", .mode = OpenMode::kResume}).value().id, job.id);
  ASSERT_TRUE(Open(kAlice, {.name = "brief"}));
  EXPECT_EQ(Refusal(kAlice, {.name = "brief", .mode = OpenMode::kResume}), Code::kAlreadyExists);
}

TEST_F(JobRegistryTest, AllRanksOfARunMayResume) {
  const std::string token(64, 'b');
  const auto rank = [&](int32_t number) {
    return OpenJobRequest{.name = "train", .token = token, .mode = OpenMode::kResume, .rank = number, .world_size = 3};
  };
  const Job job = Open(kAlice, rank(1)).value();
  EXPECT_EQ(Open(kAlice, rank(0)).value().id, job.id);
  OpenJobRequest stranger = rank(2);
  stranger.token = std::string(64, 'c');
  EXPECT_EQ(Refusal(kAlice, stranger), Code::kAlreadyExists) << "another run";
  OpenJobRequest rankless = rank(2);
  rankless.rank = -1;
  rankless.world_size = 0;
  EXPECT_EQ(Refusal(kAlice, rankless), Code::kAlreadyExists);
  EXPECT_FALSE(registry_.Leave(job.id, tiering::SessionId{1}));
  EXPECT_EQ(Refusal(kAlice, rank(1)), Code::kAlreadyExists) << "the others have gone on";
  EXPECT_EQ(Open(kAlice, rank(2)).value().id, job.id);

  const Job attached =
      Open(kAlice, {.name = "other", .token = token, .named = true, .rank = 0, .world_size = 3}).value();
  OpenJobRequest late = rank(1);
  late.name = attached.name;
  EXPECT_EQ(Refusal(kAlice, late), Code::kNotFound) << "its run was started by attach";
  late.rank = 0;
  EXPECT_EQ(Refusal(kAlice, late), Code::kAlreadyExists) << "this one is there";
}

TEST_F(JobRegistryTest, ResumeOfAnUnknownJobAsksTheEngineForItsManifest) {
  for (const OpenMode mode : {OpenMode::kResume, OpenMode::kResumeOrCreate}) {
    const auto admission = registry_.Admit(kAlice, {.name = "old", .mode = mode}, kStart);
    ASSERT_TRUE(admission);
    EXPECT_TRUE(admission->created && admission->resume && admission->job.named);
    EXPECT_EQ(admission->job.EngineKey(), "1000/old");
  }
}

TEST_F(JobRegistryTest, ResumeOrCreateFollowsTheRulesOfResumeWhereTheJobIsLive) {
  const auto rank = [&](int32_t number) {
    return OpenJobRequest{.name = "train",
                          .token = std::string(64, 'b'),
                          .mode = OpenMode::kResumeOrCreate,
                          .rank = number,
                          .world_size = 2};
  };
  const Job job = Open(kAlice, rank(0)).value();
  EXPECT_EQ(Open(kAlice, rank(1)).value().id, job.id);
  EXPECT_EQ(Refusal(kAlice, rank(1)), Code::kAlreadyExists) << "a rank comes once";
  EXPECT_EQ(Refusal(kAlice, {.name = "train", .mode = OpenMode::kResumeOrCreate}), Code::kAlreadyExists)
      << "another run";
  ASSERT_TRUE(Open(kAlice, {.name = "brief"}));
  EXPECT_EQ(Refusal(kAlice, {.name = "brief", .mode = OpenMode::kResumeOrCreate}), Code::kAlreadyExists)
      << "it is not named";
}

TEST_F(JobRegistryTest, NothingIsKeptByADaemonWithoutData) {
  JobRegistry registry({.persistent = false}, tokens_);
  const OpenJobRequest named = {.name = "train", .named = true};
  EXPECT_THAT(registry.Admit(kAlice, named, kStart).error().message, HasSubstr("set daemon.data_directory"));
  const OpenJobRequest resumed = {.name = "train", .mode = OpenMode::kResume};
  EXPECT_EQ(registry.Admit(kAlice, resumed, kStart).error().code, Code::kDenied);
  const OpenJobRequest either = {.name = "train", .mode = OpenMode::kResumeOrCreate};
  EXPECT_EQ(registry.Admit(kAlice, either, kStart).error().code, Code::kDenied);
  EXPECT_TRUE(registry.Admit(kAlice, {.name = "train"}, kStart));
}

TEST_F(JobRegistryTest, OverflowUidOwnsNothingWithoutAToken) {
  EXPECT_EQ(Refusal(kOverflowUid, {.name = "train"}), Code::kDenied);
  EXPECT_EQ(Refusal(kOverflowUid, {.name = "train", .launch = "torchrun 7"}), Code::kDenied)
      << "the launch of another container may look the same";
  const std::string token(64, 'b');
  ASSERT_TRUE(Open(kOverflowUid, {.name = "train", .token = token}));
  EXPECT_EQ(Refusal(kOverflowUid, {.name = "train", .token = std::string(64, 'c')}), Code::kDenied);
  EXPECT_TRUE(Open(kOverflowUid, {.name = "train", .token = token}));
}

TEST_F(JobRegistryTest, APrivateDaemonServesItsUserAlone) {
  JobRegistry registry({.only_uid = kAlice}, tokens_);
  EXPECT_TRUE(registry.Admit(kAlice, {.name = "train"}, kStart));
  EXPECT_EQ(registry.Admit(0, {.name = "train"}, kStart).error().code, Code::kDenied) << "root's rights are elsewhere";
  EXPECT_EQ(registry.Admit(kAlice + 1, {.name = "train"}, kStart).error().code, Code::kDenied);
  EXPECT_EQ(registry.Admit(kAlice + 1, {.token = std::string(64, 'b')}, kStart).error().code, Code::kDenied);
}

TEST_F(JobRegistryTest, UnknownUidOpensNothing) { EXPECT_EQ(Refusal(kUnknownUid, {.name = "x"}), Code::kDenied); }

TEST_F(JobRegistryTest, JobsOfAUserAreLimited) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Open(kAlice, {.name = "job" + std::to_string(i)}));
  const auto refused = Open(kAlice, {.name = "job3"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("max_jobs_per_uid"));
  EXPECT_TRUE(Open(kBob, {.name = "job3"}));
}

TEST_F(JobRegistryTest, UnnamedJobsGetNamesOfTheirOwn) {
  const Job first = Open(kAlice, {}).value();
  const Job second = Open(kAlice, {}).value();
  EXPECT_TRUE(first.name.starts_with("job-") && first.name.size() == 12) << first.name;
  EXPECT_NE(first.name, second.name);
}

TEST_F(JobRegistryTest, JobWithoutSessionExpiresUnlessSomebodyAttaches) {
  const Job job = Open(kAlice, {.name = "train"}, false).value();
  EXPECT_EQ(registry_.NextExpiry(), kStart + kUnattachedJobLifetime);
  EXPECT_TRUE(registry_.Expired(kStart).empty());
  EXPECT_EQ(registry_.Expired(kStart + kUnattachedJobLifetime), std::vector{job.id});
  ASSERT_TRUE(Open(kAlice, {.name = "train", .token = job.token}));
  EXPECT_EQ(registry_.NextExpiry(), std::nullopt);
}

TEST_F(JobRegistryTest, RefusedAdmissionChangesNothing) {
  ASSERT_TRUE(registry_.Admit(kAlice, {.name = "train"}, kStart));
  EXPECT_TRUE(registry_.jobs().empty());
  EXPECT_EQ(registry_.FindFor({.admin = true}, "train").error().code, Code::kNotFound);
}

TEST_F(JobRegistryTest, ControlNeedsOwnerTokenOrAdmin) {
  const Job job = Open(kAlice, {.name = "train"}).value();
  EXPECT_TRUE(registry_.FindFor({.uid = kAlice}, "train"));
  EXPECT_TRUE(registry_.FindFor({.token = job.token}, "train"));
  EXPECT_TRUE(registry_.FindFor({.uid = kBob, .admin = true}, "train"));
  EXPECT_TRUE(registry_.FindFor({.uid = kBob, .token = job.token}, "train"));
  EXPECT_EQ(registry_.FindFor({.uid = kBob}, "train").error().code, Code::kNotFound);
  EXPECT_EQ(registry_.FindFor({.uid = kBob, .token = std::string(64, 'a')}, "train").error().code, Code::kNotFound);
  EXPECT_EQ(registry_.FindFor({.uid = kAlice, .token = std::string(64, 'a')}, "train").error().code, Code::kDenied);
  EXPECT_EQ(registry_.FindFor({}, "train").error().code, Code::kNotFound);
}

TEST_F(JobRegistryTest, AdminSaysWhoseJobWhereSeveralHaveTheName) {
  ASSERT_TRUE(Open(kAlice, {.name = "train"}));
  ASSERT_TRUE(Open(kBob, {.name = "train"}));
  EXPECT_EQ(registry_.FindFor({.admin = true}, "train").error().code, Code::kInvalid);
  EXPECT_EQ(registry_.FindFor({.admin = true}, "1001/train").value()->uid, kBob);
}

TEST_F(JobRegistryTest, AnAdministratorsUidAndNameMeanNoJobThatIsCalledSo) {
  ASSERT_TRUE(Open(kAlice, {.name = "1001/train"}));
  const auto refused = registry_.FindFor({.admin = true}, "1001/train");
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  EXPECT_EQ(refused.error().message,
            "no job '1001/train' among the 1 that you may see (tierctl job list); 1000/1001/train names one of another "
            "user that is called so");
  EXPECT_EQ(registry_.FindFor({.admin = true}, "1000/1001/train").value()->uid, kAlice);
  EXPECT_EQ(registry_.FindFor({.uid = kAlice}, "1001/train").value()->uid, kAlice) << "its own";
}

TEST_F(JobRegistryTest, OverflowUidControlsOnlyByToken) {
  const std::string token(64, 'b');
  ASSERT_TRUE(Open(kOverflowUid, {.name = "train", .token = token}));
  EXPECT_FALSE(registry_.FindFor({.uid = kOverflowUid}, "train"));
  EXPECT_TRUE(registry_.FindFor({.uid = kOverflowUid, .token = token}, "train"));
}

TEST(Token, IsSixtyFourHexadecimalDigitsAndNeverTheSame) {
  KernelTokenSource source;
  const std::string token = source.MakeToken();
  EXPECT_TRUE(IsToken(token));
  EXPECT_NE(token, source.MakeToken());
  EXPECT_TRUE(SameToken(token, token));
  EXPECT_FALSE(SameToken(token, source.MakeToken()));
  EXPECT_FALSE(SameToken("", "")) << "no token is nobody's token";
}

}  // namespace
}  // namespace tier::session
