// The verb that shows jobs and devices as they change.
#pragma once

#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

struct TopOptions {
  double interval_s = 1;  // Between two readings.
  bool once = false;      // Two readings, one table, the end.
};

// For the help.
inline constexpr char kTopKeys[] =
    "Jobs are sorted by a key: r RAM, h windows held, s SSD, m misses, w waits, i bytes read from SSD, o written\n"
    "there, n name. q ends it. HITS are ranges that were in RAM when they were asked for; WAITS is how long requests\n"
    "waited in a second, above 100 % where several did. Where standard output is no terminal, a table is printed at\n"
    "each interval.\n\n";

// On a terminal a screen that is drawn at each interval, with keys; else a table at each.
int ShowTop(const DaemonOptions& options, const TopOptions& top);

}  // namespace tier::tierctl
