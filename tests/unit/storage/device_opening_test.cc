// What a start makes, and when: nothing is written before all paths are looked at; and how long it waits for a device
// that does not answer.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/device_file.h"
#include "daemon/storage/known_devices.h"
#include "tests/unit/storage/lost_device_fixture.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using DeviceOpening = LostDeviceTest;

// A disk of other data whose first MiB is blank.
TEST_F(DeviceOpening, AMisspelledPathWithABlankFileIsNotFormattedAtAnyStart) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Pair();
  const std::string misspelled = directory_.File("tsol.img");
  ASSERT_TRUE(testing::RunCommand("truncate -s 64M " + misspelled + " && yes | head -c 1M | dd of=" + misspelled +
                                  " bs=1M seek=2 conv=notrunc status=none"));
  std::filesystem::copy_file(misspelled, found_);
  for (int start = 0; start < 2; ++start) {
    for (const bool alone : {false, true}) {
      options = Pair();
      options.devices[1].path = misspelled;
      if (alone) options.devices.erase(options.devices.begin());
      const auto refused = SsdTier::Open(options, *workers_);
      ASSERT_FALSE(refused) << "start " << start;
      EXPECT_EQ(refused.error().code, Code::kInvalid);
      EXPECT_THAT(refused.error().message, AllOf(HasSubstr(misspelled), HasSubstr("a misspelling?")));
      EXPECT_TRUE(testing::RunCommand("cmp " + misspelled + " " + found_)) << "not a byte of it is tierd's";
    }
  }
  EXPECT_THAT(Open(Pair())->missing_devices(), IsEmpty());
}

// As an earlier tierd left it, which formatted before it refused; or as tierctl device format leaves it.
TEST_F(DeviceOpening, ADeviceThatNoIndexKnowsIsNotTakenInPlaceOfOneThatIsMissing) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Pair();
  options.devices[1].path = directory_.File("tsol.img");
  ASSERT_TRUE(testing::RunCommand("truncate -s 64M " + options.devices[1].path));
  ASSERT_TRUE(FormatDevice(options.devices[1].path, false));
  EXPECT_EQ(Refusal(options), Code::kInvalid);
  options.devices.push_back({.path = lost_, .size = kSize});
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr) << "beside the one that jobs need it is welcome";
  EXPECT_EQ(tier->device_count(), 3);
}

// The index knows the device, whatever its path is today.
TEST_F(DeviceOpening, ADeviceThatMovedToAnotherPathIsNoMistake) {
  const std::string uuid = FirstStart(Persisted::kThere);
  std::filesystem::rename(lost_, kept_);
  SsdTierOptions options = Pair();
  options.devices[1].path = kept_;
  options.devices.push_back({.path = directory_.File("more.img"), .size = kSize});
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_THAT(tier->missing_devices(), IsEmpty());
  EXPECT_EQ(tier->device(1).uuid, uuid);
  EXPECT_TRUE(tier->device(2).created);
}

// What is refused at one path is found before anything is written at another.
TEST_F(DeviceOpening, ARefusedPathLeavesABlankFileBesideItUntouched) {
  SsdTierOptions options = Pair();
  options.devices[0].path = directory_.File("blank.img");
  ASSERT_TRUE(testing::RunCommand("truncate -s 64M " + options.devices[0].path));
  ASSERT_TRUE(testing::RunCommand("yes foreign | head -c 64M > " + lost_));
  EXPECT_EQ(Refusal(options), Code::kInvalid);
  EXPECT_EQ(DeviceFile::ReadSuperblock(options.devices[0].path).error().code, Code::kNotFound) << "it was formatted";
}

