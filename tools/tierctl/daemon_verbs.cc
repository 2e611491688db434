#include "tools/tierctl/daemon_verbs.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/counted.h"
#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/node_text.h"
#include "tools/tierctl/printable.h"

#ifndef TIER_VERSION
#error "TIER_VERSION comes from the build"
#endif

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

// "online", "draining", "offline (Input/output error)", "suspect (No space left on device), draining".
std::string StateText(const v1::Device& device) {
  if (device.state() == v1::DEVICE_STATE_ONLINE)
    return !device.draining() ? "online" : device.live_bytes() == 0 ? "drained" : "draining";
  return fmt::format("{} ({}){}", WordOf(device.state()), device.state_reason(), device.draining() ? ", draining" : "");
}

void PrintHealth(const v1::Device& device) {
  if (!device.has_smart()) return;
  const v1::DeviceSmart& smart = device.smart();
  if (!smart.warnings().empty())
    fmt::print("device {} warns of: {}\n", device.index(),
               Printable(fmt::format("{}", fmt::join(smart.warnings(), ", "))));
  fmt::print("device {} has used {:.0f} % of its endurance, and has {:.0f} % of its spare left{}{}\n", device.index(),
             100 * smart.used_ratio(), 100 * smart.available_spare_ratio(),
             smart.media_errors_total() == 0 ? "" : fmt::format(", and {} media errors", smart.media_errors_total()),
             smart.stale() ? " (read more than an hour ago: see tierd-smart.timer)" : "");
}

int PrintDevices(const google::protobuf::RepeatedPtrField<v1::Device>& devices, const OutputOptions& output) {
  fmt::print(
      "{}",
      RenderTable(
          {
              MakeColumn("DEVICE", devices, true, [](const v1::Device& d) { return std::to_string(d.index()); }),
              MakeColumn("PATH", devices, false, [](const v1::Device& d) { return d.path(); }),
              MakeColumn("CAPACITY", devices, true, [](const v1::Device& d) { return HumanBytes(d.capacity_bytes()); }),
              MakeColumn("FREE", devices, true, [](const v1::Device& d) { return HumanBytes(d.free_bytes()); }),
              MakeColumn("LIVE", devices, true, [](const v1::Device& d) { return HumanBytes(d.live_bytes()); }),
              MakeColumn("QUARANTINED", devices, true,
                         [](const v1::Device& d) { return HumanBytes(d.quarantined_bytes()); }),
              MakeColumn("ERRORS", devices, true, [](const v1::Device& d) { return std::to_string(d.errors_total()); }),
              MakeColumn("CORRUPT", devices, true,
                         [](const v1::Device& d) { return std::to_string(d.corrupt_total()); }),
              MakeColumn("WINDOW FAULTS", devices, true,
                         [](const v1::Device& d) { return std::to_string(d.window_faults_total()); }),
              MakeColumn("READ P50 / P99", devices, true,
                         [](const v1::Device& d) { return LatencyText(d.read_seconds_p50(), d.read_seconds_p99()); }),
              MakeColumn("WRITE P50 / P99", devices, true,
                         [](const v1::Device& d) { return LatencyText(d.write_seconds_p50(), d.write_seconds_p99()); }),
              MakeColumn("DWPD", devices, true,
                         [](const v1::Device& d) { return fmt::format("{:.2f}", d.drive_writes_per_day()); }),
              MakeColumn("STATE", devices, false, StateText),
          },
          output));
  for (const v1::Device& device : devices) {
    if (!device.drain_note().empty())
      fmt::print("device {} is not empty yet: {}\n", device.index(), Printable(device.drain_note()));
    if (device.failing()) {
      fmt::print("device {} is failing: more of its places are quarantined than are written down; replace it\n",
                 device.index());
    }
    PrintHealth(device);
  }
  return kExitOk;
}

