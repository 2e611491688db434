// Quotas by a live engine thread: who may set them, what open jobs and new ones get of them, and who waits for what.
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/units.h"
#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using testing::Collector;
using ::testing::ContainsRegex;
using testing::DataClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kAdmin;
using testing::kAlice;
using testing::kBob;
using testing::MakeHello;
using testing::SessionWorld;
using tiering::QuotaLevel;
using tiering::QuotaLimit;

// Alice is of the staff.
class FewUsers final : public UserDirectory {
 public:
  UserEntry FindUser(uint32_t uid) override {
    return uid == 1000 ? UserEntry{.name = "alice", .groups = {{100, "staff"}}} : UserEntry{};
  }
  Result<uint32_t> FindUserId(const std::string& name) override { return NoUser(name); }
  Result<uint32_t> FindGroupId(const std::string& name) override {
    return name == "staff" ? Result<uint32_t>(100U) : NoGroup(name);
  }
};

class QuotaServer : public ::testing::Test {
 protected:
  static constexpr uint64_t kNothingSaid = 64;  // jobs.max_jobs_per_uid
  static QuotaBookOptions OptionsIn(const std::string& folder) {
    QuotaBookOptions options;
    options.table.by_default.guarantee = 5;
    options.ssd.most = kGiB;
    options.jobs.most = kNothingSaid;
    options.file = folder + "/quotas";
    return options;
  }
  uint64_t RamOf(uint32_t uid) {
    return world_.OnEngine([&] { return world_.engine.quotas.at(uid).ram.most; });
  }

  testing::TemporaryDirectory directory_;
  FewUsers users_;
  base::SteadyClock clock_;
  QuotaBook book_{OptionsIn(directory_.path()), {}, users_, clock_};
  std::vector<std::string> later_;  // What is to be applied once the engine answers.
  SessionWorld world_{
      {.quotas = &book_, .apply_quotas_later = [this](const std::string& what) { later_.push_back(what); }}};
  ControlServer& control_{world_.control()};
};

TEST_F(QuotaServer, WhatIsSetHoldsForJobsThatAreOpenAndForNewOnes) {
  Collector collector({"quota_changed"});
  const auto watch = control_.Watch(kAdmin, collector.callback());
  Collector bobs({"quota_changed"});
  const auto bobs_watch = control_.Watch(kBob, bobs.callback());
  ASSERT_TRUE(control_.OpenJob(kAlice, {.name = "one"}));
  ASSERT_TRUE(control_.OpenJob(kBob, {.name = "other"}));
  ASSERT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kUser, "1000"}, {.ram = kGiB, .jobs = 2}));
  EXPECT_EQ(RamOf(1000), kGiB);
  EXPECT_EQ(RamOf(1001), tiering::kUnlimited) << "another user's";
  EXPECT_THAT(collector.Wait(0).message, HasSubstr("uid 0 set a quota of user 1000: ram 1 GiB, jobs 2"));
  EXPECT_EQ(bobs.Wait(0).message, "an administrator changed a quota") << "whose and which is an administrator's to see";
  const auto second = control_.OpenJob(kAlice, {.name = "two"});
  ASSERT_TRUE(second);
  const auto given = world_.OnEngine([&] { return world_.engine.jobs.at(second->id).quota; });
  ASSERT_TRUE(given);
  EXPECT_EQ(given->ram, (QuotaLimit{kGiB, {QuotaLevel::kUser, true, 1000}}));
  EXPECT_EQ(given->guarantee, (QuotaLimit{5, {QuotaLevel::kDefault, false, 0}}));
  EXPECT_EQ(given->ssd, (QuotaLimit{kGiB, {}}));
  const auto third = control_.OpenJob(kAlice, {.name = "three"});
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kDenied);
  EXPECT_THAT(third.error().message,
              HasSubstr("uid 1000 has 2 jobs, the limit (the quota of user 1000, set at run time) is 2"));
  ASSERT_TRUE(control_.ClearQuota(kAdmin, {QuotaLevel::kUser, "1000"}));
  EXPECT_EQ(RamOf(1000), tiering::kUnlimited);
  EXPECT_THAT(collector.Wait(1).message, HasSubstr("uid 0 cleared the quota of user 1000"));
  EXPECT_TRUE(control_.OpenJob(kAlice, {.name = "three"}));
}

