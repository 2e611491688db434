// What is said of the SSD tier at the start and at a reload.
#include "daemon/ssd_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/storage/ssd_tier_fixture.h"

namespace tier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using SsdWords = storage::testing::SsdTierFixture;

TEST_F(SsdWords, OfADeviceItsSizeAndWhatBecameOfIt) {
  storage::SsdDeviceDescription device{.path = "/srv/tier.ssd", .uuid = {}, .size = kGiB, .capacity = kGiB};
  EXPECT_EQ(DeviceText(0, device), "device 0: /srv/tier.ssd (1 GiB)");
  device.created = true;
  EXPECT_EQ(DeviceText(1, device), "device 1: /srv/tier.ssd (1 GiB, formatted now)");
  device.created = false;
  device.grown_from = 512 * kMiB;
  EXPECT_EQ(DeviceText(1, device), "device 1: /srv/tier.ssd (1 GiB, its file grew from 512 MiB)");
}

TEST_F(SsdWords, OfATierThatIsNotThereWhyUnlessItWasConfiguredAway) {
  storage::SsdTierOptions options = Options();
  EXPECT_EQ(SsdShortage(*Open(options)), "");
  options.devices.clear();
  EXPECT_EQ(SsdShortage(*Open(options)), "") << "nobody wanted one";
  options.no_device_reason = "the disk is full";
  EXPECT_EQ(SsdShortage(*Open(options)), "no SSD tier, tensors stay in RAM: the disk is full");
}

TEST_F(SsdWords, OfFilesWhatTheNextStartMakesOfAnotherSize) {
  storage::SsdTierOptions options = Options();
  options.devices.push_back({.path = directory_.path(), .size = kSize, .private_file = true});
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  const std::string path = options.devices[0].path;
  EXPECT_THAT(NextSizeNotes(*tier, 0), IsEmpty());
  EXPECT_THAT(NextSizeNotes(*tier, kSize), IsEmpty());
  EXPECT_THAT(
      NextSizeNotes(*tier, 2 * kSize),
      ElementsAre(path + " grows from 64 MiB to 128 MiB at the next start, where its file system has the room"));
  EXPECT_THAT(NextSizeNotes(*tier, kSize - 1),
              ElementsAre(AllOf(HasSubstr(path + " keeps its 64 MiB"), HasSubstr("a file does not shrink"))));
}

}  // namespace
}  // namespace tier
