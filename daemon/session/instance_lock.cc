#include "daemon/session/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "daemon/storage/os_error.h"
#include "proto/socket_places.h"

namespace tier::session {
namespace {

constexpr mode_t kLockMode = 0600;

// What is wrong with the directory stays so until a person sets another one, or repairs this one: no I/O error.
std::unexpected<Error> FailPlace(std::string_view doing, const std::string& path, int error) {
  return Fail(storage::CodeOfErrno(error),
              fmt::format("cannot {} {}: {}; set daemon.socket_directory to one that may be written", doing, path,
                          std::strerror(error)));
}

Status MakeDirectory(const std::string& directory, bool only_owner) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  const mode_t mode = only_owner ? 0700 : 0755;
  // The mode is set by name: root's umask may be 077, which would close a directory that is for every user.
  if (::mkdir(directory.c_str(), mode) == 0 && ::chmod(directory.c_str(), mode) == 0) return {};
  if (errno == EEXIST) return {};
  return FailPlace("make the socket directory", directory, error ? error.value() : errno);
}

// The process that last wrote its id there and did not remove it; 0: none.
long WriterOf(int file) {
  std::array<char, 32> text{};
  const ssize_t length = ::pread(file, text.data(), text.size(), 0);
  long pid = 0;
  if (length <= 0 || std::from_chars(text.data(), text.data() + length, pid).ec != std::errc()) return 0;
  return pid;
}

// Who holds the flock, as the kernel lists it ("1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF"); 0: it cannot say
// (another pid namespace).
long HolderOf(int file) {
  struct stat about{};
  if (::fstat(file, &about) != 0) return 0;
  std::ifstream locks("/proc/locks");
  const std::string inode = fmt::format(":{}", about.st_ino);
  for (std::string line; std::getline(locks, line);) {
    std::istringstream fields(line);
    std::string number, kind, advisory, access, place;
    long pid = 0;
    fields >> number >> kind >> advisory >> access >> pid >> place;
    if (fields && kind == "FLOCK" && place.ends_with(inode)) return std::max(pid, 0L);
  }
  return 0;
}

std::unexpected<Error> FailHeld(const std::string& directory, const std::string& path, int file) {
  const long writer = WriterOf(file);
  const long holder = HolderOf(file);
  const bool ended = writer == 0 || (::kill(static_cast<pid_t>(writer), 0) != 0 && errno == ESRCH);
  if (!ended && (holder == 0 || holder == writer)) {
    return Fail(Code::kAlreadyExists,
                fmt::format("a tierd runs with socket directory {} already (process {}): stop it, "
                            "or choose another daemon.socket_directory",
                            directory, writer));
  }
  return Fail(Code::kAlreadyExists,
              fmt::format("{} is locked by {}, and {}: end the one that holds it, or choose another "
                          "daemon.socket_directory",
                          path, holder == 0 ? std::string("a process unknown here") : fmt::format("process {}", holder),
                          writer == 0 ? std::string("it has not written its number there (yet)")
                                      : fmt::format("the tierd that wrote its number there (process {}) {}", writer,
                                                    ended ? "has ended" : "is another")));
}

}  // namespace

Result<InstanceLock> InstanceLock::Take(const std::string& directory, bool only_owner) {
  if (auto made = MakeDirectory(directory, only_owner); !made) return std::unexpected(std::move(made.error()));
  // Another user may have made it first, to have clients of this one come to a daemon of its own.
  if (auto place = proto::CheckSocketPlace(directory + "/tierd.lock", ::geteuid()); !place)
    return Fail(place.error().code, place.error().message + ", or set daemon.socket_directory");
  const std::string path = directory + "/tierd.lock";
  proto::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode));
  if (!file) return FailPlace("open", path, errno);
  // Who can open it can lock it, for reading too: one that was made with wider rights loses them.
  if (::fchmod(file.get(), kLockMode) != 0) {
    return Fail(Code::kDenied, fmt::format("{} belongs to somebody else: {}", path, std::strerror(errno)));
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return FailHeld(directory, path, file.get());
    return Fail(Code::kIoError, fmt::format("cannot lock {}: {}", path, std::strerror(errno)));
  }
  const bool predecessor_crashed = WriterOf(file.get()) != 0;
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Fail(Code::kIoError, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  return InstanceLock(std::move(file), predecessor_crashed);
}

std::string ClosedToOthers(const std::string& directory) {
  struct stat about{};
  if (::stat(directory.c_str(), &about) != 0 || (about.st_mode & S_IXOTH) != 0) return {};
  return fmt::format("only some users reach this tierd: the mode of {} is {:o}; to let every user in: chmod 755 {}",
                     directory, about.st_mode & 07777, directory);
}

void InstanceLock::MarkEnded() { (void)!::ftruncate(file_.get(), 0); }  // Best effort: at worst the next one waits.

}  // namespace tier::session
