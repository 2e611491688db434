// See cgroup_memory.h.
#include "daemon/memory/cgroup_memory.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "daemon/memory/kernel_text.h"

namespace tier::memory {
namespace {

// cgroup v1 says "no limit" by a number just below 2^63, rounded to pages.
constexpr uint64_t kV1Unlimited = uint64_t{1} << 62;
constexpr size_t kLevelsMax = 64;

// What one version of cgroups calls things, and where its tree may be mounted.
struct CgroupFiles {
  std::vector<std::string> mounts;
  std::vector<const char*> limits;
  const char* usage;
  std::vector<const char*> reclaimable;  // Fields of memory.stat.
};

// Our path in the hierarchy that holds the memory controller: "4:memory:/a/b" (v1), "0::/a/b" (v2).
std::optional<std::string> CgroupPath(std::string_view text, bool v2) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool ours = v2 ? line.starts_with("0::") : controllers.find(",memory,") != std::string::npos;
    if (ours) return line.substr(second + 1);
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(CgroupFiles files, CgroupMemory* found) : files_(std::move(files)), found_(*found) {}

  void ReadLevels(const std::string& own) {
    std::string path = own;
    for (size_t level = 0; level < kLevelsMax; ++level) {
      while (path.ends_with('/')) path.pop_back();
      for (const std::string& mount : files_.mounts) ReadLevel(mount + path, path);
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) return;
      path.resize(slash);
    }
  }

 private:
  // kUnlimited: no such file, no limit, or not a number, which is noted.
  uint64_t ReadLimit(const std::string& file) {
    const auto text = ReadText(file);
    if (!text || text->starts_with("max")) return kUnlimited;
    const auto limit = ParseNumber(*text);
    if (!limit) Note(file);
    return limit && *limit < kV1Unlimited ? *limit : kUnlimited;
  }

  void ReadLevel(const std::string& folder, const std::string& path) {
    uint64_t limit = kUnlimited;
    const char* name = "";
    for (const char* const file : files_.limits) {
      const uint64_t here = ReadLimit(folder + "/" + file);
      if (here >= limit) continue;
      limit = here;
      name = file;
    }
    if (limit == kUnlimited) return;
    found_.limit = std::min(found_.limit, limit);
    const auto usage_text = ReadText(folder + "/" + files_.usage);
    const auto usage = usage_text ? ParseNumber(*usage_text) : std::nullopt;
    if (usage_text && !usage) Note(folder + "/" + files_.usage);
    const uint64_t used = usage.value_or(0);
    const uint64_t held = used - std::min(used, Reclaimable(folder));
    const uint64_t available = limit - std::min(limit, held);
    found_.excess = std::max(found_.excess, held - std::min(held, limit));
    if (available < found_.available || found_.tightest.empty()) {
      found_.tightest = std::string(name) + " of " + (path.empty() ? "/" : path);
    }
    found_.available = std::min(found_.available, available);
    if (const uint64_t unused = limit - std::min(limit, used); unused < found_.unused) {
      found_.unused = unused;
      found_.unused_limit = limit;
    }
  }

  uint64_t Reclaimable(const std::string& folder) {
    const auto stat = ReadText(folder + "/memory.stat");
    uint64_t bytes = 0;
    for (const char* const field : files_.reclaimable) bytes += stat ? Field(*stat, field).value_or(0) : 0;
    return bytes;
  }

  void Note(const std::string& file) {
    if (found_.unreadable.empty()) found_.unreadable = file;
  }

  CgroupFiles files_;
  CgroupMemory& found_;
};

}  // namespace

CgroupMemory ReadCgroups(const std::string& root) {
  CgroupMemory found;
  const auto text = ReadText(root + "/proc/self/cgroup");
  if (!text) return found;
  const std::string tree = root + "/sys/fs/cgroup";
  if (const auto path = CgroupPath(*text, /*v2=*/true)) {
    const std::vector<std::string> mounts = {tree, tree + "/unified"};
    Reader({.mounts = mounts,
            .limits = {"memory.max", "memory.high"},
            .usage = "memory.current",
            .reclaimable = {"inactive_file ", "active_file ", "slab_reclaimable "}},
           &found)
        .ReadLevels(*path);
    for (const std::string& mount : mounts) {
      if (found.stalls.known) break;
      if (const auto stalls = ReadText(mount + *path + "/memory.pressure")) found.stalls = ParseStalls(*stalls);
    }
  }
  if (const auto path = CgroupPath(*text, /*v2=*/false)) {
    const std::string mount = tree + "/memory";
    Reader({.mounts = {mount},
            .limits = {"memory.limit_in_bytes"},
            .usage = "memory.usage_in_bytes",
            .reclaimable = {"total_inactive_file ", "total_active_file "}},
           &found)
        .ReadLevels(*path);
    const auto stat = ReadText(mount + *path + "/memory.stat");
    const uint64_t above = stat ? Field(*stat, "hierarchical_memory_limit ").value_or(kUnlimited) : kUnlimited;
    if (above < kV1Unlimited) found.limit = std::min(found.limit, above);
  }
  return found;
}

}  // namespace tier::memory
