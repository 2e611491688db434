// Quotas as administrators write them: for users, for groups and for everybody, each field by itself. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tiering/api/quota.h"

namespace tier::session {

inline constexpr size_t kQuotasMax = 4096;  // Users and groups that are named in one table.
inline constexpr uint64_t kQuotaJobsMax = 65536;

// A field without a value is decided by a more general quota; kUnlimited: there is no bound.
struct QuotaFields {
  std::optional<uint64_t> ram;  // Bytes, as the next two.
  std::optional<uint64_t> ssd;
  std::optional<uint64_t> guarantee;
  std::optional<uint64_t> jobs;

  bool any() const { return ram || ssd || guarantee || jobs; }
  friend bool operator==(const QuotaFields&, const QuotaFields&) = default;
};

struct NamedQuotaField {
  std::string_view name;  // As administrators write it.
  std::optional<uint64_t> QuotaFields::* value;
};
inline constexpr auto kQuotaFields = std::to_array<NamedQuotaField>({{"ram", &QuotaFields::ram},
                                                                     {"ssd", &QuotaFields::ssd},
                                                                     {"guarantee", &QuotaFields::guarantee},
                                                                     {"jobs", &QuotaFields::jobs}});
inline constexpr std::string_view kUnlimitedText = "unlimited";  // In place of a number: kUnlimited.

// From the configuration: users and groups by name, or by number in digits.
struct QuotaTable {
  QuotaFields by_default;
  std::map<std::string, QuotaFields> users;
  std::map<std::string, QuotaFields> groups;
  friend bool operator==(const QuotaTable&, const QuotaTable&) = default;
};

// Set at run time: by number, so that they stay with who was meant.
struct QuotaOverrides {
  QuotaFields by_default;
  std::map<uint32_t, QuotaFields> users;
  std::map<uint32_t, QuotaFields> groups;
  friend bool operator==(const QuotaOverrides&, const QuotaOverrides&) = default;
};

// Whose quota is set, as an administrator writes it: a name or a number, none of kDefault.
struct QuotaTarget {
  tiering::QuotaLevel level = tiering::QuotaLevel::kDefault;
  std::string name;
};

// One quota of the book, whatever it applies to.
struct QuotaRow {
  tiering::QuotaLevel level = tiering::QuotaLevel::kDefault;
  bool at_run_time = false;
  std::string name;   // As it stands in the configuration; a number for what was set at run time.
  std::string owner;  // The owner of a socket whom it is for; empty: a user or group of the system.
  QuotaFields fields;
};

// What holds for one user.
struct ResolvedQuota {
  tiering::UserQuota bytes;
  tiering::QuotaLimit jobs;
  friend bool operator==(const ResolvedQuota&, const ResolvedQuota&) = default;
};

// What one user has of what it may have.
struct QuotaUse {
  struct Part {
    uint64_t used = 0;
    tiering::QuotaLimit limit;
  };
  uint32_t uid = 0;
  std::string owner;  // Whose socket this uid stands for; empty: it is a user of the system.
  Part ram;           // Bytes, as the next two.
  Part ssd;
  Part guarantee;
  Part jobs;
};

struct QuotaReport {
  std::vector<QuotaRow> quotas;
  std::vector<QuotaUse> uses;  // By uid.
};

}  // namespace tier::session