// No quota needed groups when the jobs were opened.
TEST_F(QuotaServer, TheFirstQuotaOfAGroupHoldsForOpenJobsToo) {
  ASSERT_TRUE(control_.OpenJob(kAlice, {.name = "one"}));
  ASSERT_TRUE(control_.OpenJob(kBob, {.name = "other"}));
  Collector collector({"quota_changed"});
  const auto watch = control_.Watch(kAdmin, collector.callback());
  ASSERT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kGroup, "staff"}, {.ram = kGiB}));
  EXPECT_THAT(collector.Wait(0).message, ContainsRegex("set a quota of group [0-9]+: ram 1 GiB")) << "as refusals do";
  EXPECT_EQ(RamOf(1000), kGiB);
  EXPECT_EQ(RamOf(1001), tiering::kUnlimited);
}

// The engine is stuck, or drowned in calls: what is stored is applied later, without the administrator.
TEST_F(QuotaServer, WhatIsStoredAndNotAppliedInTimeIsAppliedLater) {
  ASSERT_TRUE(control_.OpenJob(kAlice, {.name = "one"}));
  auto blocked = world_.BlockEngine();
  const Status set = control_.SetQuota(kAdmin, {QuotaLevel::kUser, "1000"}, {.ram = kGiB});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, Code::kTimeout);
  EXPECT_THAT(set.error().message, HasSubstr("the change is stored, and holds for open jobs once the engine answers"));
  EXPECT_EQ(book_.QuotaOf(1000).bytes.ram.most, kGiB);
  EXPECT_THAT(later_, ElementsAre(HasSubstr("uid 0 set a quota of user 1000: ram 1 GiB")));
  blocked.reset();
  EXPECT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kUser, "1000"}, {.ram = kGiB})) << "who tries again succeeds";
  EXPECT_EQ(RamOf(1000), kGiB);
}

TEST_F(QuotaServer, WhoClearsAgainAfterATimeoutIsNotToldThatThereIsNothing) {
  ASSERT_TRUE(control_.OpenJob(kAlice, {.name = "one"}));
  ASSERT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kUser, "1000"}, {.ram = kGiB}));
  auto blocked = world_.BlockEngine();
  const QuotaTarget alice{QuotaLevel::kUser, "1000"};
  EXPECT_EQ(control_.ClearQuota(kAdmin, alice).error().code, Code::kTimeout);
  EXPECT_EQ(control_.ClearQuota(kAdmin, alice).error().code, Code::kTimeout) << "it is not applied yet";
  EXPECT_EQ(later_.size(), 2U);
  blocked.reset();
  EXPECT_EQ(control_.ClearQuota(kAdmin, {QuotaLevel::kUser, "1001"}).error().code, Code::kNotFound) << "another's";
  EXPECT_TRUE(control_.ClearQuota(kAdmin, alice));
  EXPECT_EQ(RamOf(1000), tiering::kUnlimited);
  EXPECT_EQ(control_.ClearQuota(kAdmin, alice).error().code, Code::kNotFound) << "it was told";
}

TEST_F(QuotaServer, OnlyAdministratorsSetAndClear) {
  for (const Caller& caller : {kAlice, Caller{.uid = 0}}) {
    EXPECT_EQ(control_.SetQuota(caller, {QuotaLevel::kDefault, ""}, {.ram = 1}).error().code, Code::kDenied);
    const Status cleared = control_.ClearQuota(caller, {QuotaLevel::kDefault, ""});
    EXPECT_THAT(cleared.error().message, HasSubstr("only an administrator may clear a quota"));
  }
  EXPECT_EQ(book_.List().size(), 1U) << "that of the configuration";
  EXPECT_EQ(control_.ClearQuota(kAdmin, {QuotaLevel::kDefault, ""}).error().code, Code::kNotFound);
}

TEST_F(QuotaServer, AUserSeesItsOwnUseAndAnAdministratorAll) {
  ASSERT_TRUE(control_.OpenJob(kAlice, {.name = "one"}));
  ASSERT_TRUE(control_.OpenJob(kAlice, {.name = "two"}));
  ASSERT_TRUE(control_.OpenJob(kBob, {.name = "other"}));
  ASSERT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kDefault, ""}, {.ram = 7}));
  world_.OnEngine([&] { world_.engine.storage[1000] = 4096; });
  const auto own = control_.ListQuotas(kAlice);
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->quotas.empty());
  ASSERT_EQ(own->uses.size(), 1U);
  EXPECT_EQ(own->uses[0].uid, 1000U);
  EXPECT_EQ(own->uses[0].jobs.used, 2U);
  EXPECT_EQ(own->uses[0].jobs.limit.most, kNothingSaid);
  EXPECT_EQ(own->uses[0].ssd.used, 4096U);
  EXPECT_EQ(own->uses[0].ram.limit, (QuotaLimit{7, {QuotaLevel::kDefault, true, 0}}));
  const auto all = control_.ListQuotas(kAdmin);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->quotas.size(), 2U);
  std::vector<uint32_t> uids;
  for (const QuotaUse& use : all->uses) uids.push_back(use.uid);
  EXPECT_THAT(uids, ElementsAre(0, 1000, 1001)) << "its own, though it has no job";
}

