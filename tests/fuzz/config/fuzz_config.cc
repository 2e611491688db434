// Fuzzes the reader of configurations: any text must be refused with a sentence or give a configuration that stands its
// own checks. The first byte chooses between a file and a single override.
#include <cstdint>
#include <string>

#include "daemon/base/check.h"
#include "daemon/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool file = (*data & 1) == 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (file) {
    const auto config = tier::config::ParseConfig(text, "fuzz");
    TIER_CHECK(config ? tier::config::CheckConfig(*config).has_value() : !config.error().message.empty(), "{}", text);
    return 0;
  }
  tier::config::Config config = tier::config::DefaultConfig();
  const auto set = tier::config::ApplyOverride(text, &config);
  TIER_CHECK(set || (config == tier::config::DefaultConfig() && !set.error().message.empty()), "{}", text);
  return 0;
}
