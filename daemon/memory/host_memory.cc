// Text of the kernel's into numbers. Nothing here trusts that a file is there or complete.
#include "daemon/memory/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "proto/units.h"

namespace tier::memory {
namespace {

// cgroup v1 says "no limit" by a number just below 2^63, rounded to pages.
constexpr uint64_t kV1Unlimited = uint64_t{1} << 62;

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const auto text = ReadText(path);
  return text ? ParseNumber(*text) : std::nullopt;
}

// The number behind `key` at the start of a line: "MemTotal:   24 kB", "inactive_file 8192".
std::optional<uint64_t> Field(std::string_view text, std::string_view key) {
  for (size_t line = 0; line < text.size();) {
    const std::string_view rest = text.substr(line);
    if (rest.starts_with(key)) return ParseNumber(rest.substr(key.size()));
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    line += end + 1;
  }
  return std::nullopt;
}

// What one version of cgroups calls things, and where its tree may be mounted.
struct CgroupFiles {
  std::vector<std::string> mounts;
  const char* limit;
  const char* usage;
  const char* reclaimable;
};

// Our path in the hierarchy that holds the memory controller: "4:memory:/a/b" (v1), "0::/a/b" (v2).
std::optional<std::string> CgroupPath(std::string_view text, bool v2) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool ours = v2 ? line.starts_with("0::") : controllers.find(",memory,") != std::string::npos;
    if (ours) return line.substr(second + 1);
  }
  return std::nullopt;
}

void ReadGroup(const std::string& folder, const CgroupFiles& files, HostReading* reading) {
  const auto limit = ReadNumber(folder + "/" + files.limit);  // "max" is no number: no limit.
  if (!limit || *limit >= kV1Unlimited) return;
  reading->cgroup_limit = std::min(reading->cgroup_limit, *limit);
  const uint64_t usage = ReadNumber(folder + "/" + files.usage).value_or(0);
  const auto stat = ReadText(folder + "/memory.stat");
  const uint64_t reclaimable = stat ? Field(*stat, files.reclaimable).value_or(0) : 0;
  const uint64_t held = usage > reclaimable ? usage - reclaimable : 0;
  reading->cgroup_available = std::min(reading->cgroup_available, *limit > held ? *limit - held : 0);
}

void ReadCgroup(std::string path, const CgroupFiles& files, HostReading* reading) {
  // Every level above binds too. Levels that are not there are passed over: in a container the path is often the
  // host's, while only the own group is mounted, at the root.
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    for (const std::string& mount : files.mounts) ReadGroup(mount + path, files, reading);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

void ReadCgroups(const std::string& root, HostReading* reading) {
  const auto text = ReadText(root + "/proc/self/cgroup");
  if (!text) return;
  const std::string tree = root + "/sys/fs/cgroup";
  if (const auto path = CgroupPath(*text, /*v2=*/true)) {
    ReadCgroup(*path, {{tree, tree + "/unified"}, "memory.max", "memory.current", "inactive_file "}, reading);
  }
  if (const auto path = CgroupPath(*text, /*v2=*/false)) {
    ReadCgroup(*path, {{tree + "/memory"}, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
               reading);
  }
}

// "some avg10=0.12 avg60=…": the number behind avg10 of the line that starts with `kind`.
std::optional<double> Pressure(std::string_view text, std::string_view kind) {
  const size_t line = text.find(kind);
  if (line == std::string_view::npos) return std::nullopt;
  const size_t number = text.find("avg10=", line);
  if (number == std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(text.data() + number + 6, text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

void ReadPressure(const std::string& root, HostReading* reading) {
  const auto text = ReadText(root + "/proc/pressure/memory");
  if (!text) return;
  const auto some = Pressure(*text, "some ");
  const auto full = Pressure(*text, "full ");
  if (!some || !full) return;
  reading->pressure_some_avg10 = *some;
  reading->pressure_full_avg10 = *full;
  reading->pressure_known = true;
}

}  // namespace

Result<HostReading> ReadHost(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const auto text = ReadText(path);
  if (!text) return Fail(Code::kIoError, "cannot read " + path + ": is /proc mounted?");
  const auto total = Field(*text, "MemTotal:");
  const auto available = Field(*text, "MemAvailable:");
  if (!total || !available) return Fail(Code::kIoError, path + " lacks MemTotal or MemAvailable");
  HostReading reading;
  reading.memory_total = *total * kKiB;
  reading.memory_available = *available * kKiB;
  reading.huge_page_size = Field(*text, "Hugepagesize:").value_or(0) * kKiB;
  const uint64_t free = Field(*text, "HugePages_Free:").value_or(0);
  const uint64_t reserved = Field(*text, "HugePages_Rsvd:").value_or(0);
  reading.huge_pages_free = free > reserved ? free - reserved : 0;
  ReadCgroups(root, &reading);
  ReadPressure(root, &reading);
  return reading;
}

}  // namespace tier::memory
