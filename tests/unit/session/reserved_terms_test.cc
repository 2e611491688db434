// Reserved jobs between the registry and the engine: what a first run gets that resumes, and what outlives the daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/owner_table.h"
#include "daemon/session/reservation_file.h"
#include "daemon/session/unopened_reservations.h"
#include "tests/support/session/engine_thread_parts.h"

namespace tier::session {
namespace {

using proto::OpenMode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
constexpr uint32_t kUser = 1000;
constexpr JobTerms kGiven = {
    .guarantee_bytes = kGiB, .limit_bytes = 2 * kGiB, .ssd_guarantee_bytes = 3 * kGiB, .ssd_limit_bytes = 4 * kGiB};

class ReservedTerms : public testing::EngineThreadParts {
 protected:
  void Reserve(bool named) {
    const Reservation wanted{.uid = kUser, .name = "train", .named = named, .terms = kGiven};
    ASSERT_TRUE(job_service_.Open(kUser, RequestOf(wanted), std::nullopt, clock_.now));
  }
  Result<const Job*> Open(OpenMode mode) {
    const auto session = static_cast<tiering::SessionId>(++last_session_);
    return job_service_.Open(kUser, {.name = "train", .mode = mode}, session, clock_.now);
  }
  JobTerms Has() const {
    EXPECT_EQ(engine_.jobs.size(), 1U);
    const tiering::JobOptions& job = engine_.jobs.begin()->second;
    return {.guarantee_bytes = job.guarantee_bytes,
            .limit_bytes = job.limit_bytes,
            .ssd_guarantee_bytes = job.ssd_guarantee_bytes,
            .ssd_limit_bytes = job.ssd_limit_bytes};
  }