// A data directory that is not mounted.
TEST_F(DeviceOpening, WithoutTheIndexOfOneDeviceTheBlankOneBesideItIsLeftAsItIs) {
  (void)FirstStart(Persisted::kThere);
  ASSERT_TRUE(testing::RunCommand("dd if=/dev/zero of=" + lost_ + " bs=1M count=2 conv=notrunc status=none"));
  std::filesystem::rename(IndexPath(Pair().data_dir), kept_);
  const auto refused = SsdTier::Open(Pair(), *workers_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("restore that file"));
  EXPECT_EQ(DeviceFile::ReadSuperblock(lost_).error().code, Code::kNotFound) << "it was formatted";
}

// The kernel gave two disks each other's names, and the label of the one that jobs need is gone: at the path of the
// other one something blank is found, which is not blank behind its first MiB.
class SwappedNames : public LostDeviceTest {
 protected:
  SwappedNames() {
    (void)FirstStart(Persisted::kNothing);  // Jobs need the first device alone.
    std::filesystem::rename(needed_, kept_);
    std::filesystem::rename(lost_, needed_);
    std::filesystem::copy_file(kept_, lost_);
    EXPECT_TRUE(testing::RunCommand("dd if=/dev/zero of=" + lost_ + " bs=1M count=1 conv=notrunc status=none"));
    std::filesystem::copy_file(lost_, found_);
  }
  const std::string needed_ = directory_.File("tier.img");
};

TEST_F(SwappedNames, NothingIsFormattedWhileADeviceThatJobsNeedIsNotOpen) {
  for (int start = 0; start < 2; ++start) {
    const auto tier = Open(Pair());
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(tier->device_count(), 1) << "start " << start;
    ASSERT_THAT(tier->missing_devices(), SizeIs(2));
    const std::string uuid = tier->missing_devices()[0].uuid;
    EXPECT_EQ(tier->missing_devices()[1].path, lost_);
    EXPECT_THAT(tier->missing_devices()[1].reason,
                AllOf(HasSubstr(lost_ + " is left as it is: device " + uuid), HasSubstr("tierctl device purge " + uuid),
                      HasSubstr("tierctl device format " + lost_), HasSubstr("name that in ssd.devices")));
    EXPECT_TRUE(IsAsFound()) << "not a byte of it is tierd's";
  }
  std::filesystem::rename(kept_, lost_);
  const auto tier = Open(Pair());
  ASSERT_NE(tier, nullptr);
  EXPECT_THAT(tier->missing_devices(), IsEmpty()) << "with its label it is known, whatever its path is";
  EXPECT_THAT(ListOf(*tier, "1000/whole"), SizeIs(1));
}

TEST_F(SwappedNames, ABlankDiskIsFormattedOnceTheMissingDeviceIsPurged) {
  {
    const auto tier = Open(Pair());
    Purge(tier.get(), tier->missing_devices().at(0).uuid);
  }
  const auto tier = Open(Pair());
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device_count(), 2);
  EXPECT_THAT(tier->missing_devices(), IsEmpty());
}

TEST_F(SwappedNames, ABlankDiskIsTakenOnceTheOperatorFormattedIt) {
  (void)Open(Pair());
  ASSERT_TRUE(FormatDevice(lost_, false));
  const auto tier = Open(Pair());
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device_count(), 2);
  EXPECT_THAT(tier->missing_devices(), SizeIs(1));
}

// As where its file system is not mounted.
TEST_F(SwappedNames, NothingIsSaidToBeThereWhereNothingIs) {
  std::filesystem::remove(lost_);
  const auto tier = Open(Pair());
  ASSERT_NE(tier, nullptr);
  ASSERT_THAT(tier->missing_devices(), SizeIs(2));
  EXPECT_FALSE(std::filesystem::exists(lost_));
  const std::string uuid = tier->missing_devices()[0].uuid;
  EXPECT_EQ(tier->missing_devices()[1].path, lost_);
  EXPECT_THAT(tier->missing_devices()[1].reason,
              AllOf(HasSubstr("nothing is there at " + lost_ + ", and nothing was made there: device " + uuid),
                    HasSubstr("a file system may not be mounted"), HasSubstr("tierctl device purge " + uuid),
                    Not(HasSubstr("may be what is there")), Not(HasSubstr("tierctl device format"))));
}

