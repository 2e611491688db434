#include "tools/tierctl/event_verbs.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/config/quantity.h"
#include "libclient/control/watch.h"
#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/socket_verbs.h"

namespace tier::tierctl {
namespace {

using control_client::WatchOptions;
using control_client::WatchStream;

constexpr auto kWaitForEvent = std::chrono::hours(1);      // Of one call; then it is made again.
constexpr auto kReconnectEvery = std::chrono::seconds(1);  // While no daemon is there.
constexpr int kKindWidth = 16;
// Beside time and kind; where there is less room, the message stands below them.
constexpr size_t kMessageWidthMin = 30;
constexpr size_t kNarrowIndent = 2;

// Hands each event on, until the stream ends or one is not taken. How it did: OK behind the recent ones, or that one.
Error ReadStream(const DaemonOptions& options, const WatchOptions& watch,
                 const std::function<bool(const v1::Event&)>& take) {
  const auto channel = Connect(options);
  if (!channel) return channel.error();
  const auto stream = WatchStream::Start(**channel, watch);
  if (!stream) return stream.error();
  for (;;) {
    const auto event = (*stream)->Next(kWaitForEvent);
    if (event) {
      if (!take(*event)) return {Code::kOk, {}};
    } else if (event.error().code != Code::kTimeout) {
      return event.error();
    }
  }
}

// Of the daemon, in seconds of Unix time. None: it does not say.
std::optional<int64_t> StartOf(const DaemonOptions& options) {
  const auto answer =
      AnswerTo<v1::GetStatusResponse>(options, &v1::ControlService::Stub::GetStatus, v1::GetStatusRequest());
  if (!answer) return std::nullopt;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::floor<std::chrono::seconds>(now).count() - answer->status().uptime().seconds();
}

// Of the events that are shown, the second from which on they are; 0: all are. The daemon knows numbers alone.
int64_t FirstSecond(const Since& since) {
  if (!since.ago) return 0;
  const auto begin = std::chrono::system_clock::now() - *since.ago;
  return std::chrono::floor<std::chrono::seconds>(begin.time_since_epoch()).count();
}

int ShowRecent(const DaemonOptions& options, const Since& since) {
  const int64_t first = FirstSecond(since);
  Json events = Json::array();
  uint64_t last = 0;
  bool none = true;
  const Error end = ReadRecent(options, since.sequence, [&](const v1::Event& event) {
    last = event.sequence();
    if (event.event_time().seconds() < first) return;
    none = false;
    options.output.json ? events.push_back(ToJson(event)) : fmt::print("{}\n", EventText(event, options.output));
  });
  if (end.code != Code::kOk) return Explain(end);
  options.output.json ? PrintJson({{"events", events}}) : fmt::print("{}", SinceText(none ? 0 : last, options.output));
  // Not among what is read by programs.
  if (none && !options.output.json) {
    const bool all = since.sequence == 0 && !since.ago;
    fmt::print(stderr, "tierctl: {}\n", NoneText(since, all ? StartOf(options) : std::nullopt));
  }
  return kExitOk;
}

}  // namespace

Error ReadRecent(const DaemonOptions& options, uint64_t since, const std::function<void(const v1::Event&)>& show) {
  return ReadStream(options, {.since = since, .recent_only = true}, [&](const v1::Event& event) {
    show(event);
    return true;
  });
}

std::string EventText(const v1::Event& event, const OutputOptions& output) {
  const std::string time = LocalTimeText(event.event_time().seconds());
  const std::string kind = Printable(event.kind());
  std::string head = fmt::format("{}  {:<{}}  ", time, kind, kKindWidth);
  size_t indent = head.size();
  if (output.width != 0 && output.width < indent + kMessageWidthMin) {
    indent = kNarrowIndent;
    head = fmt::format("{} {}\n{:{}}", time, kind, "", indent);
  }
  std::string job;
  if (event.has_uid()) {
    const std::string name = Printable(fmt::format("{}/{}", UserText(event.uid(), event.owner()), event.job()));
    const size_t room = output.width > indent + 10 ? output.width - indent - 1 : 10;
    job = (output.width == 0 ? name : CutToWidth(name, room, output.unicode ? "…" : "~")) + ": ";
  }
  return head + Wrapped(job + Printable(event.message()), output.width, indent);
}

std::string SinceText(uint64_t last, const OutputOptions& output) {
  if (last == 0) return {};
  return Wrapped(fmt::format("what comes behind these: tierctl events --since {}", last), output.width, 0) + "\n";
}

std::string NoneText(const Since& since, std::optional<int64_t> daemon_start) {
  if (since.sequence != 0) return fmt::format("no event behind {}", since.sequence);
  if (since.ago) return "no event that you may see in that time";
  const std::string when = daemon_start ? " since tierd started at " + LocalTimeText(*daemon_start) : " yet";
  return fmt::format("no event that you may see{}", when);
}

std::optional<Since> ParseSince(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return Since{.sequence = number};
  const auto ago = config::ParseDuration(text);
  if (!ago || *ago < std::chrono::seconds(1) || *ago > std::chrono::years(1)) return std::nullopt;
  return Since{.ago = std::chrono::floor<std::chrono::seconds>(*ago)};
}

std::string SinceMistake(const std::string& text) {
  if (ParseSince(text)) return {};
  return fmt::format("\"{}\" is no number of an event, and no time of a second to a year, such as 10min",
                     Printable(text));
}

int ShowEvents(const DaemonOptions& options, const EventsOptions& events) {
  if (!events.follow) return ShowRecent(options, events.since.value_or(Since{}));
  const int64_t first = FirstSecond(events.since.value_or(Since{}));
  uint64_t last = events.since ? events.since->sequence : 0;
  if (!events.since) {  // From now on: behind the latest of those that are kept.
    const Error end = ReadRecent(options, 0, [&](const v1::Event& event) { last = event.sequence(); });
    if (end.code != Code::kOk) return Explain(end);
  }
  bool waits = false;  // That it does was said.
  for (bool was_there = !events.since;;) {
    const Error end = ReadStream(options, {.since = last}, [&](const v1::Event& event) {
      waits = false;
      was_there = true;
      last = event.sequence();
      if (event.event_time().seconds() < first) return true;
      if (options.output.json) return PrintJsonLine(ToJson(event));
      fmt::print("{}\n", EventText(event, options.output));
      return FlushOutput();  // A closed pipe shows at the next event.
    });
    if (end.code == Code::kOk) return kExitFailure;  // Standard output takes no more.
    if (end.code != Code::kDisconnected || !was_there) return Explain(end);
    if (!std::exchange(waits, true)) {
      fmt::print(stderr, "tierctl: {}; waiting for the daemon, from event {} on\n", Printable(end.message), last);
    }
    std::this_thread::sleep_for(kReconnectEvery);
  }
}

}  // namespace tier::tierctl
