// See user_directory.h.
#include "daemon/session/user_directory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {
namespace {

constexpr size_t kEntryBytesFirst = 4096;
constexpr size_t kEntryBytesMax = 1 << 20;  // A group of some ten thousand members.
constexpr int kGroupsFirst = 64;
constexpr int kGroupsMax = 65536;  // NGROUPS_MAX of Linux.

// Calls `find(buffer, size)` with a buffer that is large enough. It returns an error number, and so does this.
template <typename Find>
int WithBuffer(Find find) {
  int error = 0;
  for (size_t size = kEntryBytesFirst; size <= kEntryBytesMax; size *= 4) {
    std::vector<char> buffer(size);
    error = find(buffer.data(), buffer.size());
    if (error != ERANGE) break;
  }
  return error;
}

constexpr const char* kUsersFile = "/etc/passwd";
constexpr const char* kGroupsFile = "/etc/group";

// glibc has no error for an entry that no service of nsswitch.conf knows. ENOENT is that of a service that does not
// answer (nslcd), or of a system without the file of its own users.
bool MeansNone(int error, const char* file) {
  return error == 0 || (error == ENOENT && ::access(file, F_OK) != 0);
}

std::unexpected<Error> NoAnswer(const char* kind, const char* database, const std::string& name, int error) {
  return Fail(Code::kTimeout,
              fmt::format("the user database does not say whether there is a {0} '{1}': {2}; try again (getent {3} {1} "
                          "asks it too)",
                          kind, name, std::strerror(error), database));
}

std::string NameOfGroup(gid_t gid) {
  std::string name;
  WithBuffer([&](char* buffer, size_t size) {
    group entry{};
    group* found = nullptr;
    const int error = ::getgrgid_r(gid, &entry, buffer, size, &found);
    if (found != nullptr) name = entry.gr_name;
    return error;
  });
  return name;
}

// None: it failed.
std::vector<gid_t> GroupsOf(const std::string& user, gid_t first) {
  TIER_CHECK(!user.empty(), "groups of no user, with gid {}", first);
  int count = kGroupsFirst;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  while (::getgrouplist(user.c_str(), first, groups.data(), &count) < 0 && count <= kGroupsMax) {
    if (static_cast<size_t>(count) <= groups.size()) return {};  // For another reason than room.
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(std::min<int>(count, static_cast<int>(groups.size()))));
  return groups;
}

}  // namespace

std::unexpected<Error> NoUser(const std::string& name) {
  return Fail(Code::kNotFound, fmt::format("this system has no user '{}'", name));
}

std::unexpected<Error> NoGroup(const std::string& name) {
  return Fail(Code::kNotFound, fmt::format("this system has no group '{}'", name));
}

UserEntry SystemUserDirectory::FindUser(uint32_t uid) {
  UserEntry user;
  gid_t first = 0;
  const int outcome = WithBuffer([&](char* buffer, size_t size) {
    passwd entry{};
    passwd* found = nullptr;
    const int error = ::getpwuid_r(uid, &entry, buffer, size, &found);
    if (found != nullptr) {
      user.name = entry.pw_name;
      first = entry.pw_gid;
    }
    return error;
  });
  if (user.name.empty()) {
    user.failed = !MeansNone(outcome, kUsersFile);
    return user;
  }
  const std::vector<gid_t> groups = GroupsOf(user.name, first);
  user.failed = groups.empty();
  for (const gid_t gid : groups) user.groups.push_back({.id = gid, .name = NameOfGroup(gid)});
  return user;
}

Result<uint32_t> SystemUserDirectory::FindUserId(const std::string& name) {
  std::optional<uint32_t> id;
  const int error = WithBuffer([&](char* buffer, size_t size) {
    passwd entry{};
    passwd* found = nullptr;
    const int outcome = calls_.find_user(name.c_str(), &entry, buffer, size, &found);
    if (found != nullptr) id = entry.pw_uid;
    return outcome;
  });
  if (id) return *id;
  return MeansNone(error, kUsersFile) ? NoUser(name) : NoAnswer("user", "passwd", name, error);
}

Result<uint32_t> SystemUserDirectory::FindGroupId(const std::string& name) {
  std::optional<uint32_t> id;
  const int error = WithBuffer([&](char* buffer, size_t size) {
    group entry{};
    group* found = nullptr;
    const int outcome = calls_.find_group(name.c_str(), &entry, buffer, size, &found);
    if (found != nullptr) id = entry.gr_gid;
    return outcome;
  });
  if (id) return *id;
  return MeansNone(error, kGroupsFile) ? NoGroup(name) : NoAnswer("group", "group", name, error);
}

}  // namespace tier::session
