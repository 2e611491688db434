// The section [quota] of the configuration: what all jobs of a user may have together. Its keys are names of users and
// groups, so it has no options in the table of options.h.
//
//   [quota.default]            every user, as far as nothing below names it
//   [quota.user."alice"]       one user, by name or number
//   [quota.group."students"]   members of a group, by name or number; of several groups the most generous counts
//
// Keys of each: ram, ssd and guarantee (sizes), jobs (a number). 0: nothing; "unlimited": no bound. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/session/quota_table.h"
#include "proto/result.h"

namespace tier::config {

inline constexpr size_t kQuotaNameSizeMax = 256;  // Characters, as useradd(8) allows at most.

// One value of the section, or one part of it without any.
struct QuotaSetting {
  std::vector<std::string> path;                             // "user", "alice", "ram"
  std::variant<std::monostate, int64_t, std::string> value;  // monostate: of another kind.
  bool is_section = false;                                   // An empty one; it has no value.
};

// INVALID names the option and what is allowed.
Status ApplyQuota(const QuotaSetting& setting, session::QuotaTable* quota);

}  // namespace tier::config
