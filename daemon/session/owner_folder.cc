// See owner_folder.h.
#include "daemon/session/owner_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "proto/mapping.h"

namespace tier::session {
namespace {

constexpr const char* kGonePrefix = ".gone-";  // The name of an owner begins with a letter or a digit.
constexpr int kGoneOfOneLabelMax = 1000;

std::unexpected<Error> Failed(const char* what, const std::string& path) {
  return Fail(errno == EACCES || errno == EPERM || errno == EROFS ? Code::kDenied : Code::kIoError,
              fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

proto::FileDescriptor OpenDirectory(const std::string& path) {
  return proto::FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// This user's own, and with this mode: the mask of new files has closed it too far.
Status TakeOver(const std::string& path, unsigned mode) {
  const proto::FileDescriptor fd = OpenDirectory(path);
  struct stat about{};
  if (!fd || ::fstat(fd.get(), &about) != 0) return Failed("open the directory", path);
  if (about.st_uid != ::geteuid()) {
    return Fail(Code::kDenied, fmt::format("{} belongs to uid {}, and tierd runs as uid {}: remove it", path,
                                           about.st_uid, ::geteuid()));
  }
  return ::fchmod(fd.get(), mode) == 0 ? Status() : Status(Failed("set the mode of", path));
}

Status MakeDirectory(const std::string& path, unsigned mode) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return Failed("make the directory", path);
  return TakeOver(path, mode);
}

std::string PathOf(const std::string& directory, const std::string& owner) {
  TIER_CHECK(!owner.empty() && owner.front() != '.' && owner.find('/') == std::string::npos, "a folder '{}'", owner);
  return directory + "/" + owner;
}

}  // namespace

std::optional<FileId> FileIdOf(const std::string& path) {
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0) return std::nullopt;
  return FileId{.device = about.st_dev, .inode = about.st_ino};
}

Status MakeOwnerFolder(const std::string& directory, const std::string& owner) {
  if (Status made = MakeDirectory(directory, kOwnersDirectoryMode); !made) return made;
  return MakeDirectory(PathOf(directory, owner), kOwnerFolderMode);
}

Status MakeNewOwnerFolder(const std::string& directory, const std::string& owner) {
  const std::string path = PathOf(directory, owner);
  if (Status made = MakeDirectory(directory, kOwnersDirectoryMode); !made) return made;
  if (Status moved = MoveOwnerFolderAside(directory, owner, owner); !moved) return moved;
  // No EEXIST: a folder that this call did not make may be mounted in a pod.
  if (::mkdir(path.c_str(), kOwnerFolderMode) != 0) return Failed("make the directory", path);
  return TakeOver(path, kOwnerFolderMode);
}

Status MoveOwnerFolderAside(const std::string& directory, const std::string& owner, const std::string& label) {
  const std::string path = PathOf(directory, owner);
  if (!FileIdOf(path)) return {};
  TIER_CHECK(!label.empty() && label.find('/') == std::string::npos, "a folder '{}'", label);
  const std::string first = directory + "/" + kGonePrefix + label;
  std::string gone = first;
  for (int i = 2; FileIdOf(gone) && i <= kGoneOfOneLabelMax; ++i) gone = fmt::format("{}-{}", first, i);
  if (FileIdOf(gone)) {
    return Fail(Code::kNoSpace, fmt::format("cannot move {} aside: {} folders of that name are there, {} among them: "
                                            "remove those that no pod has mounted",
                                            path, kGoneOfOneLabelMax, gone));
  }
  if (::rename(path.c_str(), gone.c_str()) != 0) return Failed("move aside", path);
  // By the folder itself: it may be a link by now, and what that names is another's.
  if (const proto::FileDescriptor fd = OpenDirectory(gone)) {
    for (const char* socket : {kOwnerDataSocket, kOwnerControlSocket}) (void)::unlinkat(fd.get(), socket, 0);
  }
  (void)::rmdir(gone.c_str());  // Best effort: what a pod has put there stays.
  return {};
}

void RemoveEmptyFolders(const std::string& directory) {
  std::error_code failed;
  for (auto entry = std::filesystem::directory_iterator(directory, failed);
       !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    if (entry->path().filename().string().starts_with(kGonePrefix)) (void)::rmdir(entry->path().c_str());
  }
}

}  // namespace tier::session