 private:
  uint64_t last_session_ = 0;
};

TEST_F(ReservedTerms, ANamedOneOverAManifestIsResumedWithItsTerms) {
  engine_.persisted = {"1000/train"};
  Reserve(true);
  EXPECT_EQ(Open(OpenMode::kResume).error().code, Code::kTimeout) << "the engine closes it first";
  loop_.RunOnce();
  const auto resumed = Open(OpenMode::kResume);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(Has(), kGiven);
  EXPECT_TRUE(engine_.jobs.begin()->second.resume);
}

TEST_F(ReservedTerms, ANamedOneWithoutAManifestHasNothingToResume) {
  Reserve(true);
  const auto refused = Open(OpenMode::kResume);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  EXPECT_THAT(refused.error().message, HasSubstr("has persisted nothing"));
  const auto first = Open(OpenMode::kResumeOrCreate);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_FALSE((*first)->from_manifest);
  EXPECT_EQ(Has(), kGiven);
}

// The prolog that reserves does not know that the run will persist.
TEST_F(ReservedTerms, OneForASingleRunBecomesANamedJobWithItsTermsForARunThatPersists) {
  Reserve(false);
  const auto first = Open(OpenMode::kResumeOrCreate);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE((*first)->named);
  EXPECT_TRUE(engine_.jobs.begin()->second.named);
  EXPECT_EQ(Has(), kGiven);
  EXPECT_THAT(job_service_.Reservations().reservations, IsEmpty());
}

TEST_F(ReservedTerms, OneForASingleRunOverAnEarlierManifestResumesItWithItsTerms) {
  engine_.persisted = {"1000/train"};
  engine_.kept = {{.key = "1000/train"}};
  Reserve(false);
  EXPECT_EQ(Open(OpenMode::kResumeOrCreate).error().code, Code::kTimeout);
  loop_.RunOnce();
  const auto resumed = Open(OpenMode::kResumeOrCreate);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(Has(), kGiven);
  EXPECT_TRUE(engine_.jobs.begin()->second.resume);
}

TEST_F(ReservedTerms, AreListedAsTheyAreNowUntilTheFirstRun) {
  Reserve(true);
  const ReservationList before = job_service_.Reservations();
  EXPECT_THAT(before.reservations, ElementsAre(Reservation{kUser, "train", true, kGiven}));
  ASSERT_TRUE(job_service_.SetJob(registry_.jobs().begin()->first, {.limit_bytes = 5 * kGiB}));
  const ReservationList changed = job_service_.Reservations();
  EXPECT_GT(changed.version, before.version);
  EXPECT_EQ(changed.reservations.at(0).terms.limit_bytes, 5 * kGiB);
  ASSERT_TRUE(Open(OpenMode::kAttach));
  EXPECT_THAT(job_service_.Reservations().reservations, IsEmpty());
}

TEST_F(ReservedTerms, AreOpenedAgainFromTheirList) {
  Reserve(true);
  const auto list = job_service_.Reservations().reservations;
  job_service_.Close(registry_.jobs().begin()->first, "the daemon ends", false);
  EXPECT_THAT(job_service_.Reservations().reservations, IsEmpty());
  loop_.RunOnce();
  for (const Reservation& reservation : list) ASSERT_TRUE(job_service_.Restore(reservation, clock_.now));
  EXPECT_EQ(job_service_.Reservations().reservations, list);
  EXPECT_EQ(Has(), kGiven);
  EXPECT_EQ(job_service_.unopened().size(), 0U);
}

// The run's resume is refused when the reserved job is closed already: what was reserved is not lost.
TEST_F(ReservedTerms, StayReservedWhereTheRunThatResumesIsRefused) {
  engine_.persisted = {"1000/train"};
  engine_.kept = {{.key = "1000/train"}};
  engine_.resume_answer = Fail(Code::kCorrupt, "the manifest is damaged");
  Reserve(false);
  const auto reserved = job_service_.Reservations().reservations;
  EXPECT_EQ(Open(OpenMode::kResumeOrCreate).error().code, Code::kTimeout);
  EXPECT_EQ(job_service_.Reservations().reservations, reserved) << "while the engine closes it";
  loop_.RunOnce();
  ASSERT_TRUE(Open(OpenMode::kResumeOrCreate));
  EXPECT_EQ(job_service_.Reservations().reservations, reserved) << "while it is being resumed";
  loop_.RunOnce();
  EXPECT_TRUE(registry_.jobs().empty()) << "it could not be";
  EXPECT_EQ(job_service_.Reservations().reservations, reserved);
  clock_.now = clock_.now + kReservationRetry;
  loop_.RunOnce();
  EXPECT_TRUE(registry_.jobs().begin()->second.reserved) << "it is open again";
  EXPECT_EQ(Has(), kGiven);
  EXPECT_EQ(job_service_.unopened().size(), 0U);
  ASSERT_TRUE(Open(OpenMode::kAttach));
  EXPECT_THAT(job_service_.Reservations().reservations, IsEmpty());
}

TEST_F(ReservedTerms, AreNotReservedAnyMoreOnceTheRunIsResumed) {
  engine_.persisted = {"1000/train"};
  engine_.kept = {{.key = "1000/train"}};
  Reserve(true);
  EXPECT_EQ(Open(OpenMode::kResume).error().code, Code::kTimeout);
  loop_.RunOnce();
  ASSERT_TRUE(Open(OpenMode::kResume));
  loop_.RunOnce();
  EXPECT_THAT(job_service_.Reservations().reservations, IsEmpty());
  clock_.now = clock_.now + kRefusedReservationRetry;
  loop_.RunOnce();
  EXPECT_EQ(registry_.jobs().size(), 1U);
  EXPECT_FALSE(registry_.jobs().begin()->second.reserved);
}

// A quota or the arena is smaller than at the start before.
TEST_F(ReservedTerms, ThatCannotBeOpenedAtAStartStayReservedAndAreTriedAgain) {
  const Reservation kept{.uid = kUser, .name = "train", .named = true, .terms = kGiven};
  engine_.open_job_answer = Fail(Code::kNoMemory, "1 GiB is not left");
  EXPECT_EQ(job_service_.Restore(kept, clock_.now).error().code, Code::kNoMemory);
  EXPECT_THAT(job_service_.Reservations().reservations, ElementsAre(kept)) << "for the file";
  EXPECT_EQ(job_service_.NextExpiry(), clock_.now + kRefusedReservationRetry);
  engine_.open_job_answer = Fail(Code::kNoMemory, "1 GiB is not left");
  clock_.now = clock_.now + kRefusedReservationRetry;
  loop_.RunOnce();
  EXPECT_TRUE(registry_.jobs().empty());
  EXPECT_THAT(job_service_.Reservations().reservations, ElementsAre(kept));
  clock_.now = clock_.now + kRefusedReservationRetry;
  loop_.RunOnce();
  EXPECT_EQ(Has(), kGiven);
  EXPECT_THAT(job_service_.Reservations().reservations, ElementsAre(kept));
  EXPECT_EQ(job_service_.NextExpiry(), std::nullopt);
}

TEST_F(ReservedTerms, ThatCouldNotBeOpenedAreThoseOfTheFirstRunAllTheSame) {
  const Reservation kept{.uid = kUser, .name = "train", .named = true, .terms = kGiven};
  engine_.open_job_answer = Fail(Code::kNoMemory, "1 GiB is not left");
  ASSERT_FALSE(job_service_.Restore(kept, clock_.now));
  engine_.open_job_answer = Fail(Code::kNoMemory, "1 GiB is not left");
  const auto refused = Open(OpenMode::kAttach);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("job 'train' is reserved for uid 1000"));
  EXPECT_THAT(refused.error().message, HasSubstr("tierctl job remove 1000/train"));
  const auto first = Open(OpenMode::kAttach);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE((*first)->named);
  EXPECT_EQ(Has(), kGiven);
  EXPECT_THAT(job_service_.Reservations().reservations, IsEmpty());
}

TEST_F(ReservedTerms, AreListedInOneOrderHoweverTheyCame) {
  for (const char* name : {"b", "a"})
    ASSERT_TRUE(job_service_.Open(2, RequestOf({.uid = 2, .name = name, .named = false, .terms = {}}), {}, clock_.now));
  engine_.open_job_answer = Fail(Code::kNoMemory, "no");
  ASSERT_FALSE(job_service_.Restore({.uid = 1, .name = "c", .named = false, .terms = {}}, clock_.now));
  std::vector<std::string> names;
  for (const Reservation& each : job_service_.Reservations().reservations) names.push_back(each.name);
  EXPECT_THAT(names, ElementsAre("c", "a", "b"));
}

TEST_F(ReservedTerms, AreGivenToNoNumberOfAnOwnerThatIsNone) {
  const auto refused = job_service_.Open(kOwnerUidFirst, {.name = "train"}, {}, clock_.now);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("no owner has it any more"));
}

