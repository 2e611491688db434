#include "tools/smart/look.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/detached_calls.h"

namespace tier::smart {
namespace {

using storage::SmartDevice;
using storage::SmartReport;

// The answers of all, each from a thread of its own. One that hangs has an answer too: that it does.
template <typename T>
std::vector<Result<T>> AskAll(const std::vector<std::string>& names,
                              const std::function<Result<T>(const std::string&)>& ask, const LookParts& parts) {
  base::DetachedCalls<Result<T>> calls;
  std::vector<std::optional<Result<T>>> answers(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    Status started = calls.Start(i, "tierd-smart", [ask, name = names[i]] { return ask(name); });
    if (!started) answers[i].emplace(Fail(started.error().code, names[i] + ": " + started.error().message));
  }
  if (!parts.gives_up) calls.WaitAtMost(kAnswerLimit);
  std::vector<std::string> unanswered;
  do {
    unanswered.clear();
    for (size_t i = 0; i < names.size(); ++i) {
      if (answers[i]) continue;
      if (auto answer = calls.Take(i)) {
        answers[i].emplace(std::move(*answer));
      } else {
        unanswered.push_back(names[i]);
      }
    }
  } while (!unanswered.empty() && parts.gives_up && !parts.gives_up(unanswered));
  std::vector<Result<T>> all;
  for (size_t i = 0; i < names.size(); ++i) {
    all.push_back(answers[i] ? std::move(*answers[i])
                             : Fail(Code::kIoError,
                                    fmt::format("{}: it has not answered for {} s", names[i], kAnswerLimit.count())));
  }
  return all;
}

// Those that can stand in the file, each once.
std::vector<std::string> PathsToAsk(const std::vector<std::string>& paths, const LookParts& parts) {
  std::vector<std::string> asked;
  for (const std::string& path : paths) {
    if (std::ranges::find(asked, path) != asked.end()) continue;
    if (storage::IsSmartPath(path) && asked.size() < storage::kSmartDevicesMax) {
      asked.push_back(path);
    } else {
      parts.warn(fmt::format("{}: left out: its name has control characters, or there are too many devices", path));
    }
  }
  return asked;
}

std::vector<std::string> NamesOf(const std::vector<Result<DisksBehind>>& all) {
  std::vector<std::string> names;
  for (const Result<DisksBehind>& each : all) {
    if (!each) continue;
    for (const Disk& disk : each->disks) names.push_back("/dev/" + disk.name);
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

class Report {
 public:
  Report(const SmartReport& before, int64_t now, const LookParts& parts)
      : before_(before), parts_(parts), report_{.time = now, .devices = {}} {}

  // What the disk, one of those behind the path, answered.
  void Add(const std::string& path, const Disk& disk, const Result<LogPage>& page) {
    auto figures = page ? storage::ParseSmartLog(*page) : std::unexpected(page.error());
    if (figures) {
      Put({.path = path, .name = disk.name, .serial = disk.serial, .time = report_.time, .figures = *figures});
      return;
    }
    // One that does not answer names the disk itself.
    const std::string why =
        page ? fmt::format("/dev/{}: {}", disk.name, figures.error().message) : page.error().message;
    if (const SmartDevice* const known = KnownOf(path, disk)) {
      Keep(*known, why);
    } else {
      parts_.warn("nothing is known of " + why);
    }
  }
  // Which disks it stands on is not known. Where nothing is there any more, nothing is kept of it.
  void AddUnknown(const std::string& path, const Error& why) {
    bool is_kept = false;
    for (const SmartDevice& device : before_.devices) {
      if (device.path != path || why.code == Code::kNotFound) continue;
      Keep(device, why.message);
      is_kept = true;
    }
    if (!is_kept) parts_.warn("nothing is known of " + why.message);
  }
  // sysfs could not be read in part: what was known of disks that are not listed now stays.
  void KeepUnlisted(const std::string& path, const std::vector<Disk>& listed) {
    for (const SmartDevice& device : before_.devices) {
      if (device.path != path || std::ranges::find(listed, device.name, &Disk::name) != listed.end()) continue;
      Keep(device, "/dev/" + device.name);
    }
  }
  SmartReport Take() && { return std::move(report_); }

 private:
  void Put(SmartDevice device) {
    if (report_.devices.size() < storage::kSmartDevicesMax) {
      report_.devices.push_back(std::move(device));
    } else {
      parts_.warn(fmt::format("{}: /dev/{} is left out: there are too many devices", device.path, device.name));
    }
  }
  void Keep(const SmartDevice& known, const std::string& why) {
    parts_.warn(fmt::format("nothing new is known of {}; what it said {} s ago stays", why, report_.time - known.time));
    Put(known);
  }
  // Another serial number is another device, whatever its name is.
  const SmartDevice* KnownOf(const std::string& path, const Disk& disk) const {
    const auto found = std::ranges::find_if(before_.devices, [&](const SmartDevice& device) {
      return device.path == path && device.name == disk.name && device.serial == disk.serial;
    });
    return found == before_.devices.end() ? nullptr : &*found;
  }

  const SmartReport& before_;
  const LookParts& parts_;
  SmartReport report_;
};

}  // namespace

LookParts PartsOfSystem(std::function<void(const std::string& sentence)> warn) {
  return {.disks_behind = [](const std::string& path) -> Result<DisksBehind> {
            const auto number = DeviceNumberOf(path);
            if (!number) return std::unexpected(number.error());
            auto disks = NvmeDisksBehind(*number, "/sys");
            if (!disks) return Fail(disks.error().code, path + ": " + disks.error().message);
            return disks;
          },
          .read_page = ReadSmartLog,
          .warn = std::move(warn)};
}

SmartReport Look(const std::vector<std::string>& paths, const SmartReport& before, int64_t now,
                 const LookParts& parts) {
  TIER_CHECK(now >= 0 && now <= storage::kSmartTimeMax, "second {}", now);
  const std::vector<std::string> asked = PathsToAsk(paths, parts);
  const auto behind = AskAll(asked, parts.disks_behind, parts);
  const std::vector<std::string> names = NamesOf(behind);
  const auto pages = AskAll(names, parts.read_page, parts);
  Report report(before, now, parts);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (!behind[i]) {
      report.AddUnknown(asked[i], behind[i].error());
      continue;
    }
    for (const std::string& part : behind[i]->unknown) {
      parts.warn(fmt::format("nothing is known of a part of {}: {}", asked[i], part));
    }
    for (const Disk& disk : behind[i]->disks) {
      const auto page = static_cast<size_t>(std::ranges::lower_bound(names, "/dev/" + disk.name) - names.begin());
      report.Add(asked[i], disk, pages[page]);
    }
    if (behind[i]->may_be_more) report.KeepUnlisted(asked[i], behind[i]->disks);
  }
  return std::move(report).Take();
}

}  // namespace tier::smart
