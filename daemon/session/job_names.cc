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

// Not where it is a part of a longer name or number.
std::string JobNames::AsWritten(std::string message, const std::string& numbered, const std::string& name) {
  TIER_CHECK(!numbered.empty(), "no number for {}", name);
  const auto ends_there = [&message](size_t at) {
    return at >= message.size() || message[at] == '\'' || message[at] == ' ' || message[at] == ',' ||
           message[at] == ';' || message[at] == ')';
  };
  for (size_t at = message.find(numbered); at != std::string::npos; at = message.find(numbered, at + 1)) {
    const bool begins_there = at == 0 || message[at - 1] == '\'' || message[at - 1] == ' ';
    if (!begins_there || !ends_there(at + numbered.size())) continue;
    message.replace(at, numbered.size(), name);
    at += name.size() - 1;
  }
  return message;
}

}  // namespace tier::session
