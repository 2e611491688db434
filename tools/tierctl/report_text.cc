// See report_text.h.
#include "tools/tierctl/report_text.h"

#include <algorithm>
#include <array>
#include <sstream>

#include <fmt/format.h>

#include "tools/tierctl/host_files.h"
#include "tools/tierctl/masking.h"

namespace tier::tierctl {
namespace {

// What tierctl doctor reads, and what else decides how much memory and how many files a daemon gets.
constexpr std::array<const char*, 14> kSettings = {"/proc/sys/vm/nr_hugepages",
                                                   "/proc/sys/vm/overcommit_memory",
                                                   "/proc/sys/vm/max_map_count",
                                                   "/proc/sys/vm/swappiness",
                                                   "/proc/sys/vm/zone_reclaim_mode",
                                                   "/proc/sys/kernel/io_uring_disabled",
                                                   "/proc/sys/kernel/numa_balancing",
                                                   "/proc/sys/kernel/threads-max",
                                                   "/proc/sys/fs/file-max",
                                                   "/proc/sys/fs/nr_open",
                                                   "/sys/kernel/mm/transparent_hugepage/enabled",
                                                   "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                                                   "/sys/kernel/mm/transparent_hugepage/defrag",
                                                   "/sys/devices/system/node/online"};
constexpr std::array<const char*, 8> kGroupFiles = {"memory.max",    "memory.high", "memory.low", "memory.current",
                                                    "memory.events", "cpu.max",     "io.max",     "pids.max"};

void AddFile(const std::string& root, const std::string& path, const std::string& name, Bundle* bundle) {
  const auto text = ReadHostFile(root + path);
  text ? bundle->Add(name, *text) : bundle->Miss(name, text.error().message);
}

// "/a/b" is below "/a" and "/".
bool IsBelow(std::string_view path, std::string_view folder) {
  if (folder == "/") return true;
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// Of each path the line of its file system: the longest mount point above it, and of these the last one.
std::string MountsOf(const std::string& table, const std::vector<std::string>& paths) {
  std::string mounts;
  for (const std::string& path : paths) {
    std::string best;
    size_t longest = 0;
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string id, parent, device, source_root, point;
      if (!(words >> id >> parent >> device >> source_root >> point)) continue;
      if (!IsBelow(path, point) || point.size() < longest) continue;
      longest = point.size();
      best = line;
    }
    mounts += fmt::format("{}\n  {}\n", path, best.empty() ? "no mount" : best);
  }
  return mounts;
}

// The limits of the daemon's control group and of those above it. Of version 2, which systemd uses.
Result<std::string> GroupLimits(const std::string& root, int64_t pid) {
  const auto groups = ReadHostFile(fmt::format("{}/proc/{}/cgroup", root, pid));
  if (!groups) return std::unexpected(groups.error());
  std::string text = *groups;
  std::istringstream lines(*groups);
  std::string group;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  for (std::string at = group; !at.empty() && at != "/"; at.erase(at.rfind('/'))) {
    text += fmt::format("\n{}\n", at);
    for (const char* const file : kGroupFiles) {
      const auto value = ReadHostFile(fmt::format("{}/sys/fs/cgroup{}/{}", root, at, file));
      if (!value) continue;
      std::istringstream values(*value);
      for (std::string each; std::getline(values, each);) text += fmt::format("  {} {}\n", file, each);
    }
  }
  return text;
}

}  // namespace

void Bundle::Add(const std::string& name, std::string_view text) {
  files.emplace_back(name, name.ends_with(".json") ? WithoutTokens(text) : Masked(text));
}
void Bundle::Miss(const std::string& name, std::string_view why) { missing.emplace_back(name, Masked(why)); }

void AddKernelFacts(const std::string& root, const Result<int64_t>& pid, const std::vector<std::string>& paths,
                    Bundle* bundle) {
  AddFile(root, "/proc/version", "kernel/version", bundle);
  AddFile(root, "/proc/meminfo", "kernel/meminfo", bundle);
  AddFile(root, "/proc/pressure/memory", "kernel/pressure-memory", bundle);
  AddFile(root, "/proc/pressure/io", "kernel/pressure-io", bundle);
  std::string settings;
  for (const char* const path : kSettings) {
    const auto value = ReadHostFile(root + path);
    settings += fmt::format("{} {}\n", path, value ? value->substr(0, value->find('\n')) : "-");
  }
  bundle->Add("kernel/settings", settings);
  const auto table = ReadHostFile(root + "/proc/self/mountinfo");
  table ? bundle->Add("kernel/mounts", MountsOf(*table, paths)) : bundle->Miss("kernel/mounts", table.error().message);
  if (!pid) {
    for (const char* const name : {"kernel/limits", "kernel/cgroup"}) bundle->Miss(name, pid.error().message);
    return;
  }
  AddFile(root, fmt::format("/proc/{}/limits", *pid), "kernel/limits", bundle);
  const auto limits = GroupLimits(root, *pid);
  limits ? bundle->Add("kernel/cgroup", *limits) : bundle->Miss("kernel/cgroup", limits.error().message);
}

std::vector<std::string> MissingLines(const Bundle& bundle) {
  std::vector<std::pair<std::string, std::string>> names_and_why;
  for (const auto& [name, why] : bundle.missing) {
    const auto same = std::ranges::find(names_and_why, why, &std::pair<std::string, std::string>::second);
    if (same == names_and_why.end()) {
      names_and_why.emplace_back(name, why);
    } else {
      same->first += ", " + name;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [names, why] : names_and_why) lines.push_back(fmt::format("{}: {}", names, why));
  return lines;
}

std::string ReadmeOf(const Bundle& bundle, std::string_view made_at) {
  std::string text = fmt::format(
      "A report on tierd, made by tierctl {} at {}.\n\n"
      "It has no job token and no byte of a tensor. It has names of jobs and tensors, uids, paths and the log.\n"
      "{} stands where a secret was, or what looked like one.\n\nFiles:\n",
      TIER_VERSION, made_at, kMask);
  for (const auto& [name, content] : bundle.files) text += fmt::format("  {} ({} bytes)\n", name, content.size());
  if (bundle.missing.empty()) return text + "\nNothing is missing.\n";
  text += "\nMissing:\n";
  for (const std::string& line : MissingLines(bundle)) text += fmt::format("  {}\n", line);
  return text;
}

}  // namespace tier::tierctl
