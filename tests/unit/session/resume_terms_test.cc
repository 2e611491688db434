// What an operator gave a job it has when its next run resumes it, though that run names no terms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/session/kept_terms.h"
#include "tests/support/session/engine_thread_parts.h"

namespace tier::session {
namespace {

using ::testing::HasSubstr;
constexpr uint32_t kUser = 1000;
constexpr JobTerms kGiven = {
    .guarantee_bytes = kGiB, .limit_bytes = 2 * kGiB, .ssd_guarantee_bytes = 3 * kGiB, .ssd_limit_bytes = 4 * kGiB};

class ResumeTerms : public testing::EngineThreadParts {
 protected:
  ResumeTerms() { engine_.persisted = {"1000/train"}; }
  Result<const Job*> Open(OpenJobRequest request) {
    request.name = "train";
    return job_service_.Open(kUser, request, std::nullopt, clock_.now);
  }
  // By an operator, for a run that persists, and ends.
  void OpenWithTerms() {
    ASSERT_TRUE(Open({.mode = proto::OpenMode::kCreate,
                      .named = true,
                      .guarantee_bytes = kGiven.guarantee_bytes,
                      .limit_bytes = kGiven.limit_bytes,
                      .ssd_guarantee_bytes = kGiven.ssd_guarantee_bytes,
                      .ssd_limit_bytes = kGiven.ssd_limit_bytes}));
    clock_.now = clock_.now + kUnattachedJobLifetime;
  }
  // As libtier does it: again, once the engine has closed the job.
  Result<const Job*> Resume(OpenJobRequest request = {}) {
    request.mode = proto::OpenMode::kResume;
    auto opened = Open(request);
    EXPECT_EQ(opened.error().code, Code::kTimeout);
    loop_.RunOnce();
    opened = Open(request);
    loop_.RunOnce();
    return opened;
  }
  JobTerms Has() const {
    EXPECT_EQ(engine_.jobs.size(), 1u);
    const tiering::JobOptions& job = engine_.jobs.begin()->second;
    return {.guarantee_bytes = job.guarantee_bytes,
            .limit_bytes = job.limit_bytes,
            .ssd_guarantee_bytes = job.ssd_guarantee_bytes,
            .ssd_limit_bytes = job.ssd_limit_bytes};
  }
};

TEST_F(ResumeTerms, AJobHasTheTermsThatItHadThoughTheEngineClosesItFirst) {
  OpenWithTerms();
  ASSERT_TRUE(Resume());
  EXPECT_EQ(Has(), kGiven);
  ASSERT_TRUE(engine_.SetJob(registry_.jobs().begin()->first, {.ssd_limit_bytes = 5 * kGiB}));
  ASSERT_TRUE(Resume());
  EXPECT_EQ(Has().ssd_limit_bytes, 5 * kGiB) << "as an operator set it since";
}

TEST_F(ResumeTerms, TermsThatTheRequestNamesGoBefore) {
  OpenWithTerms();
  ASSERT_TRUE(Resume({.limit_bytes = 7 * kGiB}));
  JobTerms expected = kGiven;
  expected.guarantee_bytes = 0;
  expected.limit_bytes = 7 * kGiB;
  EXPECT_EQ(Has(), expected);
  ASSERT_TRUE(Resume({.ssd_guarantee_bytes = kGiB}));
  EXPECT_EQ(Has(), (JobTerms{.limit_bytes = 7 * kGiB, .ssd_guarantee_bytes = kGiB}));
}

TEST_F(ResumeTerms, AResumeThatFailsLosesNone) {
  OpenWithTerms();
  engine_.resume_answer = Fail(Code::kIoError, "the disk is gone");
  ASSERT_TRUE(Resume()) << "it is told later";
  ASSERT_TRUE(registry_.jobs().empty());
  engine_.resume_answer = {};
  ASSERT_TRUE(Open({.mode = proto::OpenMode::kResume}));
  EXPECT_EQ(Has(), kGiven);
}

TEST_F(ResumeTerms, ARefusalSaysWhoseTermsTheyAre) {
  OpenWithTerms();
  EXPECT_EQ(Open({.mode = proto::OpenMode::kResume}).error().code, Code::kTimeout);
  loop_.RunOnce();
  engine_.open_job_answer = Fail(Code::kNoSpace, "an SSD guarantee of 3 GiB cannot be given");
  const auto refused = Open({.mode = proto::OpenMode::kResume});
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_THAT(refused.error().message, HasSubstr("job 'train' had these terms before"));
  ASSERT_TRUE(Open({.mode = proto::OpenMode::kResume}));
  EXPECT_EQ(Has(), kGiven);
}

TEST_F(ResumeTerms, AJobThatBeginsAgainHasItsOwnAlone) {
  OpenWithTerms();
  EXPECT_EQ(Open({.mode = proto::OpenMode::kResume}).error().code, Code::kTimeout);
  loop_.RunOnce();
  ASSERT_TRUE(Open({.mode = proto::OpenMode::kCreate, .named = true}));
  EXPECT_EQ(Has(), JobTerms{});
  clock_.now = clock_.now + kUnattachedJobLifetime;
  ASSERT_TRUE(Resume());
  EXPECT_EQ(Has(), JobTerms{}) << "what the run before had is gone";
}

TEST_F(ResumeTerms, APurgeEndsThem) {
  OpenWithTerms();
  EXPECT_EQ(Open({.mode = proto::OpenMode::kResume}).error().code, Code::kTimeout);
  loop_.RunOnce();
  engine_.kept = {{.key = "1000/train"}};
  ASSERT_TRUE(job_service_.DeleteStoredManifest(kUser, "train", "by request of a test"));
  ASSERT_TRUE(Open({.mode = proto::OpenMode::kResume}));
  EXPECT_EQ(Has(), JobTerms{});
}

TEST(KeptTerms, TheOldestOfAUserGoFirst) {
  KeptTerms kept;
  kept.Keep(2, "job", kGiven);
  for (size_t i = 0; i < kKeptOfUserMax + 2; ++i) kept.Keep(1, "job" + std::to_string(i), kGiven);
  EXPECT_EQ(kept.size(), kKeptOfUserMax + 1);
  EXPECT_EQ(kept.ForResume(1, {.name = "job1"}), JobTerms{});
  EXPECT_EQ(kept.ForResume(1, {.name = "job2"}), kGiven);
  EXPECT_EQ(kept.ForResume(2, {.name = "job"}), kGiven) << "another user takes nothing of it";
  kept.Keep(2, "job", {});
  EXPECT_EQ(kept.size(), kKeptOfUserMax) << "there is nothing to keep";
}

TEST(KeptTerms, AreBoundedInAll) {
  KeptTerms kept;
  for (uint32_t uid = 0; uid < kKeptMax + 5; ++uid) kept.Keep(uid, "job", kGiven);
  EXPECT_EQ(kept.size(), kKeptMax);
  EXPECT_EQ(kept.ForResume(4, {.name = "job"}), JobTerms{});
  EXPECT_EQ(kept.ForResume(5, {.name = "job"}), kGiven);
}

}  // namespace
}  // namespace tier::session
