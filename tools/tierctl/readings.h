// What `top` shows: two readings of a daemon as rows with rates. Pure functions.
//
// A rate is the difference of a counter between the readings, by the time between them. There is none where there was
// no first reading, or the daemon was started between the two, or the job or the device was not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libclient/control/channel.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/output.h"

namespace tier::tierctl {

struct Reading {
  double seconds = 0;  // On a clock that only rises.
  v1::NodeStatus status;
  v1::ListJobsResponse jobs;
};

struct TopJob {
  uint64_t id = 0;
  std::string name;  // As its owner named it.
  uint32_t uid = 0;
  std::string owner;  // Of a socket, whose uid this is; empty: a user of the system.
  uint64_t ram_bytes = 0;
  uint64_t held_bytes = 0;
  uint64_t ssd_bytes = 0;
  std::optional<double> hit_ratio;    // Of the ranges that were asked for between the readings; none: none were.
  std::optional<double> stall_share;  // Seconds that its requests waited, by second: above 1 where several wait.
  std::optional<double> in_rate;      // Bytes read from SSD, by second.
  std::optional<double> out_rate;     // Bytes written there.
};

struct TopDevice {
  uint32_t index = 0;
  std::string path;
  uint64_t free_bytes = 0;
  uint64_t live_bytes = 0;
  uint64_t errors = 0;
  std::string state;
  std::optional<double> read_rate;
  std::optional<double> write_rate;
};

struct TopView {
  double interval_seconds = 0;  // 0: there is one reading alone.
  v1::NodeStatus status;
  std::vector<TopJob> jobs;
  std::vector<TopDevice> devices;
};

// The first reading may be missing.
TopView CompareReadings(const Reading* before, const Reading& now);

enum class TopOrder { kRam, kHeld, kSsd, kMisses, kWaits, kIn, kOut, kName };
// That a key asks for; nothing for another key.
std::optional<TopOrder> OrderOfKey(char key);
// The largest first, names from a to z; equal ones by name.
void SortJobs(std::vector<TopJob>* jobs, TopOrder order);

// "1.50 GiB/s"; "-" without one.
std::string RateText(std::optional<double> rate);
// A header, the jobs and the devices, in at most `lines` lines (0: any number); jobs that do not fit are counted.
std::string RenderTop(const TopView& view, TopOrder order, size_t lines, const OutputOptions& output);
Json TopJson(const TopView& view);

}  // namespace tier::tierctl
