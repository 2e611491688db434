#include "tools/tierctl/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/mapping.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/doctor.h"
#include "tools/tierctl/event_verbs.h"
#include "tools/tierctl/host_files.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/page_reader.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/report_text.h"
#include "tools/tierctl/run_program.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

constexpr char kConfigFile[] = "/etc/tierd/tierd.toml";  // Where no daemon says which one it has.
constexpr int kStalledJobsMax = 64;
constexpr char kLogLines[] = "5000";

std::string NowText(const char* format) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  std::array<char, 64> text{};
  if (::gmtime_r(&now, &utc) == nullptr) return "unknown";
  return {text.data(), std::strftime(text.data(), text.size(), format, &utc)};
}

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  std::string text(name.data());
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '-';
  }
  return text;
}

// A folder of this user's alone, which goes with it.
class Folder {
 public:
  static Result<Folder> Make() {
    std::string path = (std::filesystem::temp_directory_path() / "tierd-report-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr)
      return Fail(Code::kDenied, fmt::format("cannot make a folder in {}: {}", path, std::strerror(errno)));
    return Folder(std::move(path));
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Folder& operator=(Folder&&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// What a daemon that answers tells.
class Asked {
 public:
  Asked(const control_client::Channel& channel, Bundle* bundle) : channel_(channel), bundle_(bundle) {}

  template <typename ResponseMessage, typename Method, typename RequestMessage>
  ResponseMessage Add(const std::string& name, Method method, const RequestMessage& request) {
    ResponseMessage response;
    const auto called = channel_.Call(method, request, &response);
    called ? bundle_->Add(name, RenderJson(ToJson(response)) + "\n") : bundle_->Miss(name, called.error().message);
    return response;
  }

  v1::ListJobsResponse AddJobs() {
    v1::ListJobsResponse jobs;
    v1::ListJobsRequest request;
    request.set_with_tokens(false);
    const auto called = channel_.CallPages(&Stub::ListJobs, request, &jobs);
    called ? bundle_->Add("jobs.json", RenderJson(ToJson(jobs)) + "\n")
           : bundle_->Miss("jobs.json", called.error().message);
    return jobs;
  }

  void AddStalls(const v1::ListJobsResponse& jobs) {
    Json stalls = Json::object();
    for (int i = 0; i < jobs.jobs_size() && i < kStalledJobsMax; ++i) {
      const v1::Job& job = jobs.jobs(i);
      const std::string whole_name = fmt::format("{}/{}", job.uid(), job.name());
      v1::ListStallsRequest request;
      request.set_job(NameForDaemon(job, IsForAdministrators(channel_)));
      v1::ListStallsResponse response;
      if (const auto called = channel_.Call(&Stub::ListStalls, request, &response); called) {
        stalls[whole_name] = ToJson(response);
      } else {
        bundle_->Miss("stalls.json", fmt::format("those of job {}: {}", whole_name, called.error().message));
      }
    }
    bundle_->Add("stalls.json", RenderJson(stalls) + "\n");
    if (jobs.jobs_size() > kStalledJobsMax)
      bundle_->Miss("stalls.json", fmt::format("those of {} more jobs", jobs.jobs_size() - kStalledJobsMax));
  }

 private:
  const control_client::Channel& channel_;
  Bundle* const bundle_;
};

void AddConfigFile(const std::string& path, Bundle* bundle) {
  const auto text = ReadHostFile(path);
  text ? bundle->Add("config-file.toml", *text) : bundle->Miss("config-file.toml", text.error().message);
}

void AddEvents(const DaemonOptions& options, Bundle* bundle) {
  Json events = Json::array();
  const Error end = ReadRecent(options, 0, [&](const v1::Event& event) { events.push_back(ToJson(event)); });
  end.code == Code::kOk ? bundle->Add("events.json", RenderJson({{"events", events}}) + "\n")
                        : bundle->Miss("events.json", end.message);
}

void AddMetrics(const std::string& address, Bundle* bundle) {
  if (address.empty()) return bundle->Miss("metrics.txt", "the daemon serves none (metrics.listen)");
  const auto page = ReadPage(address, "/metrics");
  page ? bundle->Add("metrics.txt", *page) : bundle->Miss("metrics.txt", page.error().message);
}

void AddLog(Bundle* bundle) {
  const auto log = RunProgram(
      {"journalctl", "--unit=tierd", "--no-pager", "--output=short-iso-precise", std::string("--lines=") + kLogLines});
  const std::string elsewhere = "; a daemon that was started by hand may log to its standard error: attach that";
  if (!log) return bundle->Miss("log.txt", log.error().message + elsewhere);
  if (log->empty() || log->starts_with("-- No entries"))
    return bundle->Miss("log.txt", "journalctl has no line of the unit tierd for this user" + elsewhere);
  bundle->Add("log.txt", *log);
}

// The paths whose file systems matter.
std::vector<std::string> PathsOf(const v1::NodeStatus& status) {
  std::vector<std::string> paths;
  if (!status.data_directory().empty()) paths.push_back(status.data_directory());
  for (const v1::Device& device : status.devices()) paths.push_back(device.path());
  if (paths.empty()) paths.push_back("/var/lib/tierd");
  return paths;
}

// Whether what is named by who answers may be read.
Status CheckAnswering() { return CheckPeers(PeersOfOwnSockets(), ::geteuid(), SystemUser()); }

void AddWhatItNames(const v1::ListOptionsResponse& config, const v1::NodeStatus& status, Bundle* bundle) {
  if (config.file().empty()) {
    bundle->Miss("config-file.toml", "the daemon was started without one");
  } else {
    AddConfigFile(config.file(), bundle);
  }
  AddMetrics(status.metrics_address(), bundle);
}

struct Told {
  v1::NodeStatus status;
  Result<int64_t> pid;
};

Told AddDaemon(const DaemonOptions& options, Bundle* bundle) {
  const auto channel = Connect(options);
  if (!channel) {
    for (const char* const name : {"status.json", "devices.json", "config-running.json", "jobs.json", "stalls.json",
                                   "pool.json", "quotas.json", "events.json", "metrics.txt"}) {
      bundle->Miss(name, channel.error().message);
    }
    AddConfigFile(kConfigFile, bundle);
    return {.status = {}, .pid = Fail(Code::kDisconnected, "no daemon answers")};
  }
  Status believed = CheckAnswering();
  Asked daemon(**channel, bundle);
  const auto status = daemon.Add<v1::GetStatusResponse>("status.json", &Stub::GetStatus, v1::GetStatusRequest());
  daemon.Add<v1::ListDevicesResponse>("devices.json", &Stub::ListDevices, v1::ListDevicesRequest());
  const auto config =
      daemon.Add<v1::ListOptionsResponse>("config-running.json", &Stub::ListOptions, v1::ListOptionsRequest());
  daemon.AddStalls(daemon.AddJobs());
  daemon.Add<v1::GetPoolMapResponse>("pool.json", &Stub::GetPoolMap, v1::GetPoolMapRequest());
  daemon.Add<v1::ListQuotasResponse>("quotas.json", &Stub::ListQuotas, v1::ListQuotasRequest());
  if (believed) believed = CheckAnswering();  // Again: the channel may have reconnected.
  AddEvents(options, bundle);
  if (!believed) {
    for (const char* const name : {"config-file.toml", "metrics.txt"}) bundle->Miss(name, believed.error().message);
    return {.status = status.status(), .pid = std::unexpected(believed.error())};
  }
  AddWhatItNames(config, status.status(), bundle);
  if (status.status().pid() == 0)
    return {.status = status.status(), .pid = Fail(Code::kNotFound, "the daemon does not say which process it is")};
  return {.status = status.status(), .pid = status.status().pid()};
}

Bundle Gather(const DaemonOptions& options, const std::string& made_at) {
  Bundle bundle;
  const auto [status, pid] = AddDaemon(options, &bundle);
  const Json version = {{"tierctl", TIER_VERSION},
                        {"tierd", status.version().empty() ? Json(nullptr) : Json(status.version())}};
  bundle.Add("version.json", RenderJson(version) + "\n");
  bundle.Add("doctor.json", RenderJson({{"findings", ToJson(Diagnose(options))}}) + "\n");
  AddKernelFacts("", pid, PathsOf(status), &bundle);
  AddLog(&bundle);
  bundle.files.emplace(bundle.files.begin(), "README.txt", ReadmeOf(bundle, made_at));
  return bundle;
}

Status WriteFiles(const Bundle& bundle, const std::filesystem::path& folder) {
  for (const auto& [name, text] : bundle.files) {
    std::error_code error;
    std::filesystem::create_directories((folder / name).parent_path(), error);
    std::ofstream file(folder / name, std::ios::binary);
    if (error || !(file << text).flush()) {
      return Fail(Code::kNoSpace,
                  fmt::format("cannot write {}: set TMPDIR to a folder with room", (folder / name).string()));
    }
  }
  return {};
}

// A file that is there may be a report that was not sent yet, or anything.
Status Pack(const Bundle& bundle, const std::string& name, const std::string& path) {
  auto folder = Folder::Make();
  if (!folder) return std::unexpected(std::move(folder.error()));
  if (Status written = WriteFiles(bundle, std::filesystem::path(folder->path()) / name); !written) return written;
  const proto::FileDescriptor out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!out) return std::unexpected(NotWritten(path, errno));
  const auto packed = RunProgram({"tar", "--create", "--gzip", "--file=-", "--sort=name", "--owner=0", "--group=0",
                                  "--numeric-owner", "--directory=" + folder->path(), name},
                                 {.output = out.get()});
  if (packed) return {};
  (void)::unlink(path.c_str());
  return std::unexpected(packed.error());
}

int Say(const Bundle& bundle, const std::string& path, const OutputOptions& output) {
  if (output.json) {
    Json files = Json::array();
    for (const auto& [name, text] : bundle.files) files.push_back(name);
    Json missing = Json::array();
    for (const auto& [name, why] : bundle.missing) missing.push_back({{"file", name}, {"reason", why}});
    PrintJson({{"report", path}, {"files", files}, {"missing", missing}});
    return kExitOk;
  }
  fmt::print("wrote {} with {} files; it has names of jobs and tensors, and no token\n", Printable(path),
             bundle.files.size());
  for (const std::string& line : MissingLines(bundle)) fmt::print("missing: {}\n", Printable(line));
  return kExitOk;
}

}  // namespace

Error NotWritten(const std::string& path, int error) {
  const std::string what = fmt::format("cannot write {}: ", path);
  switch (error) {
    case EEXIST: return {Code::kAlreadyExists, what + "it is there already; choose another -o"};
    case ENOENT:
    case ENOTDIR: {
      const std::string folder = std::filesystem::path(path).parent_path().string();
      return {Code::kNotFound, what + fmt::format("the folder {} does not exist", folder.empty() ? "." : folder)};
    }
    case EACCES:
    case EPERM:
    case EROFS: return {Code::kDenied, what + std::strerror(error)};
    case ENOSPC:
    case EDQUOT: return {Code::kNoSpace, what + std::strerror(error)};
    default: return {Code::kInvalid, what + std::strerror(error)};
  }
}

std::string NameForDaemon(const v1::Job& job, bool administrator) {
  return administrator ? fmt::format("{}/{}", job.uid(), job.name()) : job.name();
}

int WriteReport(const DaemonOptions& options, const std::string& path) {
  const std::string name = fmt::format("tierd-report-{}-{}", HostName(), NowText("%Y%m%dT%H%M%SZ"));
  const std::string file = path.empty() ? name + ".tar.gz" : path;
  const Bundle bundle = Gather(options, NowText("%F %T UTC"));
  if (const Status packed = Pack(bundle, name, file); !packed) return Explain(packed.error());
  return Say(bundle, file, options.output);
}

}  // namespace tier::tierctl
