// Quotas: what an administrator lets all jobs of one user have together, and who said so.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <fmt/format.h>

namespace tier::tiering {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

enum class QuotaLevel : uint8_t { kOption, kDefault, kGroup, kUser };

// Where a limit comes from.
struct QuotaOrigin {
  QuotaLevel level = QuotaLevel::kOption;  // An option of [jobs], where no quota names the user.
  bool at_run_time = false;                // tierctl quota set; else the configuration.
  uint32_t id = 0;                         // Of the user or group.

  friend bool operator==(const QuotaOrigin&, const QuotaOrigin&) = default;
};

struct QuotaLimit {
  uint64_t most = kUnlimited;
  QuotaOrigin origin;

  bool any() const { return most != kUnlimited; }
  friend bool operator==(const QuotaLimit&, const QuotaLimit&) = default;
};

// Bytes.
struct UserQuota {
  QuotaLimit ram;        // In use by all jobs of the user.
  QuotaLimit ssd;        // Of tensors of all its jobs, and of what they persisted.
  QuotaLimit guarantee;  // Guarantees of RAM of all its jobs. At most `ram`, whatever is said here.

  friend bool operator==(const UserQuota&, const UserQuota&) = default;
};
static_assert(std::is_trivially_copyable_v<UserQuota>);

// "the quota of user 1001, set at run time"; for sentences. `owner`: of the socket that this number stands for.
inline std::string DescribeOrigin(const QuotaOrigin& origin, const char* option, const std::string& owner = {}) {
  const char* const set = origin.at_run_time ? "set at run time" : "in the configuration";
  switch (origin.level) {
    case QuotaLevel::kOption: return fmt::format("option {}", option);
    case QuotaLevel::kDefault: return fmt::format("the default quota, {}", set);
    case QuotaLevel::kGroup: return fmt::format("the quota of group {}, {}", origin.id, set);
    case QuotaLevel::kUser:
      return owner.empty() ? fmt::format("the quota of user {}, {}", origin.id, set)
                           : fmt::format("the quota of owner {}, {}", owner, set);
  }
  return {};
}

}  // namespace tier::tiering
