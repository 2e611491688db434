#include "daemon/host_check.h"

#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/config_changes.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/quota_book.h"
#include "daemon/ssd_devices.h"
#include "daemon/storage/file_system.h"
#include "daemon/storage/smart_file.h"
#include "daemon/storage/start_plan.h"
#include "daemon/user_quotas.h"

namespace tier {
namespace {

// It is a directory, or can be made as one: what is there of its path is a directory.
Status CheckDirectory(const char* option, const std::string& directory) {
  const std::string there = storage::ExistingPartOf(directory);
  std::error_code error;
  if (std::filesystem::is_directory(there, error)) return {};
  const std::string why = error ? error.message() : "not a directory";
  return Fail(Code::kInvalid, fmt::format("{} is {}, and {} is in the way: {}", option, directory, there, why));
}

// What root's tierd-smart would refuse to replace. What this user may not read is for tierd-smart to say.
Status CheckSmartFile(const std::string& path) {
  if (path.empty()) return {};
  Status target = storage::CheckSmartTarget(path);
  if (target || target.error().code != Code::kInvalid) return {};
  return Fail(Code::kInvalid, "ssd.smart_file: " + target.error().message);
}

}  // namespace

Result<std::vector<std::string>> CheckHostPaths(const config::Config& config, const DaemonPaths& paths) {
  if (auto ok = CheckDirectory("daemon.socket_directory", paths.socket_directory); !ok)
    return std::unexpected(std::move(ok.error()));
  if (auto ok = CheckDirectory("daemon.data_directory", paths.data_directory); !ok)
    return std::unexpected(std::move(ok.error()));
  if (auto ok = CheckSmartFile(SmartFileOf(config)); !ok) return std::unexpected(std::move(ok.error()));
  storage::SsdTierOptions options;
  options.devices = SsdDevicesOf(config, paths);
  std::erase_if(options.devices, [](const storage::SsdDeviceOptions& device) { return device.private_file; });
  if (options.devices.empty()) return std::vector<std::string>();
  options.data_dir = paths.persistent ? paths.data_directory : std::string();
  options.allow_any_file_system = config.ssd.any_file_system;
  auto notes = storage::PlanStart(options);
  if (notes || config.ssd.devices.empty()) return notes;
  return Fail(notes.error().code, "ssd.devices: " + notes.error().message);
}

std::vector<std::string> CheckQuotaNames(const config::Config& config, const DaemonPaths& paths,
                                         session::UserDirectory& system) {
  auto stored = paths.persistent ? session::LoadOwners(session::OwnersPath(paths.data_directory))
                                 : Result<session::OwnerRecords>();
  // One that cannot be read is for the start to refuse.
  const session::OwnerTable owners({}, stored ? std::move(*stored) : session::OwnerRecords());
  session::OwnerDirectory users(owners, system);
  const base::SteadyClock clock;
  session::QuotaBook book({.table = config.quota, .ssd = {}, .jobs = {}, .file = {}}, {}, users, clock);
  std::vector<std::string> notes;
  for (const std::string& name : book.ListUnknown()) notes.push_back(UnknownQuotaText(name));
  return notes;
}

}  // namespace tier