TEST_F(QuotaServer, AnAdministratorReservesForAUserWithinItsQuota) {
  ASSERT_TRUE(control_.SetQuota(kAdmin, {QuotaLevel::kUser, "1001"}, {.jobs = 1}));
  const auto reserved = control_.OpenJob(kAdmin, {.name = "step", .guarantee_bytes = 4096, .owner = 1001});
  ASSERT_TRUE(reserved);
  EXPECT_EQ(reserved->uid, 1001U);
  const auto asked = world_.OnEngine([&] { return world_.engine.jobs.at(reserved->id); });
  EXPECT_EQ(asked.uid, 1001U);
  EXPECT_EQ(asked.guarantee_bytes, 4096U);
  EXPECT_EQ(control_.OpenJob(kAdmin, {.name = "more", .owner = 1001}).error().code, Code::kDenied);
  EXPECT_EQ(control_.ListJobs(kBob)->size(), 1U) << "it is the user's";
  EXPECT_TRUE(control_.ListJobs(kAlice)->empty());
}

// The terms that an administrator asks for are those of the job, or there is no job.
TEST_F(QuotaServer, NothingIsReservedOverAJobThatIsOpen) {
  ASSERT_TRUE(control_.OpenJob(kBob, {.name = "train", .named = true}));
  for (const auto mode : {proto::OpenMode::kAttach, proto::OpenMode::kCreate, proto::OpenMode::kJoin}) {
    const auto refused =
        control_.OpenJob(kAdmin, {.name = "train", .mode = mode, .guarantee_bytes = 4096, .owner = 1001});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kAlreadyExists);
    EXPECT_THAT(refused.error().message, HasSubstr("uid 1001 has a job 'train' already, whose terms stay as they are"));
  }
  EXPECT_EQ(control_.ListJobs(kBob)->at(0).counters.own_guarantee_bytes, 0U);
}

TEST_F(QuotaServer, AReservationThatCannotBeStoredIsNone) {
  ReservationFile file(directory_.path() + "/missing/reservations", std::vector<Reservation>());
  SessionWorld world({.reservations = &file});
  const auto refused = world.control().OpenJob(kAdmin, {.name = "step", .owner = 1001});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kIoError);
  EXPECT_THAT(refused.error().message, HasSubstr("job 'step' is not reserved"));
  EXPECT_TRUE(world.control().ListJobs(kAdmin)->empty());
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/missing"));
  const auto reserved = world.control().OpenJob(kAdmin, {.name = "step", .guarantee_bytes = 4096, .owner = 1001});
  ASSERT_TRUE(reserved);
  EXPECT_TRUE(reserved->reserved);
  const auto stored = LoadReservations(directory_.path() + "/missing/reservations").reservations;
  EXPECT_THAT(stored, ElementsAre(Reservation{1001, "step", false, {.guarantee_bytes = 4096}}));
}

// The disk is full: what was promised before is in the file still, and must not go with what was not promised.
TEST_F(QuotaServer, AReservationThatCannotBeStoredLeavesTheOneBefore) {
  const Reservation kept{.uid = 1001, .name = "step", .named = true, .terms = {.guarantee_bytes = 4096}};
  ReservationFile file(directory_.path() + "/missing/reservations", std::nullopt);
  SessionWorld world({.reservations = &file});
  const auto reserved = [&world] { return world.OnEngine([&] { return world.jobs().Reservations().reservations; }); };
  world.OnEngine([&] {
    world.engine.open_job_answer = Fail(Code::kNoMemory, "4 KiB are not left");
    EXPECT_FALSE(world.jobs().Restore(kept, clock_.Now()));
  });
  const auto refused = world.control().OpenJob(kAdmin, {.name = "step", .guarantee_bytes = 8192, .owner = 1001});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kIoError);
  EXPECT_THAT(refused.error().message, HasSubstr("stays so with those before"));
  EXPECT_THAT(reserved(), ElementsAre(kept));
  EXPECT_FALSE(world.control().OpenJob(kAdmin, {.name = "step", .guarantee_bytes = 8192, .owner = 1001})) << "again";
  EXPECT_THAT(reserved(), ElementsAre(kept));
  ASSERT_TRUE(std::filesystem::create_directory(directory_.path() + "/missing"));
  ASSERT_TRUE(world.control().OpenJob(kAdmin, {.name = "step", .guarantee_bytes = 8192, .owner = 1001}));
  EXPECT_THAT(reserved(), ElementsAre(Reservation{1001, "step", false, {.guarantee_bytes = 8192}}));
}

