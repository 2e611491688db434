// The verb that shows jobs and devices as they change.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

struct TopOptions {
  std::chrono::nanoseconds interval = std::chrono::seconds(1);  // Between two readings.
  bool once = false;                                            // Two readings, one table, the end.
};

// For the help.
inline constexpr char kTopKeys[] =
    "Jobs are sorted by a key: r RAM, h windows held, s SSD, m misses, w waits, i bytes read from SSD, o written\n"
    "there, n name. q ends it. HITS are ranges that were in RAM when they were asked for; WAITS is how long requests\n"
    "waited in a second, above 100 % where several did. Where standard output is no terminal, a table is printed at\n"
    "each interval, and while tierd is restarted it waits for the next one.\n\n";

// "5", "0.5", "500ms", "2min": a number is of seconds. Nothing for what is no time of 0.1 s to an hour.
std::optional<std::chrono::nanoseconds> ParseInterval(const std::string& text);

// On a terminal a screen that is drawn at each interval, with keys; else a table at each.
int ShowTop(const DaemonOptions& options, const TopOptions& top);

}  // namespace tier::tierctl
