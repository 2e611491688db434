// Files of the data directory that hold a few lines of text, which an administrator can read (docs/formats.md):
//
//   tierd-quotas 1        the program's word for the file, and the version of its format
//   user 1001 ram=4096    lines of the file's own
//   crc32c 1f2e3d4c       of all lines before this one
//
// Such a file is replaced as a whole: after a crash there is the old one or the new one. Any thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/result.h"

namespace tier::session {

struct LineFormat {
  std::string_view first_line;  // "tierd-quotas 1"
  std::string_view noun;        // What a line of it is: "quota".
  size_t bytes_max = 0;
};

// The whole text: the first line, `lines`, and the checksum. REQUIRES: it fits.
std::string FormatLines(const LineFormat& format, const std::string& lines);
// Calls `parse` with each line between the first and the checksum. CORRUPT names the line and what is wrong with it;
// VERSION: a later tierd wrote it.
Status ParseLines(const LineFormat& format, std::string_view text, const std::function<bool(std::string_view)>& parse);
// The text as it stands at `path`, at most one byte more than the format allows; nothing where there is no file.
Result<std::optional<std::string>> ReadLineFile(const LineFormat& format, const std::string& path);
// Durable when it returns. An error: what stood there stands there still. NO_SPACE, DENIED or IO_ERROR.
Status ReplaceLineFile(const std::string& path, std::string_view text);

std::vector<std::string_view> SplitWords(std::string_view line);
// Nothing but the digits of one number.
template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace tier::session
