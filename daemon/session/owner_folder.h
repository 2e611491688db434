// The folders of the owners' sockets: DIRECTORY/NAME. Each is what a pod has mounted: who has an old one mounted must
// not find the sockets of another owner in it. So the folder of a new owner is one that was just made, and that of an
// owner whose name is given up is moved to DIRECTORY/.gone-UID.
//
// Any thread; the caller sees to it that one call at a time is made for a directory, to which no other user may write.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "proto/result.h"

namespace tier::session {

inline constexpr unsigned kOwnersDirectoryMode = 0700;
inline constexpr unsigned kOwnerFolderMode = 0755;
inline constexpr const char* kOwnerDataSocket = "tierd.sock";
inline constexpr const char* kOwnerControlSocket = "control.sock";

// Which file stands at a path. A number is not used again while a socket is bound to it.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};
// None: nothing stands there. A link is not followed.
std::optional<FileId> FileIdOf(const std::string& path);

// The folder of an owner who has a name already: made where it is not there. DENIED, INVALID or IO_ERROR name the path;
// what another user has put there in its place, a link among it, is refused.
Status MakeOwnerFolder(const std::string& directory, const std::string& owner);
// The folder of a new owner. What stands there is of an earlier one of this name, and is moved aside.
Status MakeNewOwnerFolder(const std::string& directory, const std::string& owner);
// Moves the folder aside, with what a pod has put into it and without sockets. Does nothing where there is none.
Status MoveOwnerFolderAside(const std::string& directory, const std::string& owner, const std::string& label);
// Removes folders that were moved aside and are empty by now.
void RemoveEmptyFolders(const std::string& directory);

}  // namespace tier::session
