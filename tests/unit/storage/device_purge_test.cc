// The purge of a missing device: all that jobs have on it and its number go in one transaction, or nothing does.
#include <csignal>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/storage/quarantine_record.h"
#include "tests/unit/storage/several_devices_fixture.h"

namespace tier::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DevicePurge : public SeveralDevicesTest {
 protected:
  DevicePurge() {
    const auto store = OpenWith({&a_, &b_});
    Put(store.get(), "1000/both", {0, 1});
    Put(store.get(), "1000/lost", {1});
    Put(store.get(), "1000/whole", {0});
    store->StartQuarantine(1, {{.block = 9, .page = 0, .pages = 1}});
  }
  ManifestResult Purge(LmdbManifestStore* store, const ManifestDevice& device) {
    store->StartPurge(5, FormatUuid(device.uuid));
    return Wait(store, 1).at(5);
  }
  bool HasQuarantine(const ManifestDevice& device) {
    const auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    return (*index)->Get(IndexTable::kQuarantine, FormatUuid(device.uuid)).has_value();
  }
  void ExpectUnchanged() {
    EXPECT_TRUE(HasQuarantine(b_));
    const auto store = OpenWith({&b_, &a_});
    EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(1, 0));
    EXPECT_EQ(*store->Load("1000/lost"), Manifest("of 1000/lost"));
    EXPECT_EQ(*store->Load("1000/both"), Manifest("of 1000/both"));
  }
};

TEST_F(DevicePurge, TakesWhatJobsHaveOnTheDeviceAndItsNumber) {
  EXPECT_TRUE(HasQuarantine(b_));
  {
    const auto store = OpenWith({&a_});
    const uint64_t before = a_.index_commit;
    const ManifestResult purged = Purge(store.get(), b_);
    EXPECT_EQ(purged.code, Code::kOk) << purged.message;
    EXPECT_THAT(purged.purged, ElementsAre("1000/both", "1000/lost"));
    EXPECT_EQ(purged.commit, before + 1);
    EXPECT_EQ(a_.index_commit, purged.commit) << "an older copy of the index is told from this one";
    EXPECT_THAT(store->missing_devices(), IsEmpty());
    EXPECT_THAT(*store->Jobs(), ElementsAre("1000/whole"));
    EXPECT_EQ(store->Load("1000/lost").error().code, Code::kNotFound);
    EXPECT_EQ(Purge(store.get(), b_).code, Code::kNotFound) << "it was purged";
  }
  EXPECT_FALSE(HasQuarantine(b_));
  const auto store = OpenWith({&c_, &a_});
  EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(1, 0)) << "the number is free";
  EXPECT_THAT(store->missing_devices(), IsEmpty());
}

TEST_F(DevicePurge, ADeviceThatComesBackAfterItIsEmpty) {
  (void)Purge(OpenWith({&a_}).get(), b_);
  const auto store = OpenWith({&a_, &b_});
  EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(0, 1));
  EXPECT_THAT(*store->Jobs(), ElementsAre("1000/whole"));
  EXPECT_THAT(store->Quarantined(1), IsEmpty());
}

TEST_F(DevicePurge, APathThatIsConfiguredStaysAbsent) {
  const auto store = OpenWith({&a_}, {{.path = "/dev/b", .reason = "it is foreign"}});
  EXPECT_EQ(Purge(store.get(), b_).code, Code::kOk);
  ASSERT_THAT(store->missing_devices(), SizeIs(1));
  EXPECT_EQ(store->missing_devices().front().uuid, "");
  EXPECT_EQ(store->missing_devices().front().path, "/dev/b");
}

TEST_F(DevicePurge, OfADeviceThatIsThereIsRefused) {
  const auto store = OpenWith({&a_, &b_});
  EXPECT_EQ(Purge(store.get(), b_).code, Code::kNotFound);
  EXPECT_EQ(Purge(store.get(), c_).code, Code::kNotFound);
  store->StartPurge(6, "no uuid");
  EXPECT_EQ(Wait(store.get(), 1).at(6).code, Code::kNotFound);
  EXPECT_THAT(*store->Jobs(), SizeIs(3));
}

TEST_F(DevicePurge, IsRefusedWhileAListCannotBeRead) {
  {
    const auto store = OpenWith({&a_, &b_});
    store->StartPut(1, "1000/damaged", Manifest("x"), Manifest("no list"));
    EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  }
  {
    const auto store = OpenWith({&a_});
    const ManifestResult refused = Purge(store.get(), b_);
    EXPECT_EQ(refused.code, Code::kCorrupt);
    EXPECT_THAT(refused.message, HasSubstr("tierctl job remove --purge 1000/damaged"));
    EXPECT_THAT(store->missing_devices(), SizeIs(1));
  }
  ExpectUnchanged();
  const auto store = OpenWith({&a_});
  Erase(store.get(), "1000/damaged");
  EXPECT_EQ(Purge(store.get(), b_).code, Code::kOk);
}

TEST_F(DevicePurge, ThatFailsChangesNothing) {
  {
    const auto store = OpenWith({&a_});
    const WriteLimit none(0);
    EXPECT_EQ(Purge(store.get(), b_).code, Code::kIoError);
    EXPECT_THAT(store->missing_devices(), SizeIs(1));
  }
  ExpectUnchanged();
}

// A child purges, and is killed at any moment of it.
TEST_F(DevicePurge, IsDoneOrNotAfterItsProcessWasKilled) {
  for (int round = 0; round < 16; ++round) {
    {
      const auto store = OpenWith({&a_, &b_});
      for (int job = 0; job < 20; ++job) Put(store.get(), "1000/" + std::to_string(job), {1});
    }
    int said[2];
    ASSERT_EQ(::pipe(said), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = OpenWith({&a_});
      store->StartPurge(5, FormatUuid(b_.uuid));
      const bool told = ::write(said[1], "!", 1) == 1;
      (void)Wait(store.get(), 1);
      ::_exit(told ? 0 : 1);
    }
    ::close(said[1]);
    char begun = 0;
    ASSERT_EQ(::read(said[0], &begun, 1), 1);
    ::close(said[0]);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto store = OpenWith({&a_});
    const bool done = store->missing_devices().empty();
    EXPECT_EQ(store->Load("1000/lost").has_value(), round == 0 && !done) << "round " << round;
    for (int job = 0; job < 20; ++job) {
      EXPECT_EQ(store->Load("1000/" + std::to_string(job)).has_value(), !done) << "job " << job;
    }
    EXPECT_TRUE(store->Load("1000/whole"));
    if (!done) {
      EXPECT_EQ(Purge(store.get(), b_).code, Code::kOk);
    }
  }
}

}  // namespace
}  // namespace tier::storage
