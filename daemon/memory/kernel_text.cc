// See kernel_text.h.
#include "daemon/memory/kernel_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <system_error>

#include "proto/mapping.h"

namespace tier::memory {

std::optional<std::string> ReadText(const std::string& path) {
  const proto::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string text;
  constexpr size_t kStep = 4096;
  for (size_t used = 0;;) {
    text.resize(used + kStep);
    const ssize_t got = ::read(file.get(), text.data() + used, kStep);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    used += static_cast<size_t>(got);
    text.resize(used);
    if (got == 0) return text;
    if (used > kKernelTextMax) return std::nullopt;
  }
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<uint64_t> Field(std::string_view text, std::string_view key) {
  for (size_t line = 0; line < text.size();) {
    const std::string_view rest = text.substr(line);
    if (rest.starts_with(key)) return ParseNumber(rest.substr(key.size()));
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    line += end + 1;
  }
  return std::nullopt;
}

}  // namespace tier::memory
