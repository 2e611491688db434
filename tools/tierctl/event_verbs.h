// The verb that shows what happens in the daemon.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

struct EventsOptions {
  std::optional<uint64_t> since;  // Only events behind this one.
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
std::string NoneText(uint64_t since, std::optional<int64_t> daemon_start);

// The number of an event. None: it is not one that fits, in digits alone.
std::optional<uint64_t> ParseSequence(const std::string& text);

}  // namespace tier::tierctl
