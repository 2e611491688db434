// See job_names.h.
#include "daemon/session/job_names.h"

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {

std::optional<std::string> JobNames::WithNumber(const std::string& name) const {
  const size_t slash = name.find('/');
  if (slash == std::string::npos || slash == 0 || ParseQualifiedName(name)) return std::nullopt;
  const std::string owner = name.substr(0, slash);
  std::optional<uint32_t> uid = owners_ == nullptr ? std::nullopt : owners_->UidOf(owner);
  if (!uid && users_ != nullptr) {
    if (const auto user = users_->FindUserId(owner)) uid = *user;
  }
  if (!uid) return std::nullopt;
  std::string numbered = fmt::format("{}{}", *uid, name.substr(slash));
  TIER_CHECK(ParseQualifiedName(numbered), "{} has no number", numbered);
  return numbered;
}

}  // namespace tier::session
