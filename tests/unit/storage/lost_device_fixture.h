// Tiers of two devices, of which the second one will be lost, with or without what a job persisted on it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/storage/extent_list.h"
#include "daemon/storage/manifest_store.h"
#include "daemon/storage/ssd_tier.h"
#include "tests/support/storage/ssd_tier_fixture.h"

namespace tier::storage {

inline constexpr int kWaitMs = 30'000;

enum class Loss : uint8_t { kGone, kForeign, kWiped, kSwapped, kCutShort };
enum class Persisted : uint8_t { kNothing, kThere };

// What the store says of the one request that it was given.
inline ManifestResult Answer(SsdTier* tier) {
  std::vector<ManifestResult> results;
  tier->manifests()->Poll(&results);
  while (results.empty() && testing::WaitReadable(tier->completion_fd(), kWaitMs)) {
    tier->ClearWakeup();
    tier->manifests()->Poll(&results);
  }
  EXPECT_EQ(results.size(), 1u);
  return results.empty() ? ManifestResult() : results[0];
}

inline void Persist(SsdTier* tier, const std::string& job, uint16_t device) {
  ManifestStore* const store = tier->manifests();
  ExtentListWriter list(1, store->device_numbers());
  list.Add({.run = {.block = 3, .page = 0, .pages = 512}, .device = device});
  store->StartPut(1, job, std::vector<std::byte>(16), std::move(list).Take());
  const ManifestResult result = Answer(tier);
  ASSERT_EQ(result.code, Code::kOk) << result.message;
}

inline void Purge(SsdTier* tier, const std::string& uuid) {
  tier->manifests()->StartPurge(1, uuid);
  const ManifestResult result = Answer(tier);
  ASSERT_EQ(result.code, Code::kOk) << result.message;
}

class LostDeviceTest : public testing::SsdTierFixture {
 protected:
  // Two devices, of which the second one will be lost.
  SsdTierOptions Pair() {
    SsdTierOptions options = Options();
    options.devices.push_back({.path = lost_, .size = kSize});
    options.data_dir = directory_.path();
    return options;
  }
  std::string FirstStart(Persisted persisted) {
    const auto tier = Open(Pair());
    Persist(tier.get(), "1000/whole", 0);
    if (persisted == Persisted::kThere) Persist(tier.get(), "1000/lost", 1);
    return tier->device(1).uuid;
  }
  // The second device lies in the directory, and has what a job persisted; then the directory is elsewhere.
  SsdTierOptions PersistedAndUnmounted(const std::string& mount) {
    std::filesystem::create_directory(mount);
    SsdTierOptions options = Pair();
    options.devices[1].path = mount + "/tier.img";
    Persist(Open(options).get(), "1000/lost", 1);
    std::filesystem::rename(mount, directory_.File("elsewhere"));
    return options;
  }
  void Lose(Loss loss) {
    std::filesystem::rename(lost_, kept_);
    switch (loss) {
      case Loss::kGone: break;
      case Loss::kForeign: ASSERT_TRUE(testing::RunCommand("yes foreign | head -c 64M > " + lost_)); break;
      case Loss::kWiped: ASSERT_TRUE(testing::RunCommand("truncate -s 64M " + lost_)); break;
      case Loss::kSwapped: MakeAnothers(lost_); break;
      case Loss::kCutShort:
        std::filesystem::copy_file(kept_, lost_);
        std::filesystem::resize_file(lost_, kSize / 4 * 3);
        break;
    }
    if (std::filesystem::exists(lost_)) std::filesystem::copy_file(lost_, found_);
  }
  // A device of an index in another directory.
  void MakeAnothers(const std::string& path) {
    const testing::ScratchDirectory other;
    SsdTierOptions options = Options();
    options.devices = {{.path = path, .size = kSize}};
    options.data_dir = other.path();
    Persist(Open(options).get(), "1000/others", 0);
  }
  void BringBack() {
    std::filesystem::rename(kept_, lost_);
    std::filesystem::remove(found_);
  }
  bool IsAsFound() { return testing::RunCommand("cmp " + lost_ + " " + found_); }
  std::vector<proto::ExtentListRun> ListOf(SsdTier& tier, const std::string& job) {
    return DecodeExtentList(tier.manifests()->LoadExtents(job).value()).value();
  }

  const std::string lost_ = directory_.File("lost.img");
  const std::string kept_ = directory_.File("lost.kept");
  const std::string found_ = directory_.File("found.copy");
};

}  // namespace tier::storage
