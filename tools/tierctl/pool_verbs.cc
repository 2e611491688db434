#include "tools/tierctl/pool_verbs.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "tools/tierctl/ask.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/output.h"
#include "tools/tierctl/pool_text.h"

namespace tier::tierctl {
namespace {

constexpr PoolGrid kSvgGrid{.columns = 64, .rows_max = 64};

}  // namespace

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
    const PoolTextOptions text{
        .width = OutputWidth(), .colour = options.output.colour, .unicode = options.output.unicode};
    const PoolPicture picture = MakePoolPicture(answer, {.columns = PoolColumnsFor(text.width)});
    fmt::print("{}", RenderPoolText(picture, text));
    return kExitOk;
  };
  return Ask<v1::GetPoolMapResponse>(options, &v1::ControlService::Stub::GetPoolMap, v1::GetPoolMapRequest(), show);
}

}  // namespace tier::tierctl
