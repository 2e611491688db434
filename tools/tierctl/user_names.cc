#include "tools/tierctl/user_names.h"

#include <grp.h>
#include <pwd.h>

#include <charconv>

#include <fmt/format.h>

namespace tier::tierctl {

std::string NameOfUser(uint32_t uid) {
  const passwd* const entry = ::getpwuid(uid);
  return entry == nullptr ? "" : entry->pw_name;
}

std::string NameOfGroup(uint32_t gid) {
  const group* const entry = ::getgrgid(gid);
  return entry == nullptr ? "" : entry->gr_name;
}

std::optional<uint32_t> UidOf(const std::string& name) {
  const passwd* const entry = ::getpwnam(name.c_str());
  return entry == nullptr ? std::nullopt : std::optional<uint32_t>(entry->pw_uid);
}

std::optional<uint32_t> NumberIn(const std::string& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string HintOnUid(const std::string& job, const UserNames& names) {
  const size_t slash = job.find('/');
  if (slash == std::string::npos || slash == 0 || NumberIn(job.substr(0, slash))) return {};
  const auto uid = names.uid_of(job.substr(0, slash));
  return fmt::format("the UID of UID/NAME is a number{}",
                     uid ? fmt::format(": {}/{}", *uid, job.substr(slash + 1)) : "");
}

}  // namespace tier::tierctl