// The index never knew this path; an absent file beside it is made, for nothing can be lost there.
TEST_F(SwappedNames, ABlankDiskAtANewPathIsNotFormattedEither) {
  SsdTierOptions options = Pair();
  options.devices[1].path = directory_.File("new.img");
  std::filesystem::rename(lost_, options.devices[1].path);
  options.devices.push_back({.path = directory_.File("more.img"), .size = kSize});
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device_count(), 2);
  EXPECT_TRUE(tier->device(1).created);
  EXPECT_TRUE(testing::RunCommand("cmp " + options.devices[1].path + " " + found_)) << "not a byte of it is tierd's";
}

// A program that runs cannot be opened for writing. That error says nothing of what is there, as one of a device in a
// reset does not. Time goes on only where the tier pauses, and no device is under way but the `hanging_` ones.
class DeviceThatDoesNotAnswer : public LostDeviceTest {
 protected:
  ~DeviceThatDoesNotAnswer() override { End(); }
  // It does not answer until the `answers`-th pause. 0: never.
  SsdTierOptions Unanswering(uint32_t answers) {
    std::filesystem::rename(lost_, kept_);
    Occupy(lost_);
    return WithPauses(Pair(), answers);
  }
  SsdTierOptions WithPauses(SsdTierOptions options, uint32_t answers) {
    options.now = [this] { return now_; };
    options.on_wait = [this](base::Duration) { ++waits_told_; };
    options.pause = [this, answers](size_t unanswered) {
      if (unanswered != hanging_) return std::this_thread::yield();
      now_ = now_ + kOpenRetryPause;
      if (++pauses_ != answers) return;
      End();
      std::filesystem::rename(kept_, lost_);
    };
    return options;
  }
  void Occupy(const std::string& path) {
    std::filesystem::copy_file("/bin/sleep", path, std::filesystem::copy_options::overwrite_existing);
    std::string name = "sleep";
    std::string time = "1000";
    char* arguments[] = {name.data(), time.data(), nullptr};
    programs_.push_back(0);
    EXPECT_EQ(::posix_spawn(&programs_.back(), path.c_str(), nullptr, nullptr, arguments, environ), 0);
  }
  void End() {
    for (const pid_t program : std::exchange(programs_, {})) {
      (void)::kill(program, SIGKILL);
      (void)::waitpid(program, nullptr, 0);
    }
  }
  // A file of this name, in this process.
  static bool HasOpen(const std::string& name) {
    for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;
      if (std::filesystem::read_symlink(open.path(), closed).filename() == name) return true;
    }
    return false;
  }
  static constexpr auto kPausesMax = static_cast<uint32_t>(kOpenWait / kOpenRetryPause);
  size_t hanging_ = 0;
  uint32_t pauses_ = 0;
  uint32_t waits_told_ = 0;
  base::TimePoint now_;
  std::vector<pid_t> programs_;
};

TEST_F(DeviceThatDoesNotAnswer, IsNotLostWhereItAnswersSoon) {
  (void)FirstStart(Persisted::kThere);
  const auto tier = Open(Unanswering(3));
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(pauses_, 3u);
  EXPECT_EQ(tier->device_count(), 2);
  EXPECT_THAT(tier->missing_devices(), IsEmpty());
}

TEST_F(DeviceThatDoesNotAnswer, IsLostAfterAWhile) {
  (void)FirstStart(Persisted::kThere);
  const auto tier = Open(Unanswering(0));
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(pauses_, kPausesMax);
  ASSERT_THAT(tier->missing_devices(), SizeIs(1));
  EXPECT_EQ(tier->missing_devices()[0].path, lost_);
}

TEST_F(DeviceThatDoesNotAnswer, SharesTheTimeWithAllOthers) {
  SsdTierOptions options = Pair();
  {
    const auto tier = Open(options);
    Persist(tier.get(), "1000/one", 0);
    Persist(tier.get(), "1000/other", 1);
  }
  options = Unanswering(0);
  Occupy(options.devices[0].path);
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_THAT(tier->missing_devices(), SizeIs(2));
  EXPECT_EQ(pauses_, kPausesMax);
}