// It came before the reservation could be stored, closed it, and is to try again: it is not open yet.
TEST_F(ReservedTerms, ThatAreGivenUpWhileAFirstRunTriesToResumeAreThoseBefore) {
  const Reservation before{.uid = kUser, .name = "train", .named = true, .terms = {.limit_bytes = kGiB}};
  engine_.persisted = {"1000/train"};
  for (const bool was_reserved : {true, false}) {
    Reserve(true);
    const UnstoredReservation unstored{.job = registry_.jobs().begin()->first,
                                       .uid = kUser,
                                       .name = "train",
                                       .before = was_reserved ? std::optional(before) : std::nullopt};
    EXPECT_EQ(Open(OpenMode::kResume).error().code, Code::kTimeout) << "the engine closes it first";
    ASSERT_EQ(job_service_.Reservations().reservations.size(), 1U);
    EXPECT_EQ(job_service_.GiveUpReservation(unstored, clock_.now), GivenUp::kTakenBack);
    const auto left = job_service_.Reservations().reservations;
    EXPECT_EQ(left, was_reserved ? std::vector{before} : std::vector<Reservation>());
    loop_.RunOnce();
  }
}

// What is written follows the version: whatever changes the list changes it too. Operations in many orders.
TEST_F(ReservedTerms, AreTheSameWhereTheirVersionIs) {
  uint32_t random = 1;
  const auto pick = [&random](uint32_t count) { return (random = random * 1664525 + 1013904223) / 65536 % count; };
  for (uint64_t step = 0; step < 5000; ++step) {
    const ReservationList before = job_service_.Reservations();
    const std::string name = pick(2) == 0 ? "a" : "b";
    const Reservation wanted{.uid = kUser, .name = name, .named = pick(2) == 0, .terms = {.limit_bytes = pick(3) + 1}};
    const Job* const job = registry_.FindOwned(kUser, name);
    if (pick(4) == 0) engine_.open_job_answer = Fail(Code::kNoMemory, "not now");
    switch (pick(9)) {
      case 0: (void)job_service_.Open(kUser, RequestOf(wanted), {}, clock_.now); break;
      case 1:
        if (job == nullptr) (void)job_service_.Restore(wanted, clock_.now);
        break;
      case 2:
        if (job != nullptr) job_service_.Close(job->id, "closed", false);
        break;
      case 3:
        if (job != nullptr) (void)job_service_.SetJob(job->id, {.limit_bytes = pick(3) + 1});
        break;
      case 4:
        (void)job_service_.GiveUpReservation(
            {.job = job == nullptr ? tiering::JobId{} : job->id, .uid = kUser, .name = name, .before = wanted},
            clock_.now);
        break;
      case 5: (void)job_service_.DropReservation(kUser, name); break;
      case 6: clock_.now = clock_.now + kReservationRetry; break;
      case 7: loop_.RunOnce(); break;
      default: {
        const auto session = static_cast<tiering::SessionId>(1000 + step);
        const OpenMode mode = pick(2) == 0 ? OpenMode::kAttach : OpenMode::kResumeOrCreate;
        const auto opened = job_service_.Open(kUser, {.name = name, .mode = mode}, session, clock_.now);
        if (opened) job_service_.Leave({.job = (*opened)->id, .session = session}, "left");
      }
    }
    engine_.open_job_answer = {};
    const ReservationList after = job_service_.Reservations();
    ASSERT_EQ(after.version, job_service_.reservations_version());
    ASSERT_GE(after.version, before.version) << "step " << step;
    ASSERT_TRUE(after.version != before.version || after.reservations == before.reservations) << "step " << step;
  }
}

