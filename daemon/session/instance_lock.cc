#include "daemon/session/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace tier::session {
namespace {

Status MakeDirectory(const std::string& directory, bool only_owner) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (::mkdir(directory.c_str(), only_owner ? 0700 : 0755) == 0 || errno == EEXIST) return {};
  return Fail(errno == EACCES ? Code::kDenied : Code::kIoError,
              fmt::format("cannot make the socket directory {}: {}; set socket_directory to one that may be written",
                          directory, std::strerror(errno)));
}

// Who wrote its number there last; 0: nobody who did not also take it away.
long HolderOf(int file) {
  std::array<char, 32> text{};
  const ssize_t length = ::pread(file, text.data(), text.size(), 0);
  long pid = 0;
  if (length <= 0 || std::from_chars(text.data(), text.data() + length, pid).ec != std::errc()) return 0;
  return pid;
}

}  // namespace

Result<InstanceLock> InstanceLock::Take(const std::string& directory, bool only_owner) {
  if (auto made = MakeDirectory(directory, only_owner); !made) return std::unexpected(std::move(made.error()));
  const std::string path = directory + "/tierd.lock";
  proto::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) {
    return Fail(
        errno == EACCES ? Code::kDenied : Code::kIoError,
        fmt::format("cannot open {}: {}; set socket_directory to one that may be written", path, std::strerror(errno)));
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      return Fail(Code::kIoError, fmt::format("cannot lock {}: {}", path, std::strerror(errno)));
    return Fail(Code::kAlreadyExists,
                fmt::format("a tierd runs with socket directory {} already (process {}): stop it, or "
                            "choose another socket_directory",
                            directory, HolderOf(file.get())));
  }
  const bool predecessor_crashed = HolderOf(file.get()) != 0;
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Fail(Code::kIoError, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  return InstanceLock(std::move(file), predecessor_crashed);
}

void InstanceLock::MarkEnded() { (void)!::ftruncate(file_.get(), 0); }  // Best effort: at worst the next one waits.

}  // namespace tier::session
