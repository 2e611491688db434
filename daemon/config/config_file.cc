// See config_file.h.
#include "daemon/config/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "proto/mapping.h"

namespace tier::config {
namespace {

std::unexpected<Error> Unreadable(const std::string& path, int error) {
  TIER_CHECK(error != 0, "nothing failed with {}", path);
  return Fail(error == EACCES ? Code::kDenied : Code::kNotFound,
              fmt::format("cannot read the configuration {}: {}", path, std::strerror(error)));
}

std::unexpected<Error> Unsuitable(const std::string& path, const std::string& what) {
  return Fail(Code::kInvalid, fmt::format("the configuration {} {}: name a regular file of at most {}", path, what,
                                          base::FormatBytes(kConfigFileBytesMax)));
}

}  // namespace

Result<std::string> ReadConfigFile(const std::string& path) {
  // Without O_NONBLOCK a FIFO holds up the caller until a process writes to it.
  const proto::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return Unreadable(path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return Unreadable(path, errno);
  if (!S_ISREG(status.st_mode)) return Unsuitable(path, "is no regular file");
  // Not by its size alone: it may grow, and files of /proc have none.
  std::string text(kConfigFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Unreadable(path, errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > kConfigFileBytesMax) return Unsuitable(path, "is too large");
  text.resize(size);
  return text;
}

}  // namespace tier::config