void PrintMissing(const google::protobuf::RepeatedPtrField<v1::MissingDevice>& missing, const OutputOptions& output) {
  if (missing.empty()) return;
  const auto or_none = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
  fmt::print("\nmissing since the start (tierctl device purge UUID gives up what jobs persisted there):\n{}",
             RenderTable(
                 {
                     MakeColumn("UUID", missing, false, [&](const v1::MissingDevice& d) { return or_none(d.uuid()); }),
                     MakeColumn("PATH", missing, false, [&](const v1::MissingDevice& d) { return or_none(d.path()); }),
                     MakeColumn("LOST JOBS", missing, true,
                                [](const v1::MissingDevice& d) { return std::to_string(d.lost_job_count()); }),
                     MakeColumn("REASON", missing, false, [](const v1::MissingDevice& d) { return d.reason(); }),
                 },
                 output));
}

std::string GivenBackText(const v1::NodeStatus& status) {
  const std::string all = fmt::format("{} since start, in {} of the host", HumanBytes(status.given_back_bytes_total()),
                                      base::Counted(status.host_shortages_total(), "shortage"));
  return status.host_shortage().empty() ? all : fmt::format("{}; now: {}", all, status.host_shortage());
}

std::string StockText(const v1::NodeStatus& status) {
  if (status.arena_stock_bytes() == 0) return "";
  return fmt::format("; {} more made ahead of need", HumanBytes(status.arena_stock_bytes()));
}

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields FieldsOf(const v1::NodeStatus& status, const std::string& state) {
  Fields fields = {
      {"tierd", status.version() + state},
      {"pid", fmt::format("{}, up {} s, epoch {}", status.pid(), status.uptime().seconds(), status.epoch())},
      {"sockets", status.socket_directory() + (status.private_daemon() ? "  (private daemon)" : "")},
      {"data directory", status.data_directory().empty() ? "none" : status.data_directory()},
      {"modes",
       fmt::format("I/O {}, memory {}, pages {}, spin {}, SSD {}", WordOf(status.io_mode()),
                   WordOf(status.memory_mode()), PagesText(status), WordOf(status.spin_mode()), SsdModeText(status))},
      {"arena", fmt::format("{} of {} in {} for blocks and {} for slots, {} of them free{}",
                            HumanBytes(status.arena_bytes()), HumanBytes(status.arena_max_bytes()),
                            base::Counted(status.window_count() - status.slot_window_count(), "window"),
                            status.slot_window_count(), HumanBytes(status.arena_free_bytes()), StockText(status))},
      {"compaction",
       fmt::format("{} moved in RAM, {}; {} free beside leased slots", base::Counted(status.moves_total(), "piece"),
                   HumanBytes(status.moved_bytes_total()), HumanBytes(status.lease_bound_bytes()))},
      {"hand-over",
       fmt::format("{} of these pieces moved for other jobs, {}; {} evicted; {} lent by idle jobs",
                   status.hand_over_moves_total(), HumanBytes(status.hand_over_moved_bytes_total()),
                   HumanBytes(status.hand_over_evicted_bytes_total()), HumanBytes(status.lent_bytes_total()))},
      {"host", fmt::format("{} available, waiting for memory {:.1f} % of the time",
                           HumanBytes(status.host_available_bytes()), 100 * status.psi_memory_some_ratio())},
      {"given back", GivenBackText(status)},
      {"jobs",
       fmt::format("{} with {}, {} ({} torn), {}, {} waiting", status.job_count(),
                   base::Counted(status.session_count(), "session"), base::Counted(status.tensor_count(), "tensor"),
                   status.torn_count(), base::Counted(status.lease_count(), "lease"),
                   base::Counted(status.waiting_count(), "request"))},
  };
  if (const std::string reload = ReloadText(status); !reload.empty()) fields.emplace_back("reload", reload);
  return fields;
}

void PrintStatus(const v1::NodeStatus& status, const OutputOptions& output) {
  const std::string state = "  " + HealthText(status);
  const std::string word = state.substr(0, state.find_first_of(":,"));
  const bool is_well = LackText(status).empty() && status.reload_failure().empty();
  std::string text = RenderFields(FieldsOf(status, state), output);
  // Behind the rendering, which lets no such thing through.
  text.replace(text.find(word), word.size(), Paint(word, is_well ? Mood::kGood : Mood::kWarning, output));
  fmt::print("{}\n", text);
  PrintDevices(status.devices(), output);
  PrintMissing(status.missing_devices(), output);
}

