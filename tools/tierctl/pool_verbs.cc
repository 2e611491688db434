#include "tools/tierctl/pool_verbs.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "tools/tierctl/ask.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/pool_text.h"

namespace tier::tierctl {
namespace {

constexpr size_t kWidthDefault = 80;
constexpr size_t kWidthMax = 1000;
constexpr PoolGrid kSvgGrid{.columns = 64, .rows_max = 64};

}  // namespace

size_t OutputWidth() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  if (columns == nullptr) return kWidthDefault;
  size_t width = 0;
  const char* const end = columns + std::strlen(columns);
  const auto [rest, error] = std::from_chars(columns, end, width);
  return error == std::errc() && rest == end && width != 0 ? std::min(width, kWidthMax) : kWidthDefault;
}

bool UnicodeWanted() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale(value);
    for (const char* word : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (locale.find(word) != std::string_view::npos) return true;
    }
    return false;
  }
  return false;
}

Status WriteTextFile(const std::string& path, const std::string& text) {
  const auto failed = [&] {
    return Fail(Code::kIoError, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  };
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return failed();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) errno = error;
  if (!written || !closed) return failed();
  return {};
}

int ShowPoolMap(const DaemonOptions& options, const std::string& svg) {
  const auto show = [&](const v1::GetPoolMapResponse& answer) {
    if (!svg.empty()) {
      if (const Status written = WriteTextFile(svg, RenderPoolSvg(MakePoolPicture(answer, kSvgGrid))); !written)
        return Explain(written.error());
    }
    if (options.output.json) {
      PrintJson(ToJson(answer));
      return kExitOk;
    }
    const PoolTextOptions text{.width = OutputWidth(), .colour = options.output.colour, .unicode = UnicodeWanted()};
    const PoolPicture picture = MakePoolPicture(answer, {.columns = PoolColumnsFor(text.width)});
    fmt::print("{}", RenderPoolText(picture, text));
    return kExitOk;
  };
  return Ask<v1::GetPoolMapResponse>(options, &v1::Control::Stub::GetPoolMap, v1::GetPoolMapRequest(), show);
}

}  // namespace tier::tierctl
