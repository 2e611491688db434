#include "daemon/metrics/device_families.h"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/storage/device_latency.h"

namespace tier::metrics {
namespace {

using storage::Direction;
using storage::Purpose;

struct DeviceFigure {
  const char* name;
  const char* help;
  bool is_counter;
  uint64_t (*figure)(const tiering::DeviceView&);
};

constexpr DeviceFigure kDeviceFigures[] = {
    {"tierd_device_capacity_bytes", "Size of the device's data area.", false,
     [](const tiering::DeviceView& device) { return device.space.capacity; }},
    {"tierd_device_free_bytes", "Bytes free for extents.", false,
     [](const tiering::DeviceView& device) { return device.space.free; }},
    {"tierd_device_live_bytes", "Bytes of live extents.", false,
     [](const tiering::DeviceView& device) { return device.space.live; }},
    {"tierd_device_quarantined_bytes",
     "Bytes of places that failed twice while others worked, in this run or an earlier one: not used until tierctl "
     "device retry.",
     false, [](const tiering::DeviceView& device) { return device.space.quarantined; }},
    {"tierd_device_doubtful_bytes", "Bytes where the device failed, until it is known whether all of it does.", false,
     [](const tiering::DeviceView& device) { return device.space.doubtful; }},
    {"tierd_device_draining", "1 while the device is being emptied.", false,
     [](const tiering::DeviceView& device) { return uint64_t{device.draining}; }},
    {"tierd_device_failing", "1 where more of its places are quarantined than are written down: replace it.", false,
     [](const tiering::DeviceView& device) { return uint64_t{device.failing}; }},
    {"tierd_device_scattered_pieces",
     "Pieces on the device in several runs each, for want of a longer one: slow to read.", false,
     [](const tiering::DeviceView& device) { return device.scattered_pieces; }},
    {"tierd_device_rewritten_blocks_total",
     "Sparse blocks of 2 MiB that were emptied, so that there are long runs again.", true,
     [](const tiering::DeviceView& device) { return device.rewritten_blocks; }},
    {"tierd_device_inflight_requests", "Requests at the device now.", false,
     [](const tiering::DeviceView& device) { return uint64_t{device.traffic.inflight}; }},
    {"tierd_device_read_bytes_total", "Bytes read.", true,
     [](const tiering::DeviceView& device) { return device.traffic.read_bytes; }},
    {"tierd_device_written_bytes_total", "Bytes written.", true,
     [](const tiering::DeviceView& device) { return device.traffic.written_bytes; }},
    {"tierd_device_errors_total", "Transfers that the device failed, after a retry.", true,
     [](const tiering::DeviceView& device) { return device.traffic.errors; }},
    {"tierd_device_corrupt_pieces_total", "Pieces read back with a wrong checksum, twice.", true,
     [](const tiering::DeviceView& device) { return device.traffic.corrupt; }},
    {"tierd_device_window_faults_total", "Transfers whose memory a client had taken away: not the device's fault.",
     true, [](const tiering::DeviceView& device) { return device.traffic.window_faults; }},
};

void AddStates(FamilyBuilder& out, const std::vector<session::DeviceDescription>& devices) {
  using storage::DeviceState;
  out.Gauge("tierd_device_info", "1, labelled with the path and the UUID by which tierd knows the device.");
  for (const auto& device : devices) {
    out.Add(1, {{"device", std::to_string(device.index)},
                {"path", device.path},
                {"device_uuid", device.uuid},
                {"kind", device.block_device ? "block" : "file"}});
  }
  out.Gauge("tierd_device_state", "1 for the state of the device, 0 for the others.");
  std::vector<std::string_view> states;
  for (const DeviceState state :
       {DeviceState::kOnline, DeviceState::kSuspect, DeviceState::kOffline, DeviceState::kGone})
    states.emplace_back(DeviceStateName(state));
  for (const auto& device : devices) {
    out.AddOneOf(states, DeviceStateName(device.now.state), "state", {{"device", std::to_string(device.index)}});
  }
  for (const DeviceFigure& figure : kDeviceFigures) {
    figure.is_counter ? out.Counter(figure.name, figure.help) : out.Gauge(figure.name, figure.help);
    for (const auto& device : devices) out.Add(figure.figure(device.now), {{"device", std::to_string(device.index)}});
  }
}

// Those without a uuid have no jobs.
void AddMissing(FamilyBuilder& out, const std::vector<tiering::MissingDeviceView>& missing) {
  out.Gauge("tierd_missing_devices", "SSD devices that the last start did without: configured, or with jobs on them.")
      .Add(missing.size());
  out.Gauge("tierd_missing_device_lost_jobs",
            "Jobs that persisted tensors on a missing device, and are lost until it is back or purged.");
  for (const tiering::MissingDeviceView& device : missing) {
    if (device.uuid.empty()) continue;
    out.Add(device.lost_job_count, {{"device_uuid", device.uuid}, {"path", device.path}});
  }
}

const char* NameOf(Direction direction) { return direction == Direction::kRead ? "read" : "write"; }
const char* NameOf(Purpose purpose) {
  constexpr std::array<const char*, storage::kPurposes> kNames = {"demand", "ahead", "background"};
  return kNames[static_cast<size_t>(purpose)];
}

// Visits what there was so far, and what requests wait for in any case.
template <typename Visit>
void ForEachClass(const std::vector<session::DeviceDescription>& devices, Visit visit) {
  for (const auto& device : devices) {
    for (const Direction direction : {Direction::kRead, Direction::kWrite}) {
      for (const Purpose purpose : {Purpose::kDemand, Purpose::kAhead, Purpose::kBackground}) {
        const storage::LatencyFigures& figures = device.now.latency.Of(direction, purpose);
        if (purpose != Purpose::kDemand && figures.count() == 0) continue;
        visit(figures, Labels{{"device", std::to_string(device.index)},
                              {"direction", NameOf(direction)},
                              {"class", NameOf(purpose)}});
      }
    }
  }
}

void AddLatency(FamilyBuilder& out, const std::vector<session::DeviceDescription>& devices) {
  out.Histogram("tierd_device_request_seconds",
                "How long requests took at the device, by what they were for: demand (a request of a job waits), ahead "
                "(prefetches, writes before the room is needed, and those that empty memory for another job or the "
                "host), background (what is moved off a device). One that is for several counts as the first of these. "
                "A class appears once it has happened.");
  ForEachClass(devices, [&](const storage::LatencyFigures& figures, const Labels& labels) {
    out.AddHistogram(figures.requests, storage::kLatencyBucketsSeconds, figures.sum_ns, labels);
  });
  out.Counter("tierd_device_request_bytes_total", "Bytes that these requests moved.");
  ForEachClass(devices,
               [&](const storage::LatencyFigures& figures, const Labels& labels) { out.Add(figures.bytes, labels); });
}

void AddWear(FamilyBuilder& out, const session::DaemonDescription& daemon) {
  out.Gauge("tierd_device_drive_writes_per_day",
            "How often a day tierd writes as many bytes as its area on the device has, in the last 24 hours or since "
            "the start. 0: not known before ten minutes.");
  for (const auto& device : daemon.devices)
    out.Add(device.drive_writes_per_day, {{"device", std::to_string(device.index)}});
  out.Gauge("tierd_device_drive_bytes",
            "Size of the whole drive on which the device's area lies. No series: not known, as of a network's file "
            "system or a volume of LVM, LUKS or md.");
  for (const auto& device : daemon.devices) {
    if (device.drive_bytes != 0) out.Add(device.drive_bytes, {{"device", std::to_string(device.index)}});
  }
  const tiering::WriteBudgetFigures& budget = daemon.engine.write_budget;
  out.Gauge(
         "tierd_write_budget_bytes_per_day",
         "What tierd may write to all devices together, by its areas there (ssd.drive_writes_per_day). 0: there is no "
         "budget.")
      .Add(budget.bytes_per_day);
  out.Gauge("tierd_write_budget_left_bytes",
            "What of it may be written now: at most what an hour brings. Negative: writes that do not wait for it have "
            "exceeded it.")
      .Add(budget.left_bytes);
  out.Gauge("tierd_write_budget_slowing", "1 while write-behind and writes for prefetches wait for the budget.")
      .Add(budget.slowing ? 1 : 0);
  out.Counter("tierd_write_budget_delays_total",
              "How often write-behind and writes for prefetches began to wait for the budget.")
      .Add(budget.delays);
}

struct SmartFigure {
  const char* name;
  const char* help;
  bool is_counter;
  double (*figure)(const session::DeviceSmart&);
};

constexpr SmartFigure kSmartFigures[] = {
    {"tierd_device_smart_available_spare_ratio", "Spare blocks that the device has left, of those that it had.", false,
     [](const session::DeviceSmart& smart) { return smart.figures.available_spare / 100.0; }},
    {"tierd_device_smart_spare_threshold_ratio", "The device warns when so few are left.", false,
     [](const session::DeviceSmart& smart) { return smart.figures.spare_threshold / 100.0; }},
    {"tierd_device_smart_used_ratio", "Part of the endurance that its maker gives the device; may exceed 1.", false,
     [](const session::DeviceSmart& smart) { return smart.figures.percentage_used / 100.0; }},
    {"tierd_device_smart_media_errors_total", "Times that the device could not give back what was written to it.", true,
     [](const session::DeviceSmart& smart) { return static_cast<double>(smart.figures.media_errors); }},
    {"tierd_device_smart_written_bytes_total", "Bytes written to the device by all that use it, in its whole life.",
     true, [](const session::DeviceSmart& smart) { return static_cast<double>(smart.figures.written_bytes); }},
    {"tierd_device_smart_read_time_seconds", "When the device answered last, in seconds of the Unix epoch.", false,
     [](const session::DeviceSmart& smart) { return static_cast<double>(smart.read_time); }},
    {"tierd_device_smart_stale",
     "1 where that is more than an hour ago: the figures are the last ones that it told, and may be wrong by now.",
     false, [](const session::DeviceSmart& smart) { return smart.stale ? 1.0 : 0.0; }},
};

// Of devices of which tierd-smart has told.
void AddSmart(FamilyBuilder& out, const std::vector<session::DeviceDescription>& devices) {
  out.Gauge("tierd_device_smart_warning",
            "1 for each thing that the device warns of, 0 for the others: spare (too little is left), temperature, "
            "reliability, read_only (it takes no more writes), backup (of its memory), memory_region. Told by "
            "tierd-smart, as all tierd_device_smart_ metrics; absent without it.");
  for (const auto& device : devices) {
    if (!device.smart) continue;
    for (size_t i = 0; i < storage::kSmartWarnings; ++i) {
      const auto warning = static_cast<storage::SmartWarning>(i);
      out.Add(device.smart->figures.warns(warning) ? 1 : 0,
              {{"device", std::to_string(device.index)}, {"cause", SmartWarningName(warning)}});
    }
  }
  out.Gauge("tierd_device_smart_temperature_celsius",
            "Temperature of the device. Absent: it tells none, or one that cannot be.");
  for (const auto& device : devices) {
    if (device.smart && device.smart->figures.temperature_kelvin != 0)
      out.Add(device.smart->celsius(), {{"device", std::to_string(device.index)}});
  }
  for (const SmartFigure& figure : kSmartFigures) {
    figure.is_counter ? out.Counter(figure.name, figure.help) : out.Gauge(figure.name, figure.help);
    for (const auto& device : devices) {
      if (device.smart) out.Add(figure.figure(*device.smart), {{"device", std::to_string(device.index)}});
    }
  }
}

}  // namespace

void AddDevices(FamilyBuilder& out, const session::DaemonDescription& daemon) {
  AddStates(out, daemon.devices);
  AddLatency(out, daemon.devices);
  AddWear(out, daemon);
  AddSmart(out, daemon.devices);
  AddMissing(out, daemon.engine.missing);
}

}  // namespace tier::metrics
