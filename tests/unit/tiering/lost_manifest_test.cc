// Jobs with extents on an SSD device that is missing: nothing of them is replaced, and they are whole again when the
// device is back, until the operator purges it.
#include <optional>

#include <gmock/gmock.h>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kTensors = 8;
constexpr uint64_t kSize = 3 * kPiece + 5 * kPageSize;
constexpr char kUuid[] = "11111111-2222-4333-8444-555555555555";
const JobOptions kWhole{.key = "1000/whole", .named = true};
const JobOptions kResumeWhole{.key = "1000/whole", .named = true, .resume = true};

// kNamed has extents on both devices, kWhole on the first one.
class LostManifest : public ::testing::Test {
 protected:
  LostManifest() : world_({.transfers = {.device_count = 2}, .manifests = true}) {
    EXPECT_TRUE(world_.engine->SetDeviceDraining(1, true));
    Persist(kWhole);
    EXPECT_TRUE(world_.engine->SetDeviceDraining(1, false));
    whole_ = world_.extents.total().live;
    Persist(kNamed);
    EXPECT_EQ(world_.extents.space(0).live + world_.extents.space(1).live, world_.extents.total().live);
    EXPECT_GT(world_.extents.space(1).live, 0u);
    on_first_ = world_.extents.space(0).live - whole_;
    EXPECT_GT(on_first_, 0u);
  }
  void Persist(const JobOptions& options) {
    const JobId job = world_.OpenJob(options);
    const SessionId session = world_.OpenSession(job);
    world_.PutEach(session, 1, kTensors, kSize, kShared);
    EXPECT_EQ(world_.Ask(session, Op::kPersist, {}).code, Code::kOk);
    world_.engine->CloseJob(job, "closed", false);
    world_.Turns(20);
  }
  WorldOptions WithoutTheSecond() {
    WorldOptions next = After(world_);
    const std::array<uint16_t, 1> stored = {0};
    next.numbers = storage::DeviceNumbers(stored);
    next.missing = {{.uuid = kUuid, .path = "/dev/b", .reason = "it is gone", .number = 1}};
    return next;
  }
  WorldOptions WithBoth() {
    WorldOptions next = After(world_);
    next.transfers.device_count = 2;
    next.returns_windows = true;  // Three jobs share the arena.
    return next;
  }
  static void ExpectWhole(World& daemon, const JobOptions& resume) {
    const SessionId session = daemon.OpenSession(daemon.OpenJob(resume));
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) {
      EXPECT_EQ(daemon.Check(session, tensor, tensor, kShared), Code::kOk) << "tensor " << tensor;
    }
  }
  static std::vector<std::string> LostKeys(World& daemon) {
    std::vector<std::string> keys;
    for (const StoredManifest& each : daemon.engine->StoredManifests("", 10)) {
      if (!each.lost_devices.empty()) keys.push_back(each.key);
    }
    return keys;
  }
  // None: it was refused at once, with `refused_`.
  std::optional<Result<std::vector<std::string>>> Purge(World& daemon, const std::string& uuid = kUuid) {
    std::optional<Result<std::vector<std::string>>> answer;
    const Status started =
        daemon.engine->PurgeDevice(uuid, [&](const Result<std::vector<std::string>>& keys) { answer = keys; });
    if (!started) refused_ = started.error();
    daemon.Turns(20);
    EXPECT_EQ(answer.has_value(), started.has_value());
    return answer;
  }

  World world_;
  uint64_t on_first_ = 0;  // Bytes of kNamed on the first device.
  uint64_t whole_ = 0;     // Of kWhole.
  Error refused_;
};

