// See job_names.h.
#include "daemon/session/job_names.h"

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {

Result<std::optional<uint32_t>> JobNames::UidOf(const std::string& owner) const {
  if (owners_ != nullptr) {
    if (const auto uid = owners_->UidOf(owner)) return uid;
  }
  if (users_ == nullptr) return std::nullopt;
  const auto user = users_->FindUserId(owner);
  if (user) return std::optional<uint32_t>(*user);
  if (user.error().code == Code::kNotFound) return std::nullopt;
  return std::unexpected(user.error());
}

Result<std::optional<std::string>> JobNames::WithNumber(const std::string& name) const {
  const size_t slash = name.find('/');
  if (slash == std::string::npos || slash == 0 || ParseQualifiedName(name)) return std::nullopt;
  const auto uid = UidOf(name.substr(0, slash));
  if (!uid) {
    return Fail(uid.error().code, fmt::format("{}; UID/JOB names job '{}' without it", uid.error().message, name));
  }
  if (!*uid) return std::nullopt;
  std::string numbered = std::to_string(**uid) + name.substr(slash);
  TIER_CHECK(ParseQualifiedName(numbered), "{} has no number", numbered);
  return numbered;
}

Result<bool> JobNames::IsKept(const std::string& numbered) const {
  const auto owned = ParseQualifiedName(numbered);
  TIER_CHECK(owned, "{} has no number", numbered);
  return keeps_ ? keeps_(owned->first, owned->second) : Result<bool>(false);
}

}  // namespace tier::session