// Asked behind the drain, whose answer has no place for it. Empty: other devices take new tensors, or the daemon does
// not answer.
std::string NoteOfDrain(const DaemonOptions& options, uint32_t device) {
  const auto channel = Connect(options);
  v1::ListDevicesResponse answer;
  if (!channel || !(*channel)->Call(&Stub::ListDevices, v1::ListDevicesRequest(), &answer)) return {};
  return LastDeviceText(answer.devices(), device);
}

}  // namespace

int ShowStatus(const DaemonOptions& options) {
  return Ask<v1::GetStatusResponse>(options, &Stub::GetStatus, v1::GetStatusRequest(),
                                    [&](const v1::GetStatusResponse& answer) {
                                      const v1::NodeStatus& status = answer.status();
                                      if (options.output.json) {
                                        Json document = ToJson(status);
                                        document["degraded"] = !status.degraded_by().empty();
                                        PrintJson(document);
                                      } else {
                                        PrintStatus(status, options.output);
                                      }
                                      return LackText(status).empty() ? kExitOk : kExitDegraded;
                                    });
}

int ListDevices(const DaemonOptions& options) {
  return Ask<v1::ListDevicesResponse>(options, &Stub::ListDevices, v1::ListDevicesRequest(),
                                      [&](const v1::ListDevicesResponse& answer) {
                                        if (options.output.json) {
                                          PrintJson(ToJson(answer));
                                          return kExitOk;
                                        }
                                        PrintDevices(answer.devices(), options.output);
                                        PrintMissing(answer.missing(), options.output);
                                        return kExitOk;
                                      });
}

int DrainDevice(const DaemonOptions& options, uint32_t device, bool undo) {
  v1::DrainDeviceRequest request;
  request.set_device(device);
  request.set_undo(undo);
  return Ask<v1::DrainDeviceResponse>(options, &Stub::DrainDevice, request, [&](const v1::DrainDeviceResponse&) {
    const std::string note = undo ? "" : NoteOfDrain(options, device);
    if (options.output.json) {
      undo ? PrintJson({{"used", device}}) : PrintJson({{"draining", device}, {"note", note}});
    } else if (note.empty()) {
      fmt::print("device {} is {}\n", device,
                 undo ? "used again" : "being emptied; 'tierctl device list' says what stays on it, and why");
    } else {
      const std::string said = fmt::format("device {} takes no new tensors, and cannot be emptied: {}", device, note);
      fmt::print("{}\n", Wrapped(said, options.output.width, 0));
    }
    return note.empty() ? kExitOk : kExitDegraded;
  });
}

int RetryDevice(const DaemonOptions& options, uint32_t device) {
  v1::RetryDeviceRequest request;
  request.set_device(device);
  return Ask<v1::RetryDeviceResponse>(options, &Stub::RetryDevice, request, [&](const v1::RetryDeviceResponse&) {
    if (options.output.json) {
      PrintJson({{"retried", device}});
    } else {
      fmt::print(
          "device {}: its quarantined places are used again when nothing else is left, and its errors up to now make "
          "tierd degraded no more\n",
          device);
    }
    return kExitOk;
  });
}

int ShowVersion(const DaemonOptions& options) {
  const auto answer = AnswerTo<v1::GetStatusResponse>(options, &Stub::GetStatus, v1::GetStatusRequest());
  const std::string reason = answer ? "" : answer.error().message;
  // Where no socket was named, a daemon that does not run is no failure.
  const bool is_absent = !answer && answer.error().code == Code::kDisconnected && !SocketIsNamed(options);
  if (options.output.json) {
    Json document = {{"tierctl", TIER_VERSION}, {"tierd", nullptr}, {"reason", reason}};
    if (answer) document["tierd"] = answer->status().version();
    PrintJson(document);
  } else {
    const std::string daemon = answer ? answer->status().version() : is_absent ? "not running: " + reason : "unknown";
    fmt::print("tierctl {}\ntierd   {}\n", TIER_VERSION, Wrapped(Printable(daemon), options.output.width, 8));
  }
  return answer || is_absent ? kExitOk : Explain(answer.error());
}

}  // namespace tier::tierctl