TEST_F(LostManifest, IsListedAndEveryNamedJobOfItsKeyIsRefused) {
  World next(WithoutTheSecond());
  const auto stored = next.engine->StoredManifests("", 10);
  ASSERT_THAT(stored, SizeIs(2));
  EXPECT_EQ(stored[0].key, kNamed.key);
  EXPECT_THAT(stored[0].lost_devices, ElementsAre(kUuid));
  EXPECT_THAT(stored[0].damage, AllOf(HasSubstr(kUuid), HasSubstr("/dev/b"), HasSubstr("it is gone")));
  EXPECT_THAT(stored[1].lost_devices, IsEmpty());
  EXPECT_EQ(stored[1].damage, "");
  JobOptions replacing = kNamed;
  replacing.replace_existing = true;
  for (const JobOptions& options : {kNamed, kResume, replacing}) {
    const auto refused = next.engine->OpenJob(JobId{77}, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kIoError);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr(std::string(kUuid) + " (last at /dev/b)"),
                      HasSubstr("tierctl job remove --purge 1000/training"), HasSubstr("tierctl device purge")));
    next.Turns(5);
  }
  const auto missing = next.engine->Snapshot().missing;
  ASSERT_THAT(missing, SizeIs(1));
  EXPECT_EQ(missing[0].uuid, kUuid);
  EXPECT_EQ(missing[0].lost_job_count, 1u);
}

// Its extents may lie on the device that is missing: nothing of it is replaced, whatever the job asks for.
TEST_F(LostManifest, AJobWhoseListCannotBeReadIsRefusedWhileADeviceIsMissing) {
  (*world_.manifests.shared_contents())[kNamed.key][70] ^= std::byte{1};
  (*world_.manifests.shared_extents())[kNamed.key][30] ^= std::byte{1};
  JobOptions replacing = kNamed;
  replacing.replace_existing = true;
  {
    World next(WithoutTheSecond());
    for (const JobOptions& options : {kNamed, replacing}) {
      const auto refused = next.engine->OpenJob(JobId{77}, options);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::kIoError);
      EXPECT_THAT(refused.error().message,
                  AllOf(HasSubstr(std::string("may lie on device ") + kUuid), HasSubstr("it is gone"),
                        HasSubstr("tierctl job remove --purge 1000/training")));
      next.Turns(5);
    }
    ASSERT_TRUE(next.engine->DeleteStoredManifest(kNamed.key)) << "the way out that the refusal names";
    next.Turns(10);
    EXPECT_TRUE(next.engine->OpenJob(JobId{78}, kNamed));
  }
}

TEST_F(LostManifest, WithEveryDeviceThereAnUnreadableListRefusesNoNewJob) {
  (*world_.manifests.shared_contents())[kNamed.key][70] ^= std::byte{1};
  (*world_.manifests.shared_extents())[kNamed.key][30] ^= std::byte{1};
  World next(WithBoth());
  EXPECT_TRUE(next.engine->OpenJob(JobId{77}, kNamed));
}

TEST_F(LostManifest, AnEphemeralJobOfItsNameLivesAndCannotReplaceIt) {
  World next(WithoutTheSecond());
  const SessionId session = next.Open({.key = kNamed.key});
  next.Put(session, 1, kPiece, 1, kShared);
  EXPECT_EQ(next.Ask(session, Op::kPersist, {}).code, Code::kDenied);
  EXPECT_THAT(LostKeys(next), ElementsAre(kNamed.key));
}

TEST_F(LostManifest, NewJobsWorkBesideItAndAllAreWholeWhenTheDeviceIsBack) {
  {
    World next(WithoutTheSecond());
    EXPECT_EQ(next.extents.total().live, on_first_ + whole_) << "what it has on the other device stays its own";
    ExpectWhole(next, kResumeWhole);
    const SessionId session = next.Open({.key = "1000/new", .named = true});
    next.PutEach(session, 1, kTensors, kSize, kShared);
    EXPECT_EQ(next.Ask(session, Op::kPersist, {}).code, Code::kOk);
    next.EraseFree();
  }
  World back(WithBoth());
  EXPECT_THAT(LostKeys(back), IsEmpty());
  ExpectWhole(back, kResume);
  ExpectWhole(back, kResumeWhole);
  ExpectWhole(back, {.key = "1000/new", .named = true, .resume = true});
}

TEST_F(LostManifest, GoesWithAPurgeOfTheDeviceAndNoOtherDoes) {
  World next(WithoutTheSecond());
  const auto purged = Purge(next);
  ASSERT_TRUE(purged && *purged);
  EXPECT_THAT(**purged, ElementsAre(kNamed.key));
  EXPECT_EQ(next.extents.total().live, whole_);
  EXPECT_THAT(next.engine->Snapshot().missing, IsEmpty());
  EXPECT_THAT(LostKeys(next), IsEmpty());
  EXPECT_FALSE(world_.manifests.shared_contents()->contains(kNamed.key));
  EXPECT_FALSE(world_.manifests.shared_extents()->contains(kNamed.key));
  const SessionId session = next.Open(kNamed);
  next.PutEach(session, 1, kTensors, kSize, kShared);
  EXPECT_EQ(next.Ask(session, Op::kPersist, {}).code, Code::kOk);
  ExpectWhole(next, kResumeWhole);
}

