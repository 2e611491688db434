#include "tools/tierctl/top.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/config/quantity.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/readings.h"
#include "tools/tierctl/screen.h"

namespace tier::tierctl {
namespace {

using Clock = std::chrono::steady_clock;
using Stub = v1::ControlService::Stub;

constexpr auto kIntervalMin = std::chrono::milliseconds(100);
constexpr auto kIntervalMax = std::chrono::hours(1);

// One daemon, read again and again; connected again after a failure.
class Reader {
 public:
  explicit Reader(const DaemonOptions& options) : options_(options) {}

  // Keeps the reading before as the one to compare with.
  Status Read() {
    auto taken = Take();
    if (!taken) {
      channel_.reset();
      return std::unexpected(std::move(taken.error()));
    }
    before_ = std::exchange(now_, std::move(*taken));
    return {};
  }
  // REQUIRES: one was read.
  TopView View() const { return CompareReadings(before_ ? &*before_ : nullptr, *now_); }

 private:
  Result<Reading> Take() {
    if (channel_ == nullptr) {
      auto channel = Connect(options_);
      if (!channel) return std::unexpected(std::move(channel.error()));
      channel_ = std::move(*channel);
    }
    Reading reading;
    v1::GetStatusResponse status;
    auto answered = channel_->Call(&Stub::GetStatus, v1::GetStatusRequest(), &status);
    if (answered) answered = channel_->CallPages(&Stub::ListJobs, v1::ListJobsRequest(), &reading.jobs);
    if (!answered) return std::unexpected(std::move(answered.error()));
    reading.status = std::move(*status.mutable_status());
    reading.seconds = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    return reading;
  }

  const DaemonOptions& options_;
  std::unique_ptr<control_client::Channel> channel_;
  std::optional<Reading> before_;
  std::optional<Reading> now_;
};

// False: standard output does not take it. A closed pipe shows at the next table.
bool PrintView(const TopView& view, const OutputOptions& output) {
  if (output.json) return PrintJsonLine(TopJson(view));
  fmt::print("{}\n", RenderTop(view, TopOrder::kRam, 0, output));
  return FlushOutput();
}

void PrintOnce(const TopView& view, const OutputOptions& output) {
  output.json ? PrintJson(TopJson(view)) : fmt::print("{}", RenderTop(view, TopOrder::kRam, 0, output));
}

// While a daemon is restarted, or is busy.
bool IsAnsweredLater(Code code) { return code == Code::kDisconnected || code == Code::kTimeout; }

// Until who reads goes away. Each table is of two readings of one daemon; while there is none, there is no table.
int PrintTables(const DaemonOptions& options, const TopOptions& top) {
  Reader reader(options);
  if (const Status read = reader.Read(); !read) return Explain(read.error());
  for (bool waits = false;;) {  // That it does was said.
    std::this_thread::sleep_for(top.interval);
    const Status read = reader.Read();
    if (!read && (top.once || !IsAnsweredLater(read.error().code))) return Explain(read.error());
    if (!read && !std::exchange(waits, true))
      fmt::print(stderr, "tierctl: {}; waiting for the daemon\n", Printable(read.error().message));
    if (read) waits = false;
    if (!read || reader.View().interval_seconds == 0) continue;
    if (top.once) {
      PrintOnce(reader.View(), options.output);
      return kExitOk;
    }
    if (!PrintView(reader.View(), options.output)) return kExitFailure;
  }
}

// True: it ends.
bool TakeKeys(Screen& screen, Clock::time_point deadline, TopOrder* order) {
  switch (screen.Wait(deadline)) {
    case Screen::Event::kEnd: return true;
    case Screen::Event::kKey:
      if (screen.key() == 'q') return true;
      *order = OrderOfKey(screen.key()).value_or(*order);
      return false;
    case Screen::Event::kTime:
    case Screen::Event::kResized: return false;
  }
  return false;
}

// Fails where no daemon was there at first: that is said when the terminal is as it was.
Status ShowScreen(const DaemonOptions& options, const TopOptions& top, Screen& screen) {
  Reader reader(options);
  TopOrder order = TopOrder::kRam;
  std::string trouble;
  Clock::time_point due = Clock::now();
  for (bool read_any = false;;) {
    if (Clock::now() >= due) {
      const Status read = reader.Read();
      if (!read && !read_any) return read;
      read_any = true;
      trouble = read ? "" : "no answer: " + read.error().message;
      due = Clock::now() + top.interval;
    }
    const Screen::Size size = screen.size();
    OutputOptions output = options.output;
    output.width = size.columns;
    std::string text = RenderTop(reader.View(), order, size.lines - (trouble.empty() ? 0 : 1), output);
    if (!trouble.empty()) text.insert(0, CutToWidth(Printable(trouble), size.columns, "...", CutAt::kEnd) + "\n");
    screen.Draw(text);
    if (TakeKeys(screen, due, &order)) return {};
  }
}

}  // namespace

std::optional<std::chrono::nanoseconds> ParseInterval(const std::string& text) {
  const bool is_number = text.find_first_not_of("0123456789.") == std::string::npos;
  const auto interval = config::ParseDuration(is_number ? text + "s" : text);
  if (!interval || *interval < kIntervalMin || *interval > kIntervalMax) return std::nullopt;
  return *interval;
}

int ShowTop(const DaemonOptions& options, const TopOptions& top) {
  const bool plain = top.once || options.output.json || ::isatty(STDOUT_FILENO) == 0;
  if (plain) return PrintTables(options, top);
  Status shown;
  {
    auto screen = Screen::Open();  // Before any thread of gRPC: it blocks signals.
    shown = screen ? ShowScreen(options, top, **screen) : Status(std::unexpected(std::move(screen.error())));
  }
  return shown ? kExitOk : Explain(shown.error());
}

}  // namespace tier::tierctl
