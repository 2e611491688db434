// Which job a name means.
#include "tools/tierctl/job_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::ListJobsResponse Jobs(const std::vector<std::pair<uint32_t, const char*>>& jobs) {
  v1::ListJobsResponse answer;
  for (const auto& [uid, name] : jobs) {
    v1::Job* job = answer.add_jobs();
    job->set_uid(uid);
    job->set_name(name);
  }
  return answer;
}

TEST(RenderJobs, SaysHowMuchEachJobLeases) {
  auto jobs = Jobs({{1000, "train"}});
  jobs.mutable_jobs(0)->set_ram_bytes(uint64_t{8} << 30);
  jobs.mutable_jobs(0)->set_leased_bytes(uint64_t{3} << 30);
  EXPECT_THAT(RenderJobs(jobs, {}), AllOf(HasSubstr("  RAM    LEASED  "), HasSubstr("  8.00 GiB  3.00 GiB  ")));
  EXPECT_THAT(RenderJobs(jobs, {.width = 56}),
              AllOf(HasSubstr("  RAM "), HasSubstr("MAY HOLD"), Not(HasSubstr("LEASED"))))
      << "a narrow terminal has what it had";
}

TEST(RemoveJob, SaysWhoseRunItWouldEnd) {
  v1::Job job;
  job.set_uid(4'000'000'000);  // Of no user: none of these processes is there.
  job.set_named(true);
  for (const int64_t pid : {4711, 4712}) {
    v1::JobSession* const session = job.add_sessions();
    session->set_client_pid(pid);
    session->set_rank(static_cast<int32_t>(pid - 4711));
  }
  EXPECT_EQ(StillAttachedText(job, "1001/train"),
            "job '1001/train' has 2 processes attached: 4711 (rank 0), 4712 (rank 1); removing it ends their run: stop "
            "them first, or tierctl job remove --force 1001/train");
  job.mutable_sessions()->RemoveLast();
  EXPECT_THAT(StillAttachedText(job, "train"),
              AllOf(HasSubstr("has 1 process attached: 4711 (rank 0); removing it ends its run: stop it first")));
}

TEST(RemoveJob, SaysWhatWasDone) {
  v1::Job job;
  EXPECT_EQ(RemovedText(job, "train", true), "removed job train") << "it was not open";
  job.set_ssd_bytes(uint64_t{1} << 30);
  EXPECT_EQ(RemovedText(job, "train", false), "removed job train; freed 1.00 GiB on SSD");
  job.set_held_bytes(uint64_t{2} << 30);
  job.add_sessions()->set_client_pid(4711);
  job.mutable_sessions(0)->set_rank(-1);
  EXPECT_EQ(
      RemovedText(job, "train", false),
      "removed job train; ended the session of 1 process: 4711; gave back windows of 2.00 GiB; freed 1.00 GiB on SSD");
  job.set_named(true);
  EXPECT_THAT(RemovedText(job, "train", false), HasSubstr("; gave back windows of 2.00 GiB; freed 1.00 GiB on SSD"))
      << "it has persisted nothing";
  job.set_persisted(true);
  EXPECT_THAT(RemovedText(job, "train", false),
              HasSubstr("; gave back windows of 2.00 GiB; what it persisted stays on SSD"));
  EXPECT_THAT(RemovedText(job, "train", true), HasSubstr("; gave back windows of 2.00 GiB; freed 1.00 GiB on SSD"));
}

TEST(ChangeOf, HasTheSizesThatWereTyped) {
  const auto change = ChangeOf({.name = "train", .guarantee = "16GiB", .ssd_limit = "0"});
  ASSERT_TRUE(change) << change.error().message;
  EXPECT_EQ(change->name, "train");
  EXPECT_EQ(change->guarantee_bytes, uint64_t{16} << 30);
  EXPECT_EQ(change->limit_bytes, std::nullopt) << "it stays as it is";
  EXPECT_EQ(change->ssd_limit_bytes, 0u);
}

TEST(ChangeOf, RefusesASizeWithoutItsUnit) {
  EXPECT_THAT(ChangeOf({.guarantee = "10"}).error().message, HasSubstr("--guarantee 10 is 10 bytes; write 10GiB"));
  EXPECT_THAT(ChangeOf({.limit = "64"}).error().message, HasSubstr("--limit 64 is 64 bytes; write 64GiB"));
  EXPECT_THAT(ChangeOf({.ssd_guarantee = "1"}).error().message, HasSubstr("--ssd-guarantee 1 is 1 byte"));
  EXPECT_THAT(ChangeOf({.ssd_limit = "much"}).error().message, HasSubstr("--ssd-limit \"much\" is no size"));
}

TEST(FindJob, ByNameOrWithItsOwner) {
  const auto jobs = Jobs({{1000, "train"}, {1001, "eval"}});
  EXPECT_EQ(FindJob(jobs, "train").value(), &jobs.jobs(0));
  EXPECT_EQ(FindJob(jobs, "1001/eval").value(), &jobs.jobs(1));
  EXPECT_EQ(FindJob(jobs, "1000/eval").error().code, Code::kNotFound);
  EXPECT_THAT(FindJob(jobs, "absent").error().message, HasSubstr("no job 'absent' among the 2 that you may see"));
}

TEST(FindJob, ByTheNameOfItsOwnerOrUser) {
  auto jobs = Jobs({{4026531840, "train"}, {1001, "train"}, {1002, "pod-b/train"}, {4026531841, "train"}});
  jobs.mutable_jobs(0)->set_owner("pod-a");
  jobs.mutable_jobs(3)->set_owner("pod-b");
  const auto alice = [](const std::string& name) { return name == "alice" ? std::optional(1001u) : std::nullopt; };
  EXPECT_EQ(FindJob(jobs, "pod-a/train", true, alice).value(), &jobs.jobs(0));
  EXPECT_EQ(FindJob(jobs, "alice/train", true, alice).value(), &jobs.jobs(1));
  EXPECT_EQ(FindJob(jobs, "pod-b/train", true, alice).value(), &jobs.jobs(3))
      << "not that of another, which is called so";
  EXPECT_EQ(FindJob(jobs, "bob/train", true, alice).error().code, Code::kNotFound);
  EXPECT_EQ(FindJob(jobs, "/train", true, alice).error().code, Code::kNotFound);
}

TEST(FindJob, AnAdministratorNeverMeansAJobThatIsCalledLikeThatOfAnOwner) {
  auto jobs = Jobs({{1002, "alice/train"}, {1002, "1001/train"}, {1002, "vision/train"}});
  const auto alice = [](const std::string& name) { return name == "alice" ? std::optional(1001u) : std::nullopt; };
  EXPECT_EQ(FindJob(jobs, "alice/train", true, alice).error().code, Code::kNotFound);
  EXPECT_EQ(FindJob(jobs, "1001/train", true, alice).error().code, Code::kNotFound);
  EXPECT_EQ(FindJob(jobs, "1002/1001/train", true, alice).value(), &jobs.jobs(1));
  EXPECT_EQ(FindJob(jobs, "vision/train", true, alice).value(), &jobs.jobs(2)) << "vision is no one";
  EXPECT_EQ(FindJob(jobs, "alice/train", false, alice).value(), &jobs.jobs(0)) << "its own, as it sees no other's";
  EXPECT_EQ(FindJob(jobs, "1001/train", false, alice).value(), &jobs.jobs(1));
  v1::UnopenedReservation* const called_so = jobs.add_unopened_reservations();
  called_so->set_uid(1002);
  called_so->set_name("1001/step");
  EXPECT_THAT(FindJob(jobs, "1001/step", true, alice).error().message, HasSubstr("no job '1001/step'"));
  v1::StoredManifest* const stored = jobs.add_stored_manifests();
  stored->set_uid(1001);
  stored->set_name("train");
  EXPECT_THAT(FindJob(jobs, "alice/train", true, alice).error().message,
              HasSubstr("job 'train' of uid 1001 is persisted"));
  v1::UnopenedReservation* const reserved = jobs.add_unopened_reservations();
  reserved->set_uid(1001);
  reserved->set_name("train");
  EXPECT_THAT(FindJob(jobs, "alice/train", true, alice).error().message, HasSubstr("is reserved for uid 1001"));
  v1::Job* const open = jobs.add_jobs();
  open->set_uid(1001);
  open->set_name("train");
  EXPECT_EQ(FindJob(jobs, "alice/train", true, alice).value(), open);
}

TEST(FindJob, AReservationThatIsNotOpenIsNamedWithItsReason) {
  auto jobs = Jobs({{1000, "train"}});
  v1::UnopenedReservation* const step = jobs.add_unopened_reservations();
  step->set_uid(1001);
  step->set_owner("pod-a");
  step->set_name("step");
  step->set_reason("4 GiB are not left");
  for (const char* name : {"step", "1001/step", "pod-a/step"}) {
    const auto found = FindJob(jobs, name);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Code::kNotFound);
    EXPECT_EQ(found.error().message, "job 'step' is reserved for uid 1001, and not open: 4 GiB are not left");
  }
  EXPECT_THAT(FindJob(jobs, "1000/step").error().message, HasSubstr("no job '1000/step'"));
}

TEST(FindJob, ANameOfTwoOwnersIsRefused) {
  const auto jobs = Jobs({{1000, "train"}, {1001, "train"}});
  const auto found = FindJob(jobs, "train");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kInvalid);
  EXPECT_THAT(found.error().message, HasSubstr("2 owners have a job 'train': write uid/train"));
  EXPECT_EQ(FindJob(jobs, "1001/train").value(), &jobs.jobs(1));
}

TEST(FindJob, AnOwnerAndANameGoBeforeAJobThatIsCalledSo) {
  const auto jobs = Jobs({{1001, "1000/train"}, {1000, "train"}});
  EXPECT_EQ(FindJob(jobs, "1000/train").value(), &jobs.jobs(1)) << "as the daemon reads it";
}

}  // namespace
}  // namespace tier::tierctl
