#include "tools/tierctl/readings.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "daemon/base/counted.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/node_text.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/socket_verbs.h"

namespace tier::tierctl {
namespace {

constexpr size_t kDevicesPart = 3;           // A third of a screen at most is for devices.
constexpr size_t kWrappedHeadLinesMin = 20;  // Of a screen.

// Of a counter that may have begun again.
std::optional<double> Rate(double before, double now, double seconds) {
  if (seconds <= 0 || now < before) return std::nullopt;
  return (now - before) / seconds;
}

double AsDouble(uint64_t number) { return static_cast<double>(number); }

TopJob CompareJob(const v1::Job* before, const v1::Job& now, double seconds) {
  TopJob job{.id = now.id(),
             .name = now.name(),
             .uid = now.uid(),
             .owner = now.owner(),
             .ram_bytes = now.ram_bytes(),
             .held_bytes = now.held_bytes(),
             .ssd_bytes = now.ssd_bytes()};
  if (before == nullptr || seconds <= 0) return job;
  const auto hits = Rate(AsDouble(before->acquire_hits_total()), AsDouble(now.acquire_hits_total()), seconds);
  const auto misses = Rate(AsDouble(before->acquire_misses_total()), AsDouble(now.acquire_misses_total()), seconds);
  if (hits && misses && *hits + *misses > 0) job.hit_ratio = *hits / (*hits + *misses);
  job.stall_share = Rate(before->stall_seconds_total(), now.stall_seconds_total(), seconds);
  job.in_rate = Rate(AsDouble(before->swap_in_bytes_total()), AsDouble(now.swap_in_bytes_total()), seconds);
  job.out_rate = Rate(AsDouble(before->swap_out_bytes_total()), AsDouble(now.swap_out_bytes_total()), seconds);
  return job;
}

TopDevice CompareDevice(const v1::Device* before, const v1::Device& now, double seconds) {
  TopDevice device{.index = now.index(),
                   .path = now.path(),
                   .free_bytes = now.free_bytes(),
                   .live_bytes = now.live_bytes(),
                   .errors = now.errors_total(),
                   .state = now.draining() ? "draining" : WordOf(now.state())};
  if (before == nullptr) return device;
  device.read_rate = Rate(AsDouble(before->read_bytes_total()), AsDouble(now.read_bytes_total()), seconds);
  device.write_rate = Rate(AsDouble(before->written_bytes_total()), AsDouble(now.written_bytes_total()), seconds);
  return device;
}

std::string PercentText(std::optional<double> ratio) {
  return ratio ? fmt::format("{:.1f} %", 100 * *ratio) : std::string("-");
}

double SumOf(const std::vector<TopJob>& jobs, std::optional<double> TopJob::* rate) {
  double sum = 0;
  for (const TopJob& job : jobs) sum += (job.*rate).value_or(0);
  return sum;
}

// On a screen of few lines each of its own is one.
std::string Head(const TopView& view, size_t screen_lines, const OutputOptions& output) {
  const v1::NodeStatus& status = view.status;
  const std::string lack = LackText(status);
  std::string text;
  // All that a daemon lacks may take the whole screen: `tierctl status` has the rest of it.
  const auto line = [&](const std::string& words) {
    const std::string shown = Printable(words);
    text += (output.width == 0 ? shown : CutToWidth(shown, output.width, "...", CutAt::kEnd)) + "\n";
  };
  const auto lines = [&](const std::string& words) {
    if (screen_lines != 0 && screen_lines < kWrappedHeadLinesMin) return line(words);
    text += Wrapped(Printable(words), output.width, 0) + "\n";
  };
  line(fmt::format("tierd {}  up {} s  {}", status.version(), status.uptime().seconds(), lack.empty() ? "ok" : lack));
  lines(fmt::format("arena {} of {}, {} free; host {} free; {} waiting", HumanBytes(status.arena_bytes()),
                    HumanBytes(status.arena_max_bytes()), HumanBytes(status.arena_free_bytes()),
                    HumanBytes(status.host_available_bytes()), status.waiting_count()));
  lines(fmt::format("{}, {}; in {}, out {}", base::Counted(view.jobs.size(), "job"),
                    base::Counted(status.tensor_count(), "tensor"), RateText(SumOf(view.jobs, &TopJob::in_rate)),
                    RateText(SumOf(view.jobs, &TopJob::out_rate))));
  return text;
}

std::string JobTable(const std::vector<TopJob>& jobs, const OutputOptions& output) {
  const auto name = [](const TopJob& job) { return fmt::format("{}/{}", UserText(job.uid, job.owner), job.name); };
  return RenderTable(
      {MakeColumn("JOB", jobs, false, name),
       MakeColumn("RAM", jobs, true, [](const TopJob& job) { return HumanBytes(job.ram_bytes); }),
       DroppedAs(1, MakeColumn("HELD", jobs, true, [](const TopJob& job) { return HumanBytes(job.held_bytes); })),
       DroppedAs(2, MakeColumn("SSD", jobs, true, [](const TopJob& job) { return HumanBytes(job.ssd_bytes); })),
       DroppedAs(3, MakeColumn("HITS", jobs, true, [](const TopJob& job) { return PercentText(job.hit_ratio); })),
       MakeColumn("WAITS", jobs, true, [](const TopJob& job) { return PercentText(job.stall_share); }),
       MakeColumn("IN", jobs, true, [](const TopJob& job) { return RateText(job.in_rate); }),
       DroppedAs(4, MakeColumn("OUT", jobs, true, [](const TopJob& job) { return RateText(job.out_rate); }))},
      output);
}

std::string DeviceTable(const std::vector<TopDevice>& devices, const OutputOptions& output) {
  return RenderTable(
      {MakeColumn("DEV", devices, true, [](const TopDevice& device) { return std::to_string(device.index); }),
       DroppedAs(2, MakeColumn("PATH", devices, false, [](const TopDevice& device) { return device.path; })),
       DroppedAs(
           3, MakeColumn("FREE", devices, true, [](const TopDevice& device) { return HumanBytes(device.free_bytes); })),
       DroppedAs(
           1, MakeColumn("LIVE", devices, true, [](const TopDevice& device) { return HumanBytes(device.live_bytes); })),
       MakeColumn("READ", devices, true, [](const TopDevice& device) { return RateText(device.read_rate); }),
       MakeColumn("WRITTEN", devices, true, [](const TopDevice& device) { return RateText(device.write_rate); }),
       DroppedAs(4, MakeColumn("ERRORS", devices, true,
                               [](const TopDevice& device) { return std::to_string(device.errors); })),
       MakeColumn("STATE", devices, false, [](const TopDevice& device) { return device.state; })},
      output);
}

size_t LinesOf(const std::string& text) { return static_cast<size_t>(std::ranges::count(text, '\n')); }

// Below an empty line; those that do not fit are counted.
std::string DevicesWithin(std::vector<TopDevice> devices, size_t lines, const OutputOptions& output) {
  size_t hidden = 0;
  std::string text = devices.empty() ? "" : "\n" + DeviceTable(devices, output);
  while (!devices.empty() && LinesOf(text) > lines) {
    devices.pop_back();
    ++hidden;
    text = "\n" + (devices.empty() ? "" : DeviceTable(devices, output)) + fmt::format("{} more devices\n", hidden);
  }
  return text;
}

Json OrNull(std::optional<double> number) { return number ? Json(*number) : Json(nullptr); }

}  // namespace

TopView CompareReadings(const Reading* before, const Reading& now) {
  TopView view{.status = now.status};
  const bool comparable = before != nullptr && before->status.epoch() == now.status.epoch();
  if (comparable) view.interval_seconds = now.seconds - before->seconds;
  for (const v1::Job& job : now.jobs.jobs()) {
    const v1::Job* earlier = nullptr;
    for (int i = 0; comparable && i < before->jobs.jobs_size() && earlier == nullptr; ++i) {
      if (before->jobs.jobs(i).id() == job.id()) earlier = &before->jobs.jobs(i);
    }
    view.jobs.push_back(CompareJob(earlier, job, view.interval_seconds));
  }
  for (int i = 0; i < now.status.devices_size(); ++i) {
    const bool was_there = comparable && i < before->status.devices_size();
    view.devices.push_back(
        CompareDevice(was_there ? &before->status.devices(i) : nullptr, now.status.devices(i), view.interval_seconds));
  }
  return view;
}

std::optional<TopOrder> OrderOfKey(char key) {
  switch (key) {
    case 'r': return TopOrder::kRam;
    case 'h': return TopOrder::kHeld;
    case 's': return TopOrder::kSsd;
    case 'm': return TopOrder::kMisses;
    case 'w': return TopOrder::kWaits;
    case 'i': return TopOrder::kIn;
    case 'o': return TopOrder::kOut;
    case 'n': return TopOrder::kName;
    default: return std::nullopt;
  }
}

void SortJobs(std::vector<TopJob>* jobs, TopOrder order) {
  const auto figure = [order](const TopJob& job) -> double {
    switch (order) {
      case TopOrder::kRam: return AsDouble(job.ram_bytes);
      case TopOrder::kHeld: return AsDouble(job.held_bytes);
      case TopOrder::kSsd: return AsDouble(job.ssd_bytes);
      case TopOrder::kMisses: return 1 - job.hit_ratio.value_or(1);
      case TopOrder::kWaits: return job.stall_share.value_or(0);
      case TopOrder::kIn: return job.in_rate.value_or(0);
      case TopOrder::kOut: return job.out_rate.value_or(0);
      case TopOrder::kName: return 0;
    }
    return 0;
  };
  std::ranges::sort(*jobs, {}, [&](const TopJob& job) { return std::tuple(-figure(job), job.name, job.uid); });
}

std::string RateText(std::optional<double> rate) {
  return rate ? HumanBytes(static_cast<uint64_t>(*rate)) + "/s" : std::string("-");
}

std::string RenderTop(const TopView& view, TopOrder order, size_t lines, const OutputOptions& output) {
  const std::string head = Head(view, lines, output) + "\n";
  const std::string below = DevicesWithin(view.devices, lines == 0 ? SIZE_MAX : lines / kDevicesPart, output);
  std::vector<TopJob> jobs = view.jobs;
  SortJobs(&jobs, order);
  std::string table = JobTable(jobs, output);
  const size_t left = lines == 0 ? SIZE_MAX : lines - std::min(lines, LinesOf(head) + LinesOf(below));
  size_t hidden = 0;
  while (!jobs.empty() && LinesOf(table) + (hidden != 0 ? 1 : 0) > left) {
    const size_t per_job = LinesOf(table) / jobs.size() + 1;
    const size_t excess = LinesOf(table) + 1 - left;
    const size_t less = std::min(jobs.size(), std::max<size_t>(excess / per_job, 1));
    hidden += less;
    jobs.resize(jobs.size() - less);
    table = JobTable(jobs, output);
  }
  if (hidden != 0) table += fmt::format("{} more jobs\n", hidden);
  return head + table + below;
}

Json TopJson(const TopView& view) {
  Json jobs = Json::array();
  for (const TopJob& job : view.jobs) {
    jobs.push_back({{"id", std::to_string(job.id)},
                    {"name", job.name},
                    {"uid", job.uid},
                    {"owner", job.owner},
                    {"ram_bytes", job.ram_bytes},
                    {"held_bytes", job.held_bytes},
                    {"ssd_bytes", job.ssd_bytes},
                    {"hit_ratio", OrNull(job.hit_ratio)},
                    {"stall_share", OrNull(job.stall_share)},
                    {"swap_in_bytes_per_second", OrNull(job.in_rate)},
                    {"swap_out_bytes_per_second", OrNull(job.out_rate)}});
  }
  Json devices = Json::array();
  for (const TopDevice& device : view.devices) {
    devices.push_back({{"index", device.index},
                       {"path", device.path},
                       {"free_bytes", device.free_bytes},
                       {"live_bytes", device.live_bytes},
                       {"errors_total", device.errors},
                       {"state", device.state},
                       {"read_bytes_per_second", OrNull(device.read_rate)},
                       {"written_bytes_per_second", OrNull(device.write_rate)}});
  }
  return {{"interval_seconds", view.interval_seconds},
          {"epoch", std::to_string(view.status.epoch())},
          {"arena_bytes", view.status.arena_bytes()},
          {"arena_stock_bytes", view.status.arena_stock_bytes()},
          {"arena_free_bytes", view.status.arena_free_bytes()},
          {"host_available_bytes", view.status.host_available_bytes()},
          {"waiting_count", view.status.waiting_count()},
          {"draining", view.status.draining()},
          {"degraded", !view.status.degraded_by().empty()},
          {"jobs", jobs},
          {"devices", devices}};
}

}  // namespace tier::tierctl
