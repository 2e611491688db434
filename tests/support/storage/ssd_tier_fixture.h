// A test that opens SSD tiers in a directory of its own.
#pragma once

#include <memory>

#include <gtest/gtest.h>

#include "daemon/base/workers.h"
#include "daemon/storage/ssd_tier.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage::testing {

class SsdTierFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kSize = 64 * kMiB;  // Of a device.

  // One device, in a file of the directory.
  SsdTierOptions Options() {
    SsdTierOptions options;
    options.devices = {{.path = directory_.File("tier.img"), .size = kSize}};
    options.windows_max = 64;
    return options;
  }
  std::unique_ptr<SsdTier> Open(const SsdTierOptions& options) {
    auto tier = SsdTier::Open(options, *workers_);
    EXPECT_TRUE(tier) << tier.error().message;
    return tier ? std::move(*tier) : nullptr;
  }
  // kOk: it was opened after all.
  Code Refusal(const SsdTierOptions& options) {
    const auto tier = SsdTier::Open(options, *workers_);
    return tier ? Code::kOk : tier.error().code;
  }

  ScratchDirectory directory_;
  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(2, "test").value();
};

}  // namespace tier::storage::testing
