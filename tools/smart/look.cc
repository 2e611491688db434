#include "tools/smart/look.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "tools/smart/disks.h"

namespace tier::smart {
namespace {

using storage::SmartDevice;
using storage::SmartFigures;
using storage::SmartReport;

// Of all disks behind the path the worst.
Result<SmartFigures> FiguresOf(const std::string& path, const LookParts& parts) {
  const auto disks = parts.disks_behind(path);
  if (!disks) return std::unexpected(disks.error());
  std::optional<SmartFigures> worst;
  for (const std::string& disk : *disks) {
    const auto page = parts.read_page(disk);
    if (!page) return std::unexpected(page.error());
    const auto figures = storage::ParseSmartLog(*page);
    if (!figures) return Fail(figures.error().code, disk + ": " + figures.error().message);
    worst = worst ? storage::WorseOf(*worst, *figures) : *figures;
  }
  if (!worst) return Fail(Code::kNotFound, path + " is on no device");
  return *worst;
}

const SmartDevice* Find(const SmartReport& report, const std::string& path) {
  const auto found = std::ranges::find(report.devices, path, &SmartDevice::path);
  return found == report.devices.end() ? nullptr : &*found;
}

}  // namespace

LookParts PartsOfSystem(std::function<void(const std::string& sentence)> warn) {
  return {.disks_behind = [](const std::string& path) -> Result<std::vector<std::string>> {
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
  SmartReport report{.time = now, .devices = {}};
  for (const std::string& path : paths) {
    if (!storage::IsSmartPath(path) || report.devices.size() == storage::kSmartDevicesMax) {
      parts.warn(fmt::format("{}: left out: its name has control characters, or there are too many devices", path));
      continue;
    }
    if (Find(report, path) != nullptr) continue;
    const auto figures = FiguresOf(path, parts);
    const SmartDevice* const known = Find(before, path);
    if (figures) {
      report.devices.push_back({.path = path, .time = now, .figures = *figures});
    } else if (known != nullptr) {
      parts.warn(fmt::format("nothing new is known of {}; what it said {} s ago stays", figures.error().message,
                             now - known->time));
      report.devices.push_back(*known);
    } else {
      parts.warn("nothing is known of " + figures.error().message);
    }
  }
  return report;
}

}  // namespace tier::smart
