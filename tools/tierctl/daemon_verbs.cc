#include "tools/tierctl/daemon_verbs.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"

#ifndef TIER_VERSION
#error "TIER_VERSION comes from the build"
#endif

namespace tier::tierctl {
namespace {

using Stub = v1::Control::Stub;

void PrintFields(const std::vector<std::pair<std::string, std::string>>& fields) {
  size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, name.size());
  for (const auto& [name, value] : fields) fmt::print("{:<{}}  {}\n", name, width, value);
}

template <typename Rows, typename Cell>
Column MakeColumn(const char* title, const Rows& rows, bool right, Cell&& cell) {
  Column column{title, {}, right};
  for (const auto& row : rows) column.cells.push_back(cell(row));
  return column;
}

std::string LimitText(uint64_t limit) { return limit == 0 ? "none" : HumanBytes(limit); }

// "online", "draining", "offline (Input/output error)", "suspect (No space left on device), draining".
std::string StateText(const v1::Device& device) {
  const bool online = device.state().empty() || device.state() == "online";  // Empty: an older daemon.
  if (online) return !device.draining() ? "online" : device.live_bytes() == 0 ? "drained" : "draining";
  return fmt::format("{} ({}){}", device.state(), device.state_reason(), device.draining() ? ", draining" : "");
}

int PrintDevices(const google::protobuf::RepeatedPtrField<v1::Device>& devices) {
  fmt::print(
      "{}",
      RenderTable({
          MakeColumn("DEVICE", devices, true, [](const v1::Device& d) { return std::to_string(d.index()); }),
          MakeColumn("PATH", devices, false, [](const v1::Device& d) { return d.path(); }),
          MakeColumn("CAPACITY", devices, true, [](const v1::Device& d) { return HumanBytes(d.capacity_bytes()); }),
          MakeColumn("FREE", devices, true, [](const v1::Device& d) { return HumanBytes(d.free_bytes()); }),
          MakeColumn("LIVE", devices, true, [](const v1::Device& d) { return HumanBytes(d.live_bytes()); }),
          MakeColumn("QUARANTINED", devices, true,
                     [](const v1::Device& d) { return HumanBytes(d.quarantined_bytes()); }),
          MakeColumn("ERRORS", devices, true, [](const v1::Device& d) { return std::to_string(d.errors_total()); }),
          MakeColumn("CORRUPT", devices, true, [](const v1::Device& d) { return std::to_string(d.corrupt_total()); }),
          MakeColumn("WINDOW FAULTS", devices, true,
                     [](const v1::Device& d) { return std::to_string(d.window_faults_total()); }),
          MakeColumn("STATE", devices, false, StateText),
      }));
  for (const v1::Device& device : devices) {
    if (!device.drain_note().empty())
      fmt::print("device {} is not empty yet: {}\n", device.index(), device.drain_note());
    if (device.failing()) {
      fmt::print("device {} is failing: more of its places are quarantined than are written down; replace it\n",
                 device.index());
    }
  }
  return kExitOk;
}

// The reason of a mode that is none of the causes of "degraded".
std::string SsdModeText(const v1::Status& status) {
  if (status.ssd_mode().empty()) return "unknown";  // An older daemon.
  if (status.ssd_mode() != "reduced") return status.ssd_mode();
  return fmt::format("reduced ({})", status.ssd_mode_reason());
}

std::string GivenBackText(const v1::Status& status) {
  const std::string all = fmt::format("{} since start, in {} shortages of the host",
                                      HumanBytes(status.given_back_bytes_total()), status.host_shortages_total());
  return status.host_shortage().empty() ? all : fmt::format("{}; now: {}", all, status.host_shortage());
}

void PrintStatus(const v1::Status& status, const OutputOptions& output) {
  const auto& causes = status.degraded_by();
  std::string state = causes.empty()
                          ? Paint("  ok", Mood::kGood, output)
                          : Paint("  degraded", Mood::kWarning, output) + fmt::format(": {}", fmt::join(causes, "; "));
  if (status.draining()) state += Paint("  draining", Mood::kWarning, output) + ": no new job or process is taken";
  PrintFields({
      {"tierd", status.version() + state},
      {"pid", fmt::format("{}, up {:.0f} s, epoch {:x}", status.pid(), status.uptime_seconds(), status.epoch())},
      {"sockets", status.socket_directory() + (status.private_daemon() ? "  (private daemon)" : "")},
      {"data directory", status.data_directory().empty() ? "none" : status.data_directory()},
      {"modes", fmt::format("I/O {}, memory {}, pages {}, spin {}, SSD {}", status.io_mode(), status.memory_mode(),
                            status.huge_page_mode(), status.spin_mode(), SsdModeText(status))},
      {"metrics",
       status.metrics_address().empty() ? "none" : fmt::format("http://{}/metrics", status.metrics_address())},
      {"arena",
       fmt::format("{} of {} in {} windows for blocks and {} for slots, {} free", HumanBytes(status.arena_bytes()),
                   HumanBytes(status.arena_max_bytes()), status.window_count() - status.slot_window_count(),
                   status.slot_window_count(), HumanBytes(status.arena_free_bytes()))},
      {"compaction", fmt::format("{} pieces moved in RAM, {}; {} free beside leased slots", status.moves_total(),
                                 HumanBytes(status.moved_bytes_total()), HumanBytes(status.lease_bound_bytes()))},
      {"hand-over",
       fmt::format("{} of these pieces moved for other jobs, {}; {} evicted; {} lent by idle jobs",
                   status.hand_over_moves_total(), HumanBytes(status.hand_over_moved_bytes_total()),
                   HumanBytes(status.hand_over_evicted_bytes_total()), HumanBytes(status.lent_bytes_total()))},
      {"host", fmt::format("{} available, waiting for memory {:.1f} % of the time",
                           HumanBytes(status.host_available_bytes()), 100 * status.psi_memory_some_ratio())},
      {"given back", GivenBackText(status)},
      {"jobs", fmt::format("{} with {} sessions, {} tensors ({} torn), {} leases, {} requests waiting",
                           status.job_count(), status.session_count(), status.tensor_count(), status.torn_count(),
                           status.lease_count(), status.waiting_count())},
  });
  fmt::print("\n");
  PrintDevices(status.devices());
}

void PrintJob(const v1::Job& job) {
  std::string ranks;
  for (const int32_t rank : job.ranks()) ranks += (ranks.empty() ? "" : " ") + std::to_string(rank);
  PrintFields({
      {"job", job.name() + (job.named() ? "  (named)" : "")},
      {"owner", fmt::format("uid {}", job.uid())},
      {"ranks", job.world_size() > 0 ? fmt::format("{} of {}", ranks, job.world_size())
                                     : fmt::format("{} sessions", job.session_count())},
      {"RAM",
       fmt::format("{} held, {} leased, {} dirty, {} moved{}", HumanBytes(job.ram_bytes()),
                   HumanBytes(job.leased_bytes()), HumanBytes(job.dirty_bytes()), HumanBytes(job.moved_bytes_total()),
                   job.kept_bytes() == 0 ? "" : ", " + HumanBytes(job.kept_bytes()) + " taken from it and kept")},
      {"share", fmt::format("{}, guarantee {}, limit {}", HumanBytes(job.share_bytes()),
                            HumanBytes(job.guarantee_bytes()), LimitText(job.limit_bytes()))},
      {"SSD", fmt::format("{} held, {} written, {} read", HumanBytes(job.ssd_bytes()),
                          HumanBytes(job.swap_out_bytes_total()), HumanBytes(job.swap_in_bytes_total()))},
      {"keeps", fmt::format("{} in tensors, SSD guarantee {}, SSD limit {}", HumanBytes(job.logical_bytes()),
                            HumanBytes(job.ssd_guarantee_bytes()), LimitText(job.ssd_limit_bytes()))},
      {"tensors", fmt::format("{} ({} torn), {} leases", job.tensor_count(), job.torn_count(), job.lease_count())},
      {"acquires", fmt::format("{} from RAM, {} from SSD, waited {:.3f} s", job.acquire_hits_total(),
                               job.acquire_misses_total(), job.stall_seconds_total())},
  });
  if (!job.token().empty()) fmt::print("TIERD_JOB_TOKEN={}\n", job.token());
}

int ShowOneJob(const DaemonOptions& options, const v1::Job& job) {
  options.output.json ? PrintJson(ToJson(job)) : PrintJob(job);
  return kExitOk;
}

// Until no process is attached to any job, or `end` is over: polls, as a daemon that ends meanwhile is an answer too.
int AwaitLastSession(const DaemonOptions& options, std::chrono::steady_clock::time_point end) {
  constexpr auto kPoll = std::chrono::milliseconds(500);
  for (;;) {
    uint64_t sessions = 0;
    uint64_t jobs = 0;
    const int asked = Ask<v1::Status>(options, &Stub::GetStatus, v1::GetStatusRequest(), [&](const v1::Status& status) {
      sessions = status.session_count();
      jobs = status.job_count();
      return kExitOk;
    });
    if (asked != kExitOk) return asked;
    if (sessions == 0) {
      if (options.output.json) {
        PrintJson({{"drained", ""}, {"sessions", 0}, {"jobs", jobs}});
      } else {
        fmt::print(
            "no process is attached any more{}\n",
            jobs == 0 ? "" : fmt::format("; {} jobs without processes keep their tensors (tierctl job list)", jobs));
      }
      return kExitOk;
    }
    if (std::chrono::steady_clock::now() + kPoll > end) {
      return Explain({Code::kTimeout, fmt::format("{} processes are still attached; the node stays drained (tierctl "
                                                  "undrain: it takes jobs again)",
                                                  sessions)});
    }
    std::this_thread::sleep_for(kPoll);
  }
}

Json TensorsJson(const v1::ListTensorsResponse& response) { return ToJson(response); }

}  // namespace

