// OwnerTable: the owners of sockets, and the number of each. An owner is a user of the daemon alone: who connects
// through its socket is the owner, whatever the kernel says of its uid (a pod's root is uid 0 to the kernel).
//
// Numbers are uids that no user of a system has, from kOwnerUidFirst on. They stand in a file of the data directory
// (docs/formats.md), so a name has its number for as long as it is in the table, also while its socket is closed. A new
// owner gets the lowest number that was not given before, so what a removed owner left behind belongs to no other. A
// file that was lost, or is an older copy, cannot say which numbers were given: Exclude says which ones something
// names. Once the last number was given, those that no owner has and that are not excluded are given again.
//
// Thread-safe. Open, Close and Remove wait for a disk, the others never do.
// Invariants: kOwnerUidFirst <= uid of an owner < next; no two owners have one uid; none that is given is excluded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/session/user_directory.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::session {

inline constexpr uint32_t kOwnerUidFirst = 0xF0000000;
inline constexpr uint32_t kOwnerUidLast = 0xFFFFFFFD;  // The two above it have other meanings.
inline constexpr size_t kOwnersMax = 4096;
inline constexpr size_t kOwnerNameSizeMax = 63;  // Of a name in Kubernetes; and the path of a socket stays short.
inline constexpr size_t kOwnerFileBytesMax = 1 << 20;

// A user of the system has no such uid; a process that does could pass as an owner.
constexpr bool IsOwnerUid(uint32_t uid) { return uid >= kOwnerUidFirst && uid <= kOwnerUidLast; }
// Why one that comes by another socket than an owner's is not served.
Error OwnerUidRefusal(uint32_t uid);
// Why one that comes by the socket of an owner who is no more is not served.
Error NoOwnerRefusal(uint32_t uid);
// INVALID: it is empty, too long, a number, or has other characters than letters, digits, '-', '_' and '.'; the first
// is a letter or a digit. So it is never a path.
Status CheckOwnerName(std::string_view name);

struct OwnerEntry {
  uint32_t uid = 0;
  bool open = false;  // Its socket is there, and is there again after a restart.
  friend bool operator==(const OwnerEntry&, const OwnerEntry&) = default;
};

struct OwnerRecords {
  uint32_t next = kOwnerUidFirst;  // Numbers from here on were never given.
  std::map<std::string, OwnerEntry, std::less<>> owners;
  friend bool operator==(const OwnerRecords&, const OwnerRecords&) = default;
};

std::string FormatOwners(const OwnerRecords& records);
// CORRUPT names the line and what is wrong with it; VERSION: a later tierd wrote it.
Result<OwnerRecords> ParseOwners(std::string_view text);
// Where the file of a daemon stands that keeps something.
inline std::string OwnersPath(const std::string& data_directory) { return data_directory + "/owners"; }
// No owners where there is no file. Errors name the path and what to do.
Result<OwnerRecords> LoadOwners(const std::string& path);

class OwnerTable {
 public:
  // `file`: empty: none can be opened. `stored`: what it has.
  OwnerTable(std::string file, OwnerRecords stored) : file_(std::move(file)), records_(std::move(stored)) {}

  // The owner's number: that which it has, else a new one. It is durable when this returns. INVALID: CheckOwnerName;
  // DENIED: the daemon keeps nothing; NO_MEMORY: there are kOwnersMax, or no number is left; and ReplaceLineFile's.
  Result<uint32_t> Open(const std::string& name) TIER_EXCLUDES(mutex_, writing_);
  // What Open would refuse this new name for, before any file is written.
  Status MayOpen(const std::string& name) const TIER_EXCLUDES(mutex_);
  // Its socket is not opened at the next start. NOT_FOUND: no owner has this name.
  Status Close(const std::string& name) TIER_EXCLUDES(mutex_, writing_);
  // The name is free, its number is not.
  Status Remove(const std::string& name) TIER_EXCLUDES(mutex_, writing_);
  // Something names this number: no new owner gets it until the daemon is started again.
  void Exclude(uint32_t uid) TIER_EXCLUDES(mutex_);

  // While its name is being given up this number is no owner's: what is opened for it would belong to no one.
  void Suspend(uint32_t uid) TIER_EXCLUDES(mutex_);
  void EndSuspension(uint32_t uid) TIER_EXCLUDES(mutex_);
  // An owner has this number, and is not suspended.
  bool IsOwner(uint32_t uid) const TIER_EXCLUDES(mutex_);
  std::optional<uint32_t> UidOf(std::string_view name) const TIER_EXCLUDES(mutex_);
  std::string NameOf(uint32_t uid) const TIER_EXCLUDES(mutex_);  // Empty: no owner has this number.
  std::vector<std::pair<std::string, OwnerEntry>> List() const TIER_EXCLUDES(mutex_);  // By name.

 private:
  // The number that this owner has, or would get.
  Result<uint32_t> UidFor(const std::string& name) const TIER_EXCLUDES(mutex_);
  std::optional<uint32_t> FreeNumber() const TIER_REQUIRES(mutex_);  // None: no number is left.
  OwnerRecords Records() const TIER_EXCLUDES(mutex_);
  Status Replace(const OwnerRecords& next) TIER_REQUIRES(writing_) TIER_EXCLUDES(mutex_);

  const std::string file_;
  Mutex writing_;  // One change at a time; taken before mutex_, and held while the file is written.
  mutable Mutex mutex_;
  OwnerRecords records_ TIER_GUARDED_BY(mutex_);
  std::set<uint32_t> suspended_ TIER_GUARDED_BY(mutex_);
  std::set<uint32_t> excluded_ TIER_GUARDED_BY(mutex_);
};

// The users of the system, and the owners beside them: a quota may name either. Of an owner and a user with one name a
// name means the owner.
class OwnerDirectory final : public UserDirectory {
 public:
  OwnerDirectory(const OwnerTable& owners, UserDirectory& system) : owners_(owners), system_(system) {}
  UserEntry FindUser(uint32_t uid) override;
  Result<uint32_t> FindUserId(const std::string& name) override;
  Result<uint32_t> FindGroupId(const std::string& name) override { return system_.FindGroupId(name); }

 private:
  const OwnerTable& owners_;
  UserDirectory& system_;
};

}  // namespace tier::session
