// JobRegistryFixture: a registry of jobs whose engine agrees to everything, and the tokens of which are counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "daemon/session/job_registry.h"

namespace tier::session::testing {

class JobRegistryFixture : public ::testing::Test {
 protected:
  class Tokens final : public TokenSource {
   public:
    uint64_t Random() override { return ++last_ * 0x9e3779b97f4a7c15; }

   private:
    uint64_t last_ = 0;
  };
  static constexpr base::TimePoint kStart{std::chrono::seconds(1000)};

  // Admit and Commit in one.
  Result<Job> Open(uint32_t uid, const OpenJobRequest& request, bool with_session = true) {
    EXPECT_TRUE(ValidateOpenJob(request));
    auto admission = registry_.Admit(uid, request, now_);
    if (!admission) return std::unexpected(admission.error());
    last_created_ = admission->created;
    std::optional<tiering::SessionId> session;
    if (with_session) session = static_cast<tiering::SessionId>(++last_session_);
    return registry_.Commit(*admission, request, session, now_);
  }
  Code Refusal(uint32_t uid, const OpenJobRequest& request) {
    const auto opened = Open(uid, request);
    return opened ? Code::kOk : opened.error().code;
  }

  Tokens tokens_;
  JobRegistry registry_{{.jobs_per_uid_max = 3}, tokens_};
  base::TimePoint now_ = kStart;
  uint64_t last_session_ = 0;
  bool last_created_ = false;
};

}  // namespace tier::session::testing