TEST_F(DeviceThatDoesNotAnswer, IsAskedOnceMoreAfterTheTimeThatTheCallerSays) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Unanswering(0);
  options.open_until = now_;
  EXPECT_THAT(Open(options)->missing_devices(), SizeIs(1));
  EXPECT_EQ(pauses_, 1u);
  End();
  std::filesystem::rename(kept_, lost_);
  pauses_ = 0;
  options = Unanswering(1);
  options.open_until = now_;
  EXPECT_THAT(Open(options)->missing_devices(), IsEmpty());
  EXPECT_EQ(pauses_, 1u);
}

// To know whether jobs need it, the lists of all jobs are read, which here takes longer than all devices have.
TEST_F(DeviceThatDoesNotAnswer, IsWaitedForAsLongWhereTheListsTakeTimeToRead) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Unanswering(3);
  options.now = [this, was_read = false]() mutable {
    if (!was_read && HasOpen("index.mdb")) {
      was_read = true;
      now_ = now_ + 2 * kOpenWait;
    }
    return now_;
  };
  for (const bool caller_says : {false, true}) {
    if (caller_says) {
      pauses_ = 0;
      options.open_until = now_ + kOpenWait;
      std::filesystem::rename(lost_, kept_);
      Occupy(lost_);
    }
    const auto tier = Open(options);
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(pauses_, 3u);
    EXPECT_THAT(tier->missing_devices(), IsEmpty());
  }
}

TEST_F(DeviceThatDoesNotAnswer, IsNotWaitedForWhereNoJobNeedsIt) {
  (void)FirstStart(Persisted::kNothing);
  const auto tier = Open(Unanswering(0));
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(pauses_, 0u);
  EXPECT_EQ(waits_told_, 0u);
  EXPECT_EQ(tier->device_count(), 1);
}

// An open of it does not return, as of a disk that the kernel waits for.
class DeviceThatHangs : public DeviceThatDoesNotAnswer {
 protected:
  ~DeviceThatHangs() override { Answer(); }
  SsdTierOptions Hanging(SsdTierOptions options, std::vector<std::string> paths, uint32_t answers = 0) {
    hanging_ = paths.size();
    options = WithPauses(std::move(options), answers);
    options.before_attempt = [gate = gate_, paths = std::move(paths)](const std::string& path) {
      if (std::ranges::find(paths, path) != paths.end()) gate->wait();
    };
    return options;
  }
  // Returns when no thread of an attempt is left. REQUIRES: the options are gone.
  void Answer() {
    if (!std::exchange(answered_, true)) gate_->count_down();
    while (gate_.use_count() > 1) std::this_thread::yield();
  }
  const std::shared_ptr<std::latch> gate_ = std::make_shared<std::latch>(1);
  bool answered_ = false;
};

TEST_F(DeviceThatHangs, TakesNoMoreTimeBesideOthersThatHang) {
  (void)FirstStart(Persisted::kThere);
  const std::string first = Pair().devices[0].path;
  {
    const auto tier = Open(Hanging(Pair(), {first, lost_}));
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(pauses_, kPausesMax);
    EXPECT_EQ(waits_told_, kPausesMax) << "the service manager waits";
    ASSERT_THAT(tier->missing_devices(), SizeIs(2));
    EXPECT_THAT(tier->missing_devices()[1].reason,
                HasSubstr(lost_ + " does not answer: an attempt to open it has hung"));
  }
  Answer();
  EXPECT_TRUE(DeviceFile::Open({.path = lost_})) << "what answers late is closed";
  EXPECT_THAT(Open(Pair())->missing_devices(), IsEmpty());
}

