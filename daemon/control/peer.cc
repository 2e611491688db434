#include "daemon/control/peer.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace tier::control {
namespace {

constexpr int kGroupsMax = 65536;       // NGROUPS_MAX of Linux.
constexpr size_t kRecordBytes = 65536;  // One passwd or group record with all its members' names.

std::optional<gid_t> GroupId(const std::string& name) {
  std::vector<char> buffer(kRecordBytes);
  group record{};
  group* found = nullptr;
  if (::getgrnam_r(name.c_str(), &record, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::nullopt;
  return record.gr_gid;
}

bool UserInGroup(uid_t uid, gid_t gid) {
  std::vector<char> buffer(kRecordBytes);
  passwd record{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &record, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return false;
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  if (::getgrouplist(record.pw_name, record.pw_gid, groups.data(), &count) < 0) {
    if (count <= 0 || count > kGroupsMax) return false;
    groups.resize(static_cast<size_t>(count));
    if (::getgrouplist(record.pw_name, record.pw_gid, groups.data(), &count) < 0) return false;
  }
  groups.resize(static_cast<size_t>(count));
  return std::find(groups.begin(), groups.end(), gid) != groups.end();
}

}  // namespace

std::optional<Peer> PeerOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || size != sizeof(credentials))
    return std::nullopt;
  // An unconnected socket answers with uid -1.
  if (credentials.uid == static_cast<uid_t>(-1)) return std::nullopt;
  return Peer{credentials.pid, credentials.uid, credentials.gid};
}

bool MayAdminister(const Peer& peer, const std::string& group) {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  const auto gid = GroupId(group);
  return gid && (peer.gid == *gid || UserInGroup(peer.uid, *gid));
}

}  // namespace tier::control
