// The verb that shows what happens in the daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// Where events begin: behind one of them, or at a time.
struct Since {
  uint64_t sequence = 0;
  std::optional<std::chrono::seconds> ago;
};

struct EventsOptions {
  std::optional<Since> since;
  bool follow = false;
};

// The recent ones; or with `follow` what comes from now on, or behind `since`. Then, where the daemon goes away, it
// waits for the next one and goes on behind the last event, until it is interrupted.
int ShowEvents(const DaemonOptions& options, const EventsOptions& events);

// Hands on those that the daemon has kept behind `since`. How that ended: OK, or why it broke off.
Error ReadRecent(const DaemonOptions& options, uint64_t since, const std::function<void(const v1::Event&)>& show);

// "2026-11-24 12:00:01  job_opened  1000/train: job 'train' of uid 1000 opened", in the local time.
std::string EventText(const v1::Event& event, const OutputOptions& output);

// Below the recent ones: how to ask for those behind the last of them, by its number. Empty: there was none.
std::string SinceText(uint64_t last, const OutputOptions& output);

// In place of them, where there is none: behind which event, or since when, by the start of the daemon in seconds of
// Unix time, where it is known.
std::string NoneText(const Since& since, std::optional<int64_t> daemon_start);

// Of digits alone, the number of an event; else a time such as 10min, of a second to a year. None: it is neither.
std::optional<Since> ParseSince(const std::string& text);
// What to say of a text that ParseSince refuses; else "".
std::string SinceMistake(const std::string& text);

}  // namespace tier::tierctl