TEST(MissingDevice, IsNamedWhereNothingCanBeWrittenWithoutIt) {
  for (const bool configured : {true, false}) {
    World world({.transfers = {.device_count = 0},
                 .manifests = true,
                 .missing = {{.path = "/dev/b", .reason = "it is gone", .is_configured = configured}}});
    const SessionId session = world.OpenSession(world.OpenJob({}));
    world.Put(session, 1, kPiece);
    const Answer refused = world.Flush(session, 1);
    EXPECT_EQ(refused.code, Code::kNoSpace);
    EXPECT_EQ(refused.detail.find("the SSD device /dev/b is missing since the start (tierctl device list)") !=
                  std::string::npos,
              configured)
        << refused.detail;
  }
}

TEST_F(LostManifest, IsRemovedAlone) {
  World next(WithoutTheSecond());
  ASSERT_TRUE(next.engine->DeleteStoredManifest(kNamed.key));
  next.Turns(20);
  EXPECT_EQ(next.extents.total().live, whole_);
  EXPECT_EQ(next.engine->Snapshot().missing.at(0).lost_job_count, 0u);
  const auto purged = Purge(next);
  ASSERT_TRUE(purged && *purged);
  EXPECT_THAT(**purged, IsEmpty()) << "the purge frees the number alone";
}

TEST_F(LostManifest, APurgeOfAnyOtherDeviceIsRefused) {
  World next(WithoutTheSecond());
  EXPECT_FALSE(Purge(next, "no such"));
  EXPECT_EQ(refused_.code, Code::kNotFound);
  EXPECT_FALSE(Purge(next, ""));
  EXPECT_EQ(refused_.code, Code::kNotFound);
  World none;
  EXPECT_EQ(none.engine->PurgeDevice(kUuid, [](const auto&) {}).error().code, Code::kNotFound);
}

TEST_F(LostManifest, OnePurgeOfADeviceIsUnderWayAtATime) {
  World next(WithoutTheSecond());
  next.manifests.SetDelay(5);
  size_t answers = 0;
  const auto count = [&](const auto& keys) { answers += keys.has_value() ? 1 : 0; };
  ASSERT_TRUE(next.engine->PurgeDevice(kUuid, count));
  EXPECT_EQ(next.engine->PurgeDevice(kUuid, count).error().code, Code::kTimeout);
  EXPECT_FALSE(next.engine->idle());
  next.Turns(20);
  EXPECT_EQ(answers, 1u);
  EXPECT_TRUE(next.engine->idle());
}

TEST_F(LostManifest, APurgeThatTheStoreRefusesChangesNothing) {
  World next(WithoutTheSecond());
  next.manifests.FailNext(Code::kNoSpace, "the index is full");
  const auto refused = Purge(next);
  ASSERT_TRUE(refused && !*refused);
  EXPECT_EQ(refused->error().code, Code::kNoSpace);
  EXPECT_THAT(LostKeys(next), ElementsAre(kNamed.key));
  EXPECT_EQ(next.extents.total().live, on_first_ + whole_);
  World back(WithBoth());
  ExpectWhole(back, kResume);
}

TEST_F(LostManifest, APurgeWithAnUnknownOutcomeLetsNothingBeStoredUntilTheNextStart) {
  for (const bool made : {false, true}) {
    World next(WithoutTheSecond());
    next.manifests.LoseNext(made);
    const auto lost = Purge(next);
    ASSERT_TRUE(lost && !*lost);
    EXPECT_EQ(lost->error().code, Code::kIoError);
    EXPECT_FALSE(Purge(next));
    EXPECT_EQ(refused_.code, Code::kIoError);
    EXPECT_EQ(next.extents.total().live, on_first_ + whole_);
    World after(WithoutTheSecond());
    EXPECT_EQ(LostKeys(after).empty(), made);
  }
}

}  // namespace
}  // namespace tier::tiering::testing
