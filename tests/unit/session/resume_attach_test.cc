// A client that opens a job which is being resumed waits for the end of that, and is told how it ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/support/session/engine_thread_parts.h"

namespace tier::session {
namespace {

using ::testing::HasSubstr;
using testing::RingClient;
using testing::SessionWorld;

class ResumeAttach : public testing::EngineThreadParts {
 protected:
  struct Attempt {
    std::unique_ptr<RingClient> client;
    std::optional<Result<Attached>> answer;
  };
  ResumeAttach() { engine_.hold_resumes = true; }

  static OpenJobRequest MakeResume(int32_t rank) {
    return {.name = "train",
            .token = std::string(64, 'a'),
            .mode = proto::OpenMode::kResume,
            .rank = rank,
            .world_size = 2};
  }
  // A rank of one run of two.
  std::shared_ptr<Attempt> Resume(uint64_t session, int32_t rank = 0) {
    auto region = MakeSessionRegion(1, static_cast<tiering::SessionId>(session)).value();
    const auto attempt = std::make_shared<Attempt>();
    attempt->client = std::make_unique<RingClient>(region.descriptor.get());
    AttachRequest request = MakeRequest(session, 1000, "train", std::move(region.mapping));
    request.open = MakeResume(rank);
    bells_[attempt->client.get()] = proto::FileDescriptor(::dup(request.doorbell.get()));
    table_.Attach(std::move(request), clock_.now, [attempt](Result<Attached> answer) {
      EXPECT_FALSE(attempt->answer.has_value()) << "answered twice";
      attempt->answer = std::move(answer);
    });
    return attempt;
  }
  void EndResumes(Status how = {}) {
    engine_.hold_resumes = false;
    engine_.resume_answer = std::move(how);
    loop_.RunOnce();
  }
};

TEST_F(ResumeAttach, IsAnsweredWhenTheJobIsOpen) {
  const auto attempt = Resume(1);
  loop_.RunOnce();
  EXPECT_FALSE(attempt->answer.has_value());
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_TRUE(engine_.sessions.empty()) << "the engine takes no session of it yet";
  EndResumes();
  ASSERT_TRUE(attempt->answer.has_value() && attempt->answer->has_value());
  EXPECT_EQ((*attempt->answer)->job_name, "train");
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_TRUE(engine_.nodes.contains(1)) << "once it knows the session";
  ASSERT_TRUE(SendOne(*attempt->client));
  loop_.RunOnce();
  EXPECT_EQ(engine_.submitted.size(), 1u);
}

TEST_F(ResumeAttach, ResumeOrCreateResumesWhatIsPersistedAndElseMakesANewJob) {
  const auto open = [this](uint64_t session) {
    auto region = MakeSessionRegion(1, static_cast<tiering::SessionId>(session)).value();
    AttachRequest request = MakeRequest(session, 1000, "train", std::move(region.mapping));
    request.open.mode = proto::OpenMode::kResumeOrCreate;
    return AttachNow(table_, std::move(request));
  };
  const auto created = open(1);
  ASSERT_TRUE(created) << created.error().message;
  EXPECT_FALSE(created->resumed) << "nothing is persisted";
  EXPECT_FALSE(engine_.jobs.begin()->second.resume);
  EXPECT_TRUE(engine_.jobs.begin()->second.named);
  job_service_.Close(registry_.jobs().begin()->first, "by request", false);
  engine_.kept = {{.key = "1000/train-2", .ssd_bytes = 4096}};
  EXPECT_FALSE(open(2).value().resumed) << "that is another job's";
  job_service_.Close(registry_.jobs().begin()->first, "by request", false);
  engine_.kept.push_back({.key = "1000/train", .ssd_bytes = 4096});
  std::ranges::sort(engine_.kept, {}, &tiering::StoredManifest::key);  // As the engine lists them.
  EXPECT_EQ(open(3).error().message, "not answered") << "it is being resumed";
  EXPECT_TRUE(engine_.jobs.begin()->second.resume);
}

TEST_F(ResumeAttach, WhoeverJoinsIsToldWhetherTheJobWasResumed) {
  const auto first = Resume(1, 0);
  const auto second = Resume(2, 1);
  EndResumes();
  EXPECT_TRUE(first->answer.value().value().resumed);
  EXPECT_TRUE(second->answer.value().value().resumed);
  auto region = MakeSessionRegion(1, tiering::SessionId{3}).value();
  EXPECT_FALSE(AttachNow(table_, MakeRequest(3, 1000, "another", std::move(region.mapping))).value().resumed);
}

TEST_F(ResumeAttach, AllRanksWaitForOneResume) {
  const auto first = Resume(1, 0);
  const auto second = Resume(2, 1);
  EXPECT_EQ(engine_.jobs.size(), 1u);
  EXPECT_FALSE(first->answer.has_value() || second->answer.has_value());
  EndResumes();
  EXPECT_TRUE(first->answer.value().has_value() && second->answer.value().has_value());
  EXPECT_EQ(engine_.sessions.size(), 2u);
}

// Nobody of it has come yet: a named job without members is resumed from its manifest, unless that is going on.
TEST_F(ResumeAttach, JoinsTheResumeThatAnOperatorBegan) {
  OpenJobRequest open = MakeResume(-1);
  const tiering::JobId job = (*job_service_.Open(1000, open, std::nullopt, clock_.now))->id;
  const auto first = Resume(1, 0);
  const auto second = Resume(2, 1);
  EXPECT_TRUE(engine_.log.empty()) << engine_.log.front();
  EXPECT_FALSE(first->answer.has_value() || second->answer.has_value());
  EndResumes();
  ASSERT_TRUE(first->answer.value().has_value() && second->answer.value().has_value());
  EXPECT_EQ((*first->answer)->job, static_cast<uint64_t>(job));
  EXPECT_EQ((*second->answer)->job, static_cast<uint64_t>(job));
  EXPECT_EQ(engine_.jobs.size(), 1u);
}

TEST_F(ResumeAttach, JoinsTheResumeThatAClientBeganWhichHasGoneSince) {
  const auto gone = Resume(1, 0);
  const tiering::JobId job = registry_.jobs().begin()->first;
  table_.Detach(tiering::SessionId{1}, "the client is gone");
  const auto next = Resume(2, 0);
  ASSERT_EQ(registry_.jobs().size(), 1u);
  EXPECT_EQ(registry_.jobs().begin()->first, job) << "it was begun again";
  EXPECT_FALSE(next->answer.has_value());
  EndResumes();
  ASSERT_TRUE(next->answer.value().has_value());
  EXPECT_EQ((*next->answer)->job, static_cast<uint64_t>(job));
  EXPECT_EQ(engine_.sessions.size(), 1u);
}

TEST_F(ResumeAttach, AFailureIsToldToAllWhoWaitAndLeavesNoJob) {
  const auto first = Resume(1, 0);
  const auto second = Resume(2, 1);
  EndResumes(Fail(Code::kCorrupt, "the manifest is damaged"));
  EXPECT_EQ(first->answer.value().error().code, Code::kCorrupt);
  EXPECT_THAT(second->answer.value().error().message, HasSubstr("damaged"));
  EXPECT_TRUE(registry_.jobs().empty());
  EXPECT_EQ(table_.size(), 0u);
  engine_.resume_answer = {};
  const auto again = Resume(3);
  loop_.RunOnce();
  EXPECT_TRUE(again->answer.value().has_value());
}

TEST_F(ResumeAttach, AClientThatGoesLeavesTheJobToThoseWhoStay) {
  const auto first = Resume(1, 0);
  const auto second = Resume(2, 1);
  table_.Detach(tiering::SessionId{1}, "the client is gone");
  EXPECT_EQ(first->answer.value().error().code, Code::kDisconnected);
  EndResumes();
  EXPECT_TRUE(second->answer.value().has_value());
  EXPECT_EQ(engine_.sessions.size(), 1u);
  EXPECT_EQ(registry_.jobs().begin()->second.members.size(), 1u);
}

TEST_F(ResumeAttach, AClientThatBreaksTheProtocolMeanwhileIsRefusedWithTheReason) {
  const auto attempt = Resume(1);
  table_.End(tiering::SessionId{1}, Code::kRevoked, "it sent a packet that means nothing");
  ASSERT_TRUE(attempt->answer.has_value());
  ASSERT_FALSE(attempt->answer->has_value());
  EXPECT_EQ(attempt->answer->error().code, Code::kRevoked);
  EndResumes();
  EXPECT_TRUE(engine_.sessions.empty());
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(ResumeAttach, AJobThatIsClosedMeanwhileRefusesThem) {
  const auto attempt = Resume(1);
  job_service_.Close(registry_.jobs().begin()->first, "by request of an operator", false);
  EXPECT_EQ(attempt->answer.value().error().code, Code::kRevoked);
  EXPECT_THAT(attempt->answer->error().message, HasSubstr("by request of an operator"));
  EXPECT_TRUE(engine_.jobs.empty());
  EndResumes();
  EXPECT_EQ(table_.size(), 0u);
}

// Who drains a node waits until no session is left: one that came later would be ended by the restart.
TEST_F(ResumeAttach, ADrainThatBeganMeanwhileRefusesThem) {
  const auto attempt = Resume(1);
  job_service_.CloseAdmission("this node is being drained");
  EndResumes();
  ASSERT_TRUE(attempt->answer.has_value());
  ASSERT_FALSE(attempt->answer->has_value());
  EXPECT_EQ(attempt->answer->error().code, Code::kDenied);
  EXPECT_THAT(attempt->answer->error().message, HasSubstr("being drained"));
  EXPECT_TRUE(engine_.sessions.empty());
  EXPECT_EQ(table_.size(), 0u);
  job_service_.OpenAdmission();
  const auto again = Resume(2);
  loop_.RunOnce();
  EXPECT_TRUE(again->answer.value().has_value());
}

TEST_F(ResumeAttach, AnOrderlyStopRefusesThem) {
  const auto attempt = Resume(1);
  table_.EndAll(Code::kDisconnected, "tierd stops");
  EXPECT_EQ(attempt->answer.value().error().code, Code::kDisconnected);
  EndResumes();
  EXPECT_TRUE(engine_.sessions.empty());
}

TEST(ResumeByControl, IsAnsweredWhenTheJobIsOpenOrCannotBe) {
  SessionWorld world;
  const Caller owner{.uid = 1000};
  const OpenJobRequest resume{.name = "train", .mode = proto::OpenMode::kResume};
  world.OnEngine([&] { world.engine.resume_answer = Fail(Code::kIoError, "the disk is gone"); });
  const auto refused = world.control().OpenJob(owner, resume);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kIoError);
  world.OnEngine([&] { world.engine.resume_answer = {}; });
  EXPECT_EQ(world.control().OpenJob(owner, resume).value().name, "train");
}

}  // namespace
}  // namespace tier::session
