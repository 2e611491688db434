// See job_names.h.
#include "daemon/session/job_names.h"

#include "daemon/base/check.h"

namespace tier::session {

std::optional<uint32_t> JobNames::UidOf(const std::string& owner) const {
  if (owners_ != nullptr) {
    if (const auto uid = owners_->UidOf(owner)) return uid;
  }
  if (users_ == nullptr) return std::nullopt;
  const auto user = users_->FindUserId(owner);
  return user ? std::optional<uint32_t>(*user) : std::nullopt;
}

std::optional<std::string> JobNames::WithNumber(const std::string& name) const {
  const size_t slash = name.find('/');
  if (slash == std::string::npos || slash == 0 || ParseQualifiedName(name)) return std::nullopt;
  const auto uid = UidOf(name.substr(0, slash));
  if (!uid) return std::nullopt;
  std::string numbered = std::to_string(*uid) + name.substr(slash);
  TIER_CHECK(ParseQualifiedName(numbered), "{} has no number", numbered);
  return numbered;
}

}  // namespace tier::session
