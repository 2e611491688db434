#include "daemon/activity_report.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/counted.h"
#include "daemon/base/format_bytes.h"
#include "proto/codes.h"

namespace tier {
namespace {

using base::FormatBytes;
using tiering::EngineSnapshot;

std::string Windows(const EngineSnapshot& before, const EngineSnapshot& now) {
  if (now.window_count == before.window_count && now.arena_bytes == before.arena_bytes) return {};
  return fmt::format("windows: {} ({:+}), {} of {}", now.window_count,
                     static_cast<int64_t>(now.window_count) - static_cast<int64_t>(before.window_count),
                     FormatBytes(now.arena_bytes), FormatBytes(now.arena_max_bytes));
}

std::string Requests(const EngineSnapshot& before, const EngineSnapshot& now) {
  std::array<uint64_t, kCodeCount> answers{};
  for (size_t op = 0; op < now.requests.size(); ++op) {
    for (size_t code = 0; code < kCodeCount; ++code)
      answers[code] += now.requests[op][code] - before.requests[op][code];
  }
  std::vector<std::string> parts;
  for (uint16_t code = 0; code < kCodeCount; ++code) {
    if (answers[code] != 0) parts.push_back(fmt::format("{} {}", answers[code], CodeName(static_cast<Code>(code))));
  }
  if (parts.empty() && now.waiting_count == before.waiting_count) return {};
  return fmt::format("requests: answered {}; {} wait",
                     parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", ")), now.waiting_count);
}

std::string Sessions(const EngineSnapshot& before, const EngineSnapshot& now) {
  if (now.session_count == before.session_count && now.tensor_count == before.tensor_count &&
      now.jobs.size() == before.jobs.size())
    return {};
  return fmt::format("sessions: {} of {}, with {} and {}", now.session_count, base::Counted(now.jobs.size(), "job"),
                     base::Counted(now.tensor_count, "tensor"), base::Counted(now.lease_count, "lease"));
}

std::string Device(size_t index, const storage::DeviceTraffic& before, const storage::DeviceTraffic& now) {
  const bool same = now.read_requests == before.read_requests && now.write_requests == before.write_requests &&
                    now.errors == before.errors && now.retries == before.retries && now.corrupt == before.corrupt &&
                    now.window_faults == before.window_faults;
  if (same) return {};
  return fmt::format(
      "device {}: read {} in {} requests, wrote {} in {}; {} retried, {} failed, {} with a wrong checksum, {} without "
      "their memory; {} under way",
      index, FormatBytes(now.read_bytes - before.read_bytes), now.read_requests - before.read_requests,
      FormatBytes(now.written_bytes - before.written_bytes), now.write_requests - before.write_requests,
      now.retries - before.retries, now.errors - before.errors, now.corrupt - before.corrupt,
      now.window_faults - before.window_faults, now.inflight);
}

}  // namespace

std::vector<std::string> ActivityReport::Note(const EngineSnapshot& now) {
  EngineSnapshot none;
  none.devices.resize(now.devices.size());
  const EngineSnapshot before = before_ && before_->devices.size() == now.devices.size() ? *before_ : std::move(none);
  std::vector<std::string> lines = {Windows(before, now), Sessions(before, now), Requests(before, now)};
  for (size_t i = 0; i < now.devices.size(); ++i)
    lines.push_back(Device(i, before.devices[i].traffic, now.devices[i].traffic));
  std::erase_if(lines, [](const std::string& line) { return line.empty(); });
  before_ = now;
  return lines;
}

}  // namespace tier
