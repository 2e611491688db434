// See device_lock.h.
#include "daemon/storage/device_lock.h"

#include <cerrno>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "daemon/storage/os_error.h"

namespace tier::storage {
namespace {

// " (process 4711)", or nothing. A line reads "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF".
std::string HolderOf(int fd) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return "";
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(about.st_dev), minor(about.st_dev), about.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream fields(line);
    std::string number, kind, advisory, mode, pid, place;
    fields >> number >> kind >> advisory >> mode >> pid >> place;
    if (kind == "FLOCK" && place == file) return " (process " + pid + ")";
  }
  return "";
}

}  // namespace

Status LockDevice(int fd, const std::string& path) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return FailErrno(errno, "locking " + path);
  return Fail(
      Code::kAlreadyExists,
      fmt::format("{} is in use by another daemon{}: stop that one, or name another place in ssd.devices (for the file "
                  "of the SSD tier and the index in daemon.data_directory)",
                  path, HolderOf(fd)));
}

void UnlockDevice(int fd) {
  (void)::flock(fd, LOCK_UN);  // Closing the last descriptor would do it too, only later.
}

}  // namespace tier::storage
