#include "tools/tierctl/user_names.h"

#include <grp.h>
#include <pwd.h>

#include <charconv>

namespace tier::tierctl {

std::string NameOfUser(uint32_t uid) {
  const passwd* const entry = ::getpwuid(uid);
  return entry == nullptr ? "" : entry->pw_name;
}

std::string NameOfGroup(uint32_t gid) {
  const group* const entry = ::getgrgid(gid);
  return entry == nullptr ? "" : entry->gr_name;
}

std::optional<uint32_t> NumberIn(const std::string& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace tier::tierctl