TEST_F(DeviceThatHangs, IsDoneWithoutWhereNoJobNeedsIt) {
  (void)FirstStart(Persisted::kNothing);
  const auto tier = Open(Hanging(Pair(), {lost_}));
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device_count(), 1);
  ASSERT_THAT(tier->missing_devices(), SizeIs(1));
  EXPECT_EQ(tier->missing_devices()[0].path, lost_);
}

TEST_F(DeviceThatHangs, IsNotFormattedAndLetsNoBlankOneBeFormatted) {
  (void)FirstStart(Persisted::kNothing);
  const std::string needed = Pair().devices[0].path;
  Lose(Loss::kWiped);
  std::filesystem::copy_file(needed, directory_.File("needed.copy"));
  const auto tier = Open(Hanging(Pair(), {needed}));
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device_count(), 0);
  EXPECT_THAT(tier->missing_devices(), SizeIs(2));
  EXPECT_TRUE(IsAsFound());
  EXPECT_TRUE(testing::RunCommand("cmp " + needed + " " + directory_.File("needed.copy")));
}

TEST_F(DeviceThatHangs, LetsOthersBeOpenedAgainMeanwhile) {
  const std::string uuid = FirstStart(Persisted::kThere);
  const std::string first = Pair().devices[0].path;
  std::filesystem::rename(lost_, kept_);
  Occupy(lost_);
  const auto tier = Open(Hanging(Pair(), {first}, 3));
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(pauses_, kPausesMax);
  ASSERT_EQ(tier->device_count(), 1);
  EXPECT_EQ(tier->device(0).uuid, uuid);
}

// A start that is repeated has no time left for errors, but a whole device has time to answer.
TEST_F(DeviceThatHangs, IsGivenItsTimeAtEachStart) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Hanging(Pair(), {lost_});
  options.open_until = now_;
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(pauses_, kPausesMax);
  EXPECT_EQ(tier->device_count(), 1);
}

// As one whose reset ends after almost all of the time that devices have.
TEST_F(DeviceThatHangs, IsAskedOnceMoreWhereItFailsLate) {
  (void)FirstStart(Persisted::kThere);
  std::filesystem::rename(lost_, kept_);
  Occupy(lost_);
  SsdTierOptions options = Hanging(Pair(), {lost_}, kPausesMax);
  options.pause = [this, usual = options.pause](size_t unanswered) {
    if (pauses_ + 1 < kPausesMax || unanswered == 0) return usual(unanswered);
    hanging_ = 0;  // It fails before the last pause.
    if (!std::exchange(answered_, true)) gate_->count_down();
    std::this_thread::yield();
  };
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(pauses_, kPausesMax);
  EXPECT_EQ(tier->device_count(), 2);
  EXPECT_THAT(tier->missing_devices(), IsEmpty());
}

TEST_F(DeviceThatHangs, IsGivenUpWhereItHangsWhenItIsAskedOnceMore) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Unanswering(0);
  options.open_until = now_;
  const auto attempts = std::make_shared<std::atomic<int>>(0);
  options.before_attempt = [gate = gate_, attempts, lost = lost_](const std::string& path) {
    if (path == lost && ++*attempts == 2) gate->wait();
  };
  options.pause = [this, attempts, usual = options.pause](size_t unanswered) {
    hanging_ = *attempts == 2 ? 1 : 0;
    usual(unanswered);
  };
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(pauses_, 1 + kPausesMax);
  ASSERT_THAT(tier->missing_devices(), SizeIs(1));
  EXPECT_THAT(tier->missing_devices()[0].reason, HasSubstr("an attempt to open it has hung for 5 s"));
}

TEST_F(DeviceThatHangs, RefusesTheStartWhereTheIndexNeverKnewIt) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Pair();
  const std::string added = directory_.File("added.img");
  options.devices.push_back({.path = added, .size = kSize});
  EXPECT_EQ(Refusal(Hanging(options, {added})), Code::kIoError);
  EXPECT_FALSE(std::filesystem::exists(added));
}

}  // namespace
}  // namespace tier::storage
