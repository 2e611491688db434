// OwnerSockets: the sockets of owners (OwnerTable), each two in a folder of its own: DIRECTORY/NAME/tierd.sock for
// data, and control.sock beside it with the rights of an ordinary user. The folder is what a pod is given.
//
// DIRECTORY is closed to every other user of the machine: who has the folder mounted got it from an administrator. So
// the folder and its sockets are open to every uid. The folder stays while its sockets are closed, and when the daemon
// ends: what is mounted in a pod is this folder. A later owner of the same name has another one (owner_folder.h).
//
// Thread-safe; Open, Close and Purge wait for a disk. Invariant: a socket is there for each owner that is open, but
// where Reopen said why not.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/owner_folder.h"
#include "daemon/session/owner_table.h"
#include "proto/mapping.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::session {

inline constexpr unsigned kOwnerDataSocketMode = 0666;

// Who listens. Called from any thread.
struct OwnerSocketCalls {
  std::function<void(uint32_t uid, proto::FileDescriptor listening)> listen;
  std::function<void(uint32_t uid)> stop;
  std::function<Status(uint32_t uid, const std::string& path)> listen_control;
  std::function<void(uint32_t uid)> stop_control;
  std::function<void(uint32_t uid)> end_control;  // And ends its connections. REQUIRES: stop_control was called.
};

// A socket on which no one connects any more.
struct ClosedSocket {
  uint32_t uid = 0;  // The owner's.
  Status rest;       // An error: what was to follow was not done. The socket is closed all the same.
};

class OwnerSockets {
 public:
  // REQUIRES: the caller has the lock of the daemon's socket directory, in which `directory` lies.
  OwnerSockets(std::string directory, OwnerTable& table, OwnerSocketCalls calls)
      : directory_(std::move(directory)), table_(table), calls_(std::move(calls)) {}
  ~OwnerSockets();  // The sockets' files go, the folders stay.
  OwnerSockets(const OwnerSockets&) = delete;
  OwnerSockets& operator=(const OwnerSockets&) = delete;

  // At the start, once the calls can be made: the sockets that were open. What could not be opened, in a sentence each.
  std::vector<std::string> Reopen() TIER_EXCLUDES(mutex_);
  // Does nothing where it is open. Refusals: those of OwnerTable::Open; TIMEOUT before Reopen; DENIED, INVALID or
  // IO_ERROR name the path. Then the socket is closed.
  Result<OwnerSocket> Open(const std::string& owner) TIER_EXCLUDES(mutex_);
  // Nothing connects when it returns, and what is connected goes on. NOT_FOUND: no such owner. The rest is to write it
  // down for the next start.
  Result<ClosedSocket> Close(const std::string& owner) TIER_EXCLUDES(mutex_);
  // Close, and the name is given up with its folder, where `check` allows it: it looks for what the owner has, and for
  // which nothing is opened from before that look until this returns. An error of the rest: the name stays; once the
  // look was taken, the owner's control connections have ended.
  Result<ClosedSocket> Purge(const std::string& owner, const std::function<Status(uint32_t uid)>& check)
      TIER_EXCLUDES(mutex_);
  bool Knows(const std::string& owner) const { return table_.UidOf(owner).has_value(); }
  std::vector<OwnerSocket> List() const TIER_EXCLUDES(mutex_);  // By name.

 private:
  struct Listening {
    proto::FileDescriptor data;  // As given to `listen`.
    std::optional<FileId> data_file;
    std::optional<FileId> control_file;
  };
  std::string FolderOf(const std::string& owner) const { return directory_ + "/" + owner; }
  Status Listen(const std::string& owner, uint32_t uid) TIER_REQUIRES(mutex_);
  bool IsThere(const std::string& owner, const Listening& listening) const;
  Result<uint32_t> TakeName(const std::string& owner) TIER_REQUIRES(mutex_);
  Status GiveUp(const std::string& owner, uint32_t uid) TIER_REQUIRES(mutex_);
  Result<ClosedSocket> CloseNow(const std::string& owner) TIER_REQUIRES(mutex_);
  void StopListening(const std::string& owner, uint32_t uid) TIER_REQUIRES(mutex_);

  const std::string directory_;
  OwnerTable& table_;
  const OwnerSocketCalls calls_;
  mutable Mutex mutex_;                                         // One change at a time.
  std::map<uint32_t, Listening> open_ TIER_GUARDED_BY(mutex_);  // By uid.
  bool started_ TIER_GUARDED_BY(mutex_) = false;
};

}  // namespace tier::session
