#include "daemon/host_check.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/config/option_values.h"
#include "daemon/config/options.h"
#include "daemon/config_changes.h"
#include "daemon/host_limits.h"
#include "daemon/memory/host_memory.h"
#include "daemon/metrics/http_endpoint.h"
#include "daemon/process_limits.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/quota_book.h"
#include "daemon/session/quota_file.h"
#include "daemon/ssd_devices.h"
#include "daemon/storage/file_system.h"
#include "daemon/storage/known_devices.h"
#include "daemon/storage/smart_file.h"
#include "daemon/storage/start_plan.h"
#include "daemon/user_quotas.h"

namespace tier {
namespace {

using base::FormatBytes;

// Where no process makes a directory or a file, whatever the rights say.
bool IsKernels(const std::string& directory) {
  struct statfs about{};
  return ::statfs(directory.c_str(), &about) == 0 && (about.f_type == PROC_SUPER_MAGIC || about.f_type == SYSFS_MAGIC);
}

// It is a directory that may be written, or can be made as one: what is there of its path is a directory. What only
// this user may not do is a note.
Status CheckDirectory(const char* option, const std::string& directory, std::vector<std::string>* notes) {
  const std::string there = storage::ExistingPartOf(directory);
  std::error_code error;
  if (!std::filesystem::is_directory(there, error)) {
    const std::string why = error ? error.message() : "not a directory";
    return Fail(Code::kInvalid, fmt::format("{} is {}, and {} is in the way: {}", option, directory, there, why));
  }
  const bool may = ::faccessat(AT_FDCWD, there.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  const int refused = IsKernels(there) ? EPERM : may ? 0 : errno;
  if (refused == EPERM || refused == EROFS) {
    return Fail(Code::kDenied, fmt::format("{} is {}, and nothing can be made in {}: {}", option, directory, there,
                                           std::generic_category().message(refused)));
  }
  if (refused != 0) {
    notes->push_back(fmt::format("{}: not checked whether {} may be written, as this user may not: {}", option, there,
                                 std::generic_category().message(refused)));
  }
  return {};
}

constexpr uint64_t kSessionDescriptors = 2;  // Its socket, and a pidfd of its process.

// What was set at run time. What this user may not read is a note.
Status CheckDataFiles(const std::string& directory, std::vector<std::string>* notes) {
  const auto quotas = session::LoadQuotas(session::QuotasPath(directory));
  const auto owners = session::LoadOwners(session::OwnersPath(directory));
  for (const Error* error : {quotas ? nullptr : &quotas.error(), owners ? nullptr : &owners.error()}) {
    if (error == nullptr) continue;
    if (error->code != Code::kDenied) return std::unexpected(*error);
    notes->push_back(fmt::format("daemon.data_directory: not checked: {}", error->message));
  }
  return {};
}

}  // namespace

// What this user may not read is for tierd-smart to say.
Status CheckSmartFile(const config::Config& config) {
  const std::string path = SmartFileOf(config);
  if (path.empty()) return {};
  Status target = storage::CheckSmartTarget(path);
  if (target || target.error().code != Code::kInvalid) return {};
  return Fail(Code::kInvalid, "ssd.smart_file: " + target.error().message);
}

Result<std::vector<std::string>> CheckHostPaths(const config::Config& config, const DaemonPaths& paths) {
  std::vector<std::string> notes;
  if (auto ok = CheckDirectory("daemon.socket_directory", paths.socket_directory, &notes); !ok)
    return std::unexpected(std::move(ok.error()));
  if (auto ok = CheckDirectory("daemon.data_directory", paths.data_directory, &notes); !ok)
    return std::unexpected(std::move(ok.error()));
  if (auto ok = paths.persistent ? CheckDataFiles(paths.data_directory, &notes) : Status(); !ok)
    return std::unexpected(std::move(ok.error()));
  if (auto ok = CheckSmartFile(config); !ok) return std::unexpected(std::move(ok.error()));
  storage::SsdTierOptions options;
  options.devices = SsdDevicesOf(config, paths);
  std::erase_if(options.devices, [](const storage::SsdDeviceOptions& device) { return device.private_file; });
  if (options.devices.empty()) return notes;
  options.data_dir = paths.persistent ? paths.data_directory : std::string();
  options.allow_any_file_system = config.ssd.any_file_system;
  auto planned = storage::PlanStart(options);
  if (!planned && config.ssd.devices.empty()) return planned;
  if (!planned) return Fail(planned.error().code, "ssd.devices: " + planned.error().message);
  notes.insert(notes.end(), std::make_move_iterator(planned->begin()), std::make_move_iterator(planned->end()));
  return notes;
}

std::vector<std::string> DescribeSizes(const config::Config& config, const DaemonPaths& paths) {
  const auto host = memory::ReadHost();
  if (!host) return {};
  const auto arena = ArenaSizesOn(*host, config.arena);
  if (!arena) return {};
  const uint64_t records = config.jobs.max_metadata;
  const std::string parts = fmt::format("{} for tensors (arena.maximum), {} for records of a user (jobs.max_metadata)",
                                        FormatBytes(arena->max_bytes), FormatBytes(records));
  if (!paths.persistent) {
    return {fmt::format("memory: {} with one user and a full arena, beside the program itself: {}",
                        FormatBytes(arena->max_bytes + records), parts)};
  }
  const std::string path = storage::IndexPath(paths.data_directory);
  const uint64_t index = storage::IndexBytes(paths.data_directory);
  return {fmt::format("memory: {} with one user and a full arena, beside the program itself: {}, {} for the index, as "
                      "page cache, which the kernel takes back where memory is short",
                      FormatBytes(arena->max_bytes + records + index), parts, FormatBytes(index)),
          fmt::format("disk: {} for the index {}, beside the SSD files; it grows with what jobs persist",
                      FormatBytes(index), path)};
}

std::vector<std::string> CheckQuotaNames(const config::Config& config, const DaemonPaths& paths,
                                         session::UserDirectory& system) {
  auto stored = paths.persistent ? session::LoadOwners(session::OwnersPath(paths.data_directory))
                                 : Result<session::OwnerRecords>();
  // One that cannot be read is told by CheckHostPaths.
  const session::OwnerTable owners({}, stored ? std::move(*stored) : session::OwnerRecords());
  session::OwnerDirectory users(owners, system);
  const base::SteadyClock clock;
  session::QuotaBook book({.table = config.quota, .ssd = {}, .jobs = {}, .file = {}}, {}, users, clock);
  std::vector<std::string> notes;
  for (const std::string& name : book.ListUnknown()) notes.push_back(UnknownQuotaText(name));
  return notes;
}

namespace {

// The group of the package, for which no option asked, is missing where tierd was not installed by one.
bool AsksForAdminGroup(const config::DaemonConfig& config) {
  const bool by_default = config.admin_group == config::DefaultConfig().daemon.admin_group;
  return !config.is_private && !config.admin_group.empty() && !by_default;
}

}  // namespace

std::string CheckAdminGroup(const config::DaemonConfig& config, session::UserDirectory& system) {
  if (!AsksForAdminGroup(config)) return {};
  const auto group = system.FindGroupId(config.admin_group);
  if (group) return {};
  return fmt::format("daemon.admin_group is {}, and only root and the daemon's own user may administer: {}",
                     config.admin_group, group.error().message);
}

std::string CheckDeadlines(const config::Config& config) {
  if (config.daemon.is_private) return {};
  if (config.engine.deadline > config.jobs.reclaim_deadline) return {};
  const auto text = [&](std::string_view key) { return config::ValueText(*config::FindOption(key), config); };
  return fmt::format(
      "engine.deadline is {} and jobs.reclaim_deadline {}: a request that names no deadline is refused "
      "before what its job is promised is taken from leases of others; let engine.deadline be the "
      "longer one by some seconds",
      text("engine.deadline"), text("jobs.reclaim_deadline"));
}

std::string CheckSessionsMax(const config::Config& config, uint64_t open_files) {
  const uint64_t sessions = config.jobs.max_sessions;
  if (config.daemon.is_private || sessions <= open_files / kSessionDescriptors) return {};
  return fmt::format(
      "jobs.max_sessions is {}, and tierd may have {} open files: a session takes {} of them, and further processes "
      "are refused; raise LimitNOFILE= of the unit (ulimit -n), or lower the option",
      sessions, open_files, kSessionDescriptors);
}

std::string CheckMetadataMax(const config::Config& config, uint64_t memory) {
  const uint64_t records = config.jobs.max_metadata;
  if (config.daemon.is_private || records <= memory) return {};
  return fmt::format(
      "jobs.max_metadata is {}, and tierd may have {} of memory in all: the records of one user can take all of it; "
      "lower the option",
      FormatBytes(records), FormatBytes(memory));
}

std::vector<std::string> CheckTogether(const config::Config& config, std::string_view key) {
  std::vector<std::string> warnings;
  const auto concerns = [key](std::string_view option) { return key.empty() || key == option; };
  if (concerns("engine.deadline") || concerns("jobs.reclaim_deadline")) warnings.push_back(CheckDeadlines(config));
  if (concerns("jobs.max_sessions")) warnings.push_back(CheckSessionsMax(config, OpenFileLimitMax()));
  if (concerns("jobs.max_metadata")) {
    const auto host = memory::ReadHost();
    if (host) warnings.push_back(CheckMetadataMax(config, host->memory_limit()));
  }
  std::erase(warnings, "");
  return warnings;
}

std::string CheckMetricsReload(const config::Config& config) {
  const std::string& listen = config.metrics.listen;
  if (listen.empty() || listen == "auto" || !metrics::NamesAHost(listen)) return {};
  return fmt::format(
      "metrics.listen is {}: a reload that changes it is refused, as only a start asks for the address of a name; "
      "write an address",
      listen);
}

std::string CheckAdminSocket(const config::DaemonConfig& config, session::UserDirectory& system,
                             const std::string& socket) {
  if (!AsksForAdminGroup(config)) return {};
  const auto group = system.FindGroupId(config.admin_group);
  struct stat about{};
  if (!group || ::stat(socket.c_str(), &about) != 0 || about.st_gid == *group) return {};
  return fmt::format(
      "daemon.admin_group is {0}, and only root and the daemon's own user may administer: {1} stays with "
      "group {2}, as a process that is not in group {0} may not give it away; add "
      "SupplementaryGroups={0} to the unit (systemctl edit tierd) and restart",
      config.admin_group, socket, about.st_gid);
}

}  // namespace tier
