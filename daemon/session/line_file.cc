// See line_file.h.
#include "daemon/session/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"
#include "proto/mapping.h"

namespace tier::session {
namespace {

constexpr mode_t kFileMode = 0600;

uint32_t ChecksumOf(std::string_view text) { return storage::Crc32c(std::as_bytes(std::span(text))); }

std::unexpected<Error> Failure(const std::string& path, const char* what, int error) {
  TIER_CHECK(error != 0, "nothing failed with {}", path);
  const Code code = error == EACCES || error == EPERM || error == EROFS ? Code::kDenied
                    : error == ENOSPC || error == EDQUOT                ? Code::kNoSpace
                                                                        : Code::kIoError;
  return Fail(code, fmt::format("cannot {} {}: {}", what, path, std::strerror(error)));
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failure(path, "write", errno);
    text.remove_prefix(static_cast<size_t>(count));
  }
  return ::fsync(fd) == 0 ? Status() : Status(Failure(path, "write", errno));
}

// The new name is durable once the directory is.
Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
  const proto::FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return Failure(directory, "sync", errno);
  return {};
}

}  // namespace

std::vector<std::string_view> SplitWords(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string FormatLines(const LineFormat& format, const std::string& lines) {
  TIER_CHECK(lines.empty() || lines.ends_with('\n'), "the last {} has no end", format.noun);
  std::string text = fmt::format("{}\n{}", format.first_line, lines);
  text += fmt::format("crc32c {:08x}\n", ChecksumOf(text));
  TIER_CHECK(text.size() <= format.bytes_max, "{} takes {} bytes", format.first_line, text.size());
  return text;
}

Status ParseLines(const LineFormat& format, std::string_view text, const std::function<bool(std::string_view)>& parse) {
  TIER_CHECK(format.first_line.find(' ') != std::string_view::npos, "'{}' has no version", format.first_line);
  const std::string_view program = format.first_line.substr(0, format.first_line.find(' ') + 1);
  if (text.size() > format.bytes_max)
    return Fail(Code::kCorrupt, fmt::format("it has more than {} bytes", format.bytes_max));
  if (!text.starts_with(format.first_line) || !text.substr(format.first_line.size()).starts_with('\n')) {
    if (text.starts_with(program)) return Fail(Code::kVersion, "line 1: the format is that of another tierd");
    return Fail(Code::kCorrupt, fmt::format("line 1 is not \"{}\"", format.first_line));
  }
  size_t at = format.first_line.size() + 1;
  for (size_t number = 2; at < text.size(); ++number) {
    const size_t end = text.find('\n', at);
    const std::string_view line = text.substr(at, end - at);
    if (end == std::string_view::npos) return Fail(Code::kCorrupt, fmt::format("line {} has no end", number));
    if (line.starts_with("crc32c ")) {
      if (line.substr(7) != fmt::format("{:08x}", ChecksumOf(text.substr(0, at))))
        return Fail(Code::kCorrupt, fmt::format("line {}: the checksum is not that of the lines before it", number));
      if (end + 1 == text.size()) return {};
      return Fail(Code::kCorrupt, fmt::format("line {} is behind the end", number + 1));
    }
    if (!parse(line)) return Fail(Code::kCorrupt, fmt::format("line {} is no {}", number, format.noun));
    at = end + 1;
  }
  return Fail(Code::kCorrupt, "it was cut short: the line with the checksum is missing");
}

Result<std::optional<std::string>> ReadLineFile(const LineFormat& format, const std::string& path) {
  const proto::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::optional<std::string>();
  if (!fd) return Failure(path, "read", errno);
  std::string text(format.bytes_max + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failure(path, "read", errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  text.resize(size);
  return std::optional(std::move(text));
}

Status ReplaceLineFile(const std::string& path, std::string_view text) {
  TIER_CHECK(path.starts_with('/'), "a file of the data directory is '{}'", path);
  const std::string next = path + ".new";
  const proto::FileDescriptor fd(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!fd) return Failure(next, "write", errno);
  if (Status written = WriteAll(fd.get(), text, next); !written) {
    (void)::unlink(next.c_str());  // Best effort: the next write replaces it.
    return written;
  }
  if (::rename(next.c_str(), path.c_str()) != 0) return Failure(path, "replace", errno);
  return SyncDirectoryOf(path);
}

}  // namespace tier::session
