#include "tools/tierctl/stall_verbs.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/tierctl/ask.h"
#include "tools/tierctl/message_json.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

template <typename Duration>
double SecondsOf(const Duration& duration) {
  return static_cast<double>(duration.seconds()) + 1e-9 * static_cast<double>(duration.nanos());
}

// "1.52 s", "12.3 ms": three significant digits.
std::string TimeText(double seconds) {
  const bool whole = seconds >= 1;
  const double shown = whole ? seconds : 1000 * seconds;
  return fmt::format("{:.{}f} {}", shown, shown < 10 ? 2 : shown < 100 ? 1 : 0, whole ? "s" : "ms");
}

std::string BeganText(const v1::Stall& stall) {
  return fmt::format("{}.{:03}", LocalTimeText(stall.begin_time().seconds()), stall.begin_time().nanos() / 1'000'000);
}

// Its key, or its number; and how many there are beside it.
std::string TensorText(const v1::Stall& stall) {
  if (stall.tensor_count() == 0 && stall.id() == 0) return "all";
  const std::string name = stall.key().empty() ? fmt::format("{:#x}", stall.id()) : stall.key();
  return stall.tensor_count() > 1 ? fmt::format("{} and {} more", name, stall.tensor_count() - 1) : name;
}

// "ssd_read 80 %, ram 20 %".
std::string WhyText(const v1::Stall& stall) {
  const double whole = SecondsOf(stall.duration());
  std::string text;
  for (const v1::StallPart& part : stall.parts()) {
    const double share = whole > 0 ? 100 * SecondsOf(part.duration()) / whole : 100;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", WordOf(part.cause()), share);
  }
  return text.empty() ? "-" : text;
}

std::string EndText(const v1::Stall& stall) { return stall.waiting() ? "waits" : stall.outcome(); }

}  // namespace

void SortLongestFirst(v1::ListStallsResponse* answer) {
  std::vector<v1::Stall> stalls(answer->stalls().begin(), answer->stalls().end());
  std::ranges::stable_sort(stalls, std::ranges::greater{}, [](const v1::Stall& s) { return SecondsOf(s.duration()); });
  answer->clear_stalls();
  for (v1::Stall& stall : stalls) *answer->add_stalls() = std::move(stall);
}

std::string RenderStalls(const v1::ListStallsResponse& answer, const OutputOptions& output) {
  const auto& stalls = answer.stalls();
  const std::string limit = TimeText(SecondsOf(answer.threshold()));
  if (stalls.empty()) return fmt::format("no request waited for {} or longer\n", limit);
  const auto step = [](const v1::Stall& s) { return s.step() == 0 ? std::string("-") : std::to_string(s.step()); };
  std::string text = RenderTable(
      {MakeColumn("BEGAN", stalls, true, BeganText),
       MakeColumn("WAITED", stalls, true, [](const v1::Stall& s) { return TimeText(SecondsOf(s.duration())); }),
       MakeColumn("REQUEST", stalls, false, [](const v1::Stall& s) { return s.operation(); }),
       MakeColumn("TENSOR", stalls, false, TensorText), MakeColumn("STEP", stalls, true, step),
       MakeColumn("END", stalls, false, EndText), MakeColumn("FOR", stalls, false, WhyText)},
      output);
  const auto ended = std::count_if(stalls.begin(), stalls.end(), [](const v1::Stall& s) { return !s.waiting(); });
  const uint64_t gone = answer.ended_total() - std::min(answer.ended_total(), static_cast<uint64_t>(ended));
  if (gone != 0) text += fmt::format("and {} earlier ones of {} or longer, which are not kept\n", gone, limit);
  return text;
}

int ShowStalls(const DaemonOptions& options, const std::string& job, bool longest) {
  v1::ListStallsRequest request;
  request.set_job(job);
  return Ask<v1::ListStallsResponse>(options, &Stub::ListStalls, request, [&](v1::ListStallsResponse& answer) {
    if (longest) SortLongestFirst(&answer);
    options.output.json ? PrintJson(ToJson(answer)) : fmt::print("{}", RenderStalls(answer, options.output));
    return kExitOk;
  });
}

}  // namespace tier::tierctl
