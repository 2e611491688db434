// See user_directory.h.
#include "daemon/session/user_directory.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>

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

// What getpwuid_r(3) names for an entry that is not there.
bool MeansNone(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
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
    user.failed = !MeansNone(outcome);
    return user;
  }
  const std::vector<gid_t> groups = GroupsOf(user.name, first);
  user.failed = groups.empty();
  for (const gid_t gid : groups) user.groups.push_back({.id = gid, .name = NameOfGroup(gid)});
  return user;
}

std::optional<uint32_t> SystemUserDirectory::FindUserId(const std::string& name) {
  std::optional<uint32_t> id;
  WithBuffer([&](char* buffer, size_t size) {
    passwd entry{};
    passwd* found = nullptr;
    const int error = ::getpwnam_r(name.c_str(), &entry, buffer, size, &found);
    if (found != nullptr) id = entry.pw_uid;
    return error;
  });
  return id;
}

std::optional<uint32_t> SystemUserDirectory::FindGroupId(const std::string& name) {
  std::optional<uint32_t> id;
  WithBuffer([&](char* buffer, size_t size) {
    group entry{};
    group* found = nullptr;
    const int error = ::getgrnam_r(name.c_str(), &entry, buffer, size, &found);
    if (found != nullptr) id = entry.gr_gid;
    return error;
  });
  return id;
}

}  // namespace tier::session