// A disk that hangs until the test has done something, and then fails: the new file is a FIFO, which is full and cannot
// be made durable.
class SlowReservation : public ::testing::Test {
 protected:
  // What the administrator is told whose reservation cannot be stored, where this happens `meanwhile`.
  std::string Refusal(const std::function<void()>& meanwhile) {
    EXPECT_EQ(::mkfifo(new_file_.c_str(), 0600), 0);
    const proto::FileDescriptor fifo(::open(new_file_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    std::array<char, 4096> page{};
    while (::write(fifo.get(), page.data(), page.size()) > 0) continue;
    const proto::FileDescriptor opened(::inotify_init1(IN_CLOEXEC));
    EXPECT_GE(::inotify_add_watch(opened.get(), new_file_.c_str(), IN_OPEN), 0);
    world_.OnEngine([&] {
      world_.engine.open_job_answer = Fail(Code::kNoMemory, "4 KiB are not left");
      EXPECT_FALSE(world_.jobs().Restore(kept_, clock_.Now()));
    });
    auto asked = std::async(std::launch::async, [&] {
      return world_.control().OpenJob(kAdmin, {.name = "step", .guarantee_bytes = 8192, .owner = 1001});
    });
    EXPECT_GT(::read(opened.get(), page.data(), page.size()), 0) << "it is being written";
    meanwhile();
    while (::read(fifo.get(), page.data(), page.size()) > 0) continue;
    const auto refused = asked.get();
    return refused ? "it is reserved" : refused.error().message;
  }
  std::vector<Reservation> Reserved() {
    return world_.OnEngine([&] { return world_.jobs().Reservations().reservations; });
  }

  const Reservation kept_{.uid = 1001, .name = "step", .named = true, .terms = {.guarantee_bytes = 4096}};
  testing::TemporaryDirectory directory_;
  const std::string new_file_ = directory_.path() + "/reservations.new";
  base::SteadyClock clock_;
  ReservationFile file_{directory_.path() + "/reservations", std::nullopt};
  SessionWorld world_{{.reservations = &file_}};
};

TEST_F(SlowReservation, ThatNothingTouchesMeanwhileIsTheOneBefore) {
  EXPECT_THAT(Refusal([] {}), HasSubstr("job 'step' is not reserved with these terms, and stays so with those before"));
  EXPECT_THAT(Reserved(), ElementsAre(kept_));
}

// There is nothing to take back, and nothing is reserved any more.
TEST_F(SlowReservation, ThatIsUsedMeanwhileIsNotTakenBack) {
  const std::string refusal = Refusal([&] {
    world_.OnEngine(
        [&] { ASSERT_TRUE(world_.jobs().Open(1001, {.name = "step"}, tiering::SessionId{900}, clock_.Now())); });
  });
  EXPECT_THAT(refusal, HasSubstr("job 'step' is not reserved any more, as its first run has come already: "));
  EXPECT_EQ(world_.control().ListJobs(kAdmin)->size(), 1U);
  EXPECT_THAT(Reserved(), ElementsAre());
}

TEST_F(SlowReservation, ThatIsRemovedMeanwhileStaysSo) {
  const std::string refusal = Refusal([&] { EXPECT_TRUE(world_.control().CloseJob(kAdmin, "1001/step", {})); });
  EXPECT_THAT(refusal, HasSubstr("job 'step' is not reserved any more, as it was closed meanwhile: "));
  EXPECT_THAT(Reserved(), ElementsAre()) << "not what was reserved before either";
}

TEST_F(SlowReservation, ThatTheEngineDoesNotAnswerForMayBeReserved) {
  std::shared_ptr<void> blocked;
  const std::string refusal = Refusal([&] { blocked = world_.BlockEngine(); });
  EXPECT_THAT(refusal, HasSubstr("whether job 'step' is reserved is not known (tierctl job list): "));
  EXPECT_THAT(refusal, HasSubstr("; then the engine "));
}

TEST_F(QuotaServer, ReservationsThatAreNotOpenAreListedWithTheirReasons) {
  const auto restore = [&](uint32_t uid, const char* name, const char* why) {
    world_.engine.open_job_answer = Fail(Code::kNoMemory, why);
    const Reservation kept{.uid = uid, .name = name, .named = true, .terms = {.limit_bytes = 4096}};
    EXPECT_FALSE(world_.jobs().Restore(kept, clock_.Now()));
  };
  world_.OnEngine([&] {
    restore(1001, "step", "4 KiB are not left");
    restore(1000, "b", "no");
    restore(1000, "a", "no");
  });
  const auto names = [&](const Caller& caller, const std::string& after, size_t max) {
    std::vector<std::string> found;
    const auto listed = control_.ListUnopenedReservations(caller, after, max);
    for (const auto& each : *listed) found.push_back(each.QualifiedName());
    return found;
  };
  EXPECT_THAT(names(kAdmin, "", 2), ElementsAre("1000/a", "1000/b"));
  EXPECT_THAT(names(kAdmin, "1000/b", 2), ElementsAre("1001/step"));
  EXPECT_THAT(names(kAdmin, "1000/aa", 9), ElementsAre("1000/b", "1001/step")) << "also where that one has gone";
  EXPECT_THAT(names(kAlice, "", 9), ElementsAre("1000/a", "1000/b"));
  const auto bobs = control_.ListUnopenedReservations(kBob, "", 9).value();
  ASSERT_EQ(bobs.size(), 1U);
  EXPECT_EQ(bobs[0].why, "4 KiB are not left");
  EXPECT_EQ(bobs[0].terms.limit_bytes, 4096U);
  EXPECT_TRUE(bobs[0].named);
  EXPECT_TRUE(control_.OpenJob(kBob, {.name = "step"}));
  EXPECT_TRUE(control_.ListUnopenedReservations(kBob, "", 9)->empty()) << "its first run has come";
}

// It is no job that is open, and would be tried again and again.
TEST_F(QuotaServer, AnAdministratorRemovesAReservationThatCannotBeOpened) {
  const Reservation kept{.uid = 1001, .name = "step", .named = false, .terms = {.guarantee_bytes = 4096}};
  world_.OnEngine([&] {
    world_.engine.open_job_answer = Fail(Code::kNoMemory, "4 KiB are not left");
    EXPECT_FALSE(world_.jobs().Restore(kept, clock_.Now()));
  });
  EXPECT_EQ(control_.CloseJob(kAlice, "1001/step", {}).error().code, Code::kNotFound);
  EXPECT_EQ(control_.CloseJob(kAlice, "step", {}).error().code, Code::kNotFound);
  EXPECT_EQ(world_.OnEngine([&] { return world_.jobs().unopened().size(); }), 1U);
  EXPECT_TRUE(control_.CloseJob(kAdmin, "1001/step", {}));
  EXPECT_EQ(world_.OnEngine([&] { return world_.jobs().Reservations().reservations.size(); }), 0U);
  EXPECT_EQ(control_.CloseJob(kAdmin, "1001/step", {}).error().code, Code::kNotFound);
}

TEST_F(QuotaServer, OnlyAnAdministratorOpensJobsForOthers) {
  for (const Caller& caller : {kAlice, Caller{.uid = 0}}) {
    const auto refused = control_.OpenJob(caller, {.name = "step", .owner = 1001});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kDenied);
    EXPECT_THAT(refused.error().message, HasSubstr("only an administrator may open a job for another user"));
  }
  EXPECT_EQ(control_.OpenJob(kAdmin, {.name = "step", .owner = UINT32_MAX}).error().code, Code::kInvalid);
  EXPECT_EQ(control_.OpenJob(kAdmin, {.owner = 1001}).error().code, Code::kInvalid) << "it has no name to be found by";
}

TEST(QuotaOfNewcomers, AClientWaitsUntilItsUserIsKnown) {
  std::atomic<int> asked = 0;
  std::function<void()> then;
  SessionWorld world({.learn_user = [&](uint32_t, std::function<void()> after) {
    then = std::move(after);
    ++asked;
    return false;
  }});
  DataClient client(world.socket_path());
  auto welcome = std::async(std::launch::async, [&] { return client.Attach(MakeHello("train")); });
  while (asked == 0) std::this_thread::yield();
  EXPECT_EQ(world.sessions(), 0U);
  world.OnSocketThread([&] { then(); });
  EXPECT_EQ(welcome.get().code, 0);
  EXPECT_EQ(world.sessions(), 1U);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace tier::session