std::optional<uint64_t> ParseBytes(const std::string& text) {
  constexpr std::pair<const char*, uint64_t> kUnits[] = {{"", 1},
                                                         {"B", 1},
                                                         {"KiB", 1ull << 10},
                                                         {"MiB", 1ull << 20},
                                                         {"GiB", 1ull << 30},
                                                         {"TiB", 1ull << 40},
                                                         {"kB", 1000},
                                                         {"KB", 1000},
                                                         {"MB", 1000ull * 1000},
                                                         {"GB", 1000ull * 1000 * 1000},
                                                         {"TB", 1000ull * 1000 * 1000 * 1000}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string unit(rest, end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  if (unit.empty() && number != std::floor(number)) return std::nullopt;  // A fraction of a byte: the unit is missing.
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * static_cast<double>(factor);
    if (bytes >= 9.2e18) return std::nullopt;
    return static_cast<uint64_t>(std::llround(bytes));
  }
  return std::nullopt;
}

int ShowStatus(const DaemonOptions& options) {
  return Ask<v1::Status>(options, &Stub::GetStatus, v1::GetStatusRequest(), [&](const v1::Status& status) {
    if (options.output.json) {
      Json document = ToJson(status);
      document["degraded"] = !status.degraded_by().empty();
      PrintJson(document);
    } else {
      PrintStatus(status, options.output);
    }
    return status.degraded_by().empty() && !status.draining() ? kExitOk : kExitDegraded;
  });
}

namespace {

void PrintKept(const google::protobuf::RepeatedPtrField<v1::KeptManifest>& kept) {
  const auto state = [](const v1::KeptManifest& each) {
    return each.damage().empty() ? std::string("can be resumed") : "damaged: " + each.damage();
  };
  fmt::print(
      "\npersisted by jobs that are not open (tierctl job remove --purge UID/JOB frees it):\n{}",
      RenderTable({
          MakeColumn("JOB", kept, false, [](const v1::KeptManifest& each) { return each.name(); }),
          MakeColumn("UID", kept, true, [](const v1::KeptManifest& each) { return std::to_string(each.uid()); }),
          MakeColumn("SSD", kept, true, [](const v1::KeptManifest& each) { return HumanBytes(each.ssd_bytes()); }),
          MakeColumn("STATE", kept, false, state),
      }));
}

}  // namespace

int ListJobs(const DaemonOptions& options) {
  return Ask<v1::ListJobsResponse>(
      options, &Stub::ListJobs, v1::ListJobsRequest(), [&](const v1::ListJobsResponse& answer) {
        if (options.output.json) {
          PrintJson(ToJson(answer));
          return kExitOk;
        }
        const auto& jobs = answer.jobs();
        fmt::print(
            "{}",
            RenderTable({
                MakeColumn("JOB", jobs, false, [](const v1::Job& j) { return j.name(); }),
                MakeColumn("UID", jobs, true, [](const v1::Job& j) { return std::to_string(j.uid()); }),
                MakeColumn("SESSIONS", jobs, true, [](const v1::Job& j) { return std::to_string(j.session_count()); }),
                MakeColumn("TENSORS", jobs, true, [](const v1::Job& j) { return std::to_string(j.tensor_count()); }),
                MakeColumn("RAM", jobs, true, [](const v1::Job& j) { return HumanBytes(j.ram_bytes()); }),
                MakeColumn("SHARE", jobs, true, [](const v1::Job& j) { return HumanBytes(j.share_bytes()); }),
                MakeColumn("DIRTY", jobs, true, [](const v1::Job& j) { return HumanBytes(j.dirty_bytes()); }),
                MakeColumn("SSD", jobs, true, [](const v1::Job& j) { return HumanBytes(j.ssd_bytes()); }),
                MakeColumn("STALLED", jobs, true,
                           [](const v1::Job& j) { return fmt::format("{:.2f} s", j.stall_seconds_total()); }),
            }));
        if (answer.kept_size() != 0) PrintKept(answer.kept());
        return kExitOk;
      });
}

int ShowJob(const DaemonOptions& options, const std::string& name) {
  return Ask<v1::ListJobsResponse>(
      options, &Stub::ListJobs, v1::ListJobsRequest(), [&](const v1::ListJobsResponse& answer) {
        for (const v1::Job& job : answer.jobs()) {
          if (job.name() == name) return ShowOneJob(options, job);
        }
        return Explain(Error{Code::kNotFound, "no job " + name + " among the " + std::to_string(answer.jobs_size()) +
                                                  " that you may see (tierctl job list)"});
      });
}

int SetJob(const DaemonOptions& options, const JobChange& change) {
  v1::SetJobRequest request;
  request.set_name(change.name);
  if (change.guarantee_bytes) request.set_guarantee_bytes(*change.guarantee_bytes);
  if (change.limit_bytes) request.set_limit_bytes(*change.limit_bytes);
  if (change.ssd_guarantee_bytes) request.set_ssd_guarantee_bytes(*change.ssd_guarantee_bytes);
  if (change.ssd_limit_bytes) request.set_ssd_limit_bytes(*change.ssd_limit_bytes);
  return Ask<v1::Job>(options, &Stub::SetJob, request, [&](const v1::Job& job) { return ShowOneJob(options, job); });
}

int OpenJob(const DaemonOptions& options, const JobChange& job, bool named) {
  v1::OpenJobRequest request;
  request.set_name(job.name);
  request.set_mode(v1::OPEN_MODE_CREATE);
  request.set_named(named);
  request.set_guarantee_bytes(job.guarantee_bytes.value_or(0));
  request.set_limit_bytes(job.limit_bytes.value_or(0));
  request.set_ssd_guarantee_bytes(job.ssd_guarantee_bytes.value_or(0));
  request.set_ssd_limit_bytes(job.ssd_limit_bytes.value_or(0));
  return Ask<v1::Job>(options, &Stub::OpenJob, request,
                      [&](const v1::Job& opened) { return ShowOneJob(options, opened); });
}

int RemoveJob(const DaemonOptions& options, const std::string& name, bool purge) {
  v1::CloseJobRequest request;
  request.set_name(name);
  request.set_forget(purge);
  return Ask<v1::CloseJobResponse>(options, &Stub::CloseJob, request, [&](const v1::CloseJobResponse&) {
    options.output.json ? PrintJson({{"removed", name}}) : fmt::print("removed job {}\n", name);
    return kExitOk;
  });
}

int ListTensors(const DaemonOptions& options, const std::string& job, uint32_t max) {
  v1::ListTensorsRequest request;
  request.set_job(job);
  request.set_max(max);
  return Ask<v1::ListTensorsResponse>(options, &Stub::ListTensors, request, [&](const v1::ListTensorsResponse& answer) {
    if (options.output.json) {
      PrintJson(TensorsJson(answer));
      return kExitOk;
    }
    const auto& tensors = answer.tensors();
    fmt::print(
        "{}",
        RenderTable({
            MakeColumn("TENSOR", tensors, false,
                       [](const v1::Tensor& t) { return t.key().empty() ? fmt::format("{:#x}", t.id()) : t.key(); }),
            MakeColumn("SPACE", tensors, false,
                       [](const v1::Tensor& t) { return t.space() == 0 ? "shared" : std::to_string(t.space()); }),
            MakeColumn("SIZE", tensors, true, [](const v1::Tensor& t) { return HumanBytes(t.size()); }),
            MakeColumn("GENERATION", tensors, true, [](const v1::Tensor& t) { return std::to_string(t.generation()); }),
            MakeColumn("RAM", tensors, true, [](const v1::Tensor& t) { return HumanBytes(t.ram_bytes()); }),
            MakeColumn("SSD", tensors, true, [](const v1::Tensor& t) { return HumanBytes(t.ssd_bytes()); }),
            MakeColumn("LEASES", tensors, true, [](const v1::Tensor& t) { return std::to_string(t.lease_count()); }),
            MakeColumn("STATE", tensors, false,
                       [](const v1::Tensor& t) { return t.torn()     ? "torn"
                                                        : t.sealed() ? "sealed"
                                                                     : "creating"; }),
        }));
    if (answer.truncated()) fmt::print("… more; ask for them with --max\n");
    return kExitOk;
  });
}

int ShowTensor(const DaemonOptions& options, const std::string& job, const std::string& id_or_key) {
  uint64_t id = 0;
  const bool hexadecimal = id_or_key.starts_with("0x");
  const char* begin = id_or_key.data() + (hexadecimal ? 2 : 0);
  const char* end = id_or_key.data() + id_or_key.size();
  const auto [rest, error] = std::from_chars(begin, end, id, hexadecimal ? 16 : 10);
  const bool is_number = error == std::errc() && rest == end;
  v1::ListTensorsRequest request;
  request.set_job(job);
  request.set_max(100'000);
  return Ask<v1::ListTensorsResponse>(options, &Stub::ListTensors, request, [&](const v1::ListTensorsResponse& answer) {
    Json found = Json::array();
    for (const v1::Tensor& tensor : answer.tensors()) {
      if (tensor.key() == id_or_key || (is_number && tensor.id() == id)) found.push_back(ToJson(tensor));
    }
    if (found.empty()) return Explain(Error{Code::kNotFound, "no tensor " + id_or_key + " in job " + job});
    if (options.output.json) {
      PrintJson(found);
      return kExitOk;
    }
    for (const Json& tensor : found) {
      for (const auto& [name, value] : tensor.items()) fmt::print("{:<12}  {}\n", name, value.dump());
    }
    return kExitOk;
  });
}

int ListDevices(const DaemonOptions& options) {
  return Ask<v1::ListDevicesResponse>(options, &Stub::ListDevices, v1::ListDevicesRequest(),
                                      [&](const v1::ListDevicesResponse& answer) {
                                        if (!options.output.json) return PrintDevices(answer.devices());
                                        PrintJson(ToJson(answer));
                                        return kExitOk;
                                      });
}

int DrainDevice(const DaemonOptions& options, uint32_t device, bool undo) {
  v1::DrainDeviceRequest request;
  request.set_device(device);
  request.set_undo(undo);
  return Ask<v1::DrainResponse>(options, &Stub::DrainDevice, request, [&](const v1::DrainResponse&) {
    if (options.output.json) {
      PrintJson({{undo ? "used" : "draining", device}});
    } else {
      fmt::print("device {} is {}\n", device,
                 undo ? "used again" : "being emptied; 'tierctl device list' says what stays on it, and why");
    }
    return kExitOk;
  });
}

int RetryDevice(const DaemonOptions& options, uint32_t device) {
  v1::RetryDeviceRequest request;
  request.set_device(device);
  return Ask<v1::RetryDeviceResponse>(options, &Stub::RetryDevice, request, [&](const v1::RetryDeviceResponse&) {
    if (options.output.json) {
      PrintJson({{"retried", device}});
    } else {
      fmt::print("device {}: its quarantined places are used again when nothing else is left\n", device);
    }
    return kExitOk;
  });
}

int Drain(const DaemonOptions& options, const DrainRequest& asked) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(asked.timeout_s);
  v1::DrainRequest request;
  request.set_job(asked.job);
  request.set_timeout_ms(asked.timeout_s * 1000);
  const std::chrono::milliseconds wait(asked.timeout_s * 1000ll + 10'000);
  const int flushed = Ask<v1::DrainResponse>(
      options, &Stub::Drain, request,
      [&](const v1::DrainResponse&) {
        if (options.output.json) {
          if (!asked.wait) PrintJson({{"drained", asked.job}});
        } else if (asked.job.empty()) {
          fmt::print("tierd takes no new job or process; what was dirty is on SSD\n");
        } else {
          fmt::print("job {}: everything dirty is on SSD\n", asked.job);
        }
        return kExitOk;
      },
      wait);
  return flushed != kExitOk || !asked.wait ? flushed : AwaitLastSession(options, end);
}

int Undrain(const DaemonOptions& options) {
  return Ask<v1::UndrainResponse>(options, &Stub::Undrain, v1::UndrainRequest(), [&](const v1::UndrainResponse&) {
    options.output.json ? PrintJson({{"undrained", true}}) : fmt::print("tierd: new jobs and processes are taken\n");
    return kExitOk;
  });
}

int ShowVersion(const DaemonOptions& options) {
  const auto channel = Connect(options);
  Json document = {{"tierctl", TIER_VERSION}, {"tierd", nullptr}};
  v1::Status status;
  if (channel && (*channel)->Call(&Stub::GetStatus, v1::GetStatusRequest(), &status))
    document["tierd"] = status.version();
  if (options.output.json) {
    PrintJson(document);
  } else {
    fmt::print("tierctl {}\ntierd   {}\n", TIER_VERSION,
               document["tierd"].is_null() ? "not running" : status.version());
  }
  return kExitOk;
}

}  // namespace tier::tierctl