TEST(UnopenedReservations, ThatAreDueAreTakenSomeAtATime) {
  constexpr base::TimePoint kNow{std::chrono::seconds(100)};
  constexpr base::TimePoint kNext{std::chrono::seconds(200)};
  UnopenedReservations waiting;
  for (uint32_t uid = 0; uid < kReservationsTriedPerTurnMax + 2; ++uid)
    waiting.Add({.uid = uid, .name = "train", .named = false, .terms = {}}, kNow, "no room");
  EXPECT_THAT(waiting.TakeDue(base::TimePoint{std::chrono::seconds(99)}, kNext), IsEmpty());
  EXPECT_EQ(waiting.TakeDue(kNow, kNext).size(), kReservationsTriedPerTurnMax);
  EXPECT_EQ(waiting.next_due(), kNow) << "the others";
  EXPECT_EQ(waiting.TakeDue(kNow, kNext).size(), 2U);
  EXPECT_EQ(waiting.next_due(), kNext);
  EXPECT_EQ(waiting.CountOf(3), 1U);
  EXPECT_TRUE(waiting.Remove(3, "train"));
  EXPECT_FALSE(waiting.Remove(3, "train"));
  EXPECT_EQ(waiting.Find(3, "train"), nullptr);
  EXPECT_EQ(waiting.size(), kReservationsTriedPerTurnMax + 1);
}

}  // namespace
}  // namespace tier::session
