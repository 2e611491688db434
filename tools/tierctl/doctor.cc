#include "tools/tierctl/doctor.h"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <cap-ng.h>
#include <fmt/format.h>

#include "tools/tierctl/connection.h"

namespace tier::tierctl {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMemlockWanted = kGiB;      // Below it even one large window cannot be registered.
constexpr uint64_t kOpenFilesWanted = 20'000;  // A descriptor a window, and one for each socket.
constexpr uint64_t kDiskFloor = 10 * kGiB;     // The SSD file leaves this much free.

std::string ReadText(const Machine& machine, const std::string& path) {
  std::ifstream file(machine.root + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The figure behind `key` in a file of "Key:   123 kB" lines; 0 if absent.
uint64_t Field(const std::string& text, const std::string& key) {
  const size_t at = text.find(key + ":");
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size() + 1, nullptr, 10);
}

Finding CheckMemlock(const Machine& machine) {
  if (machine.ipc_lock) return {"memlock", Verdict::kGood, "CAP_IPC_LOCK: memory may be pinned without limit", ""};
  if (machine.memlock_bytes >= kMemlockWanted) {
    const std::string limit = machine.memlock_bytes == ~uint64_t{0} ? "no limit" : HumanBytes(machine.memlock_bytes);
    return {"memlock", Verdict::kGood, "limit: " + limit, ""};
  }
  return {
      "memlock", Verdict::kDegraded,
      fmt::format("limit {}: windows are not registered for I/O (mode unpinned)", HumanBytes(machine.memlock_bytes)),
      "in the unit: LimitMEMLOCK=infinity; for a login: add `* - memlock unlimited` to "
      "/etc/security/limits.d/tierd.conf"};
}

Finding CheckOpenFiles(const Machine& machine) {
  const std::string found = fmt::format("hard limit {}", machine.open_files);
  if (machine.open_files >= kOpenFilesWanted) return {"open files", Verdict::kGood, found, ""};
  return {"open files", Verdict::kDegraded, found + ": bounds windows and sessions",
          "in the unit: LimitNOFILE=65536; for a login: add `* - nofile 65536` to /etc/security/limits.d/tierd.conf"};
}

Finding CheckHugePages(const Machine& machine) {
  const std::string text = ReadText(machine, "/proc/meminfo");
  const uint64_t total = Field(text, "HugePages_Total");
  const uint64_t free = Field(text, "HugePages_Free");
  if (free > 0) return {"huge pages", Verdict::kGood, fmt::format("{} of {} free", free, total), ""};
  return {"huge pages", Verdict::kDegraded, fmt::format("{} of {} free: windows use small pages", free, total),
          "sysctl vm.nr_hugepages=N (N × 2 MiB of the arena), best at boot"};
}

Finding CheckIoUring(const Machine& machine) {
  const int error = machine.try_io_uring();
  if (error == 0) return {"io_uring", Verdict::kGood, "works", ""};
  std::string disabled = ReadText(machine, "/proc/sys/kernel/io_uring_disabled");
  disabled.erase(disabled.find_last_not_of(" \n") + 1);
  const bool by_sysctl = !disabled.empty() && disabled != "0";
  return {"io_uring", Verdict::kDegraded,
          fmt::format("{}{}: I/O runs on a thread pool", std::strerror(error),
                      by_sysctl ? " (kernel.io_uring_disabled=" + disabled + ")" : ""),
          by_sysctl ? "sysctl kernel.io_uring_disabled=0"
                    : "allow the io_uring system calls in the container's seccomp profile"};
}

Finding CheckDisk(const Machine& machine) {
  const uint64_t free = machine.free_bytes(machine.data_directory);
  const std::string found = fmt::format("{} free for {}", HumanBytes(free), machine.data_directory);
  if (free > kDiskFloor + kGiB) return {"disk", Verdict::kGood, found, ""};
  return {"disk", Verdict::kBad, found + fmt::format(": the SSD file must leave {} free", HumanBytes(kDiskFloor)),
          "set ssd.devices to a device or file with room, or data_directory to a larger file system"};
}

Finding CheckDirectory(const Machine& machine, const char* check, const std::string& path, const char* option) {
  if (machine.writable(path)) return {check, Verdict::kGood, path + " is writable", ""};
  return {check, Verdict::kBad, fmt::format("uid {} may not write {}", machine.uid, path),
          fmt::format("install -d -o {} {}, or set {} to a directory of this user", machine.uid, path, option)};
}

Finding CheckMemory(const Machine& machine) {
  const std::string text = ReadText(machine, "/proc/meminfo");
  const uint64_t total = Field(text, "MemTotal") * 1024;
  const uint64_t available = Field(text, "MemAvailable") * 1024;
  const std::string found = fmt::format("{} available of {}; the default arena grows to {}", HumanBytes(available),
                                        HumanBytes(total), HumanBytes(total / 4));
  if (available > total / 4) return {"memory", Verdict::kGood, found, ""};
  return {"memory", Verdict::kDegraded, found, "set arena.maximum to what may be spared, or free memory"};
}

Finding CheckThp(const Machine& machine) {
  std::string text = ReadText(machine, "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  const std::string mode =
      open == std::string::npos || close < open ? "unknown" : text.substr(open + 1, close - open - 1);
  // MADV_COLLAPSE works whatever the mode but "deny"; it says how windows behave before they are collapsed.
  if (mode != "deny") return {"shmem huge pages", Verdict::kGood, "shmem_enabled=" + mode, ""};
  return {"shmem huge pages", Verdict::kDegraded, "shmem_enabled=deny: windows stay in small pages",
          "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

int TryIoUring() {
  io_uring_params parameters{};
  const long fd = ::syscall(SYS_io_uring_setup, 2u, &parameters);
  if (fd < 0) return errno;
  ::close(static_cast<int>(fd));
  return 0;
}

// The nearest existing parent: a directory that does not exist yet is as good as the one it would be made in.
std::string NearestExisting(std::string path) {
  while (path.size() > 1 && ::access(path.c_str(), F_OK) != 0) {
    const size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
  return path;
}

std::string DirectoryOf(const char* variable, const char* under_home, const std::string& system, uint32_t uid) {
  if (const char* value = std::getenv(variable); value != nullptr && *value != '\0')
    return std::string(value) + "/tierd";
  const char* home = std::getenv("HOME");
  if (uid != 0 && under_home != nullptr && home != nullptr) return std::string(home) + under_home;
  return system;
}

Verdict Worst(const std::vector<Finding>& findings) {
  Verdict worst = Verdict::kGood;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

void PrintFindings(const std::vector<Finding>& findings, const OutputOptions& output) {
  constexpr const char* kWords[] = {"ok", "lesser", "bad"};
  constexpr Mood kMoods[] = {Mood::kGood, Mood::kWarning, Mood::kBad};
  if (output.json) {
    nlohmann::ordered_json document = nlohmann::ordered_json::array();
    for (const Finding& f : findings) {
      document.push_back({{"check", f.check},
                          {"verdict", kWords[static_cast<int>(f.verdict)]},
                          {"found", f.found},
                          {"remedy", f.remedy}});
    }
    fmt::print("{}\n", document.dump(2));
    return;
  }
  for (const Finding& f : findings) {
    const int verdict = static_cast<int>(f.verdict);
    const std::string word = fmt::format("{:<6}", kWords[verdict]);
    fmt::print("{}  {:<17} {}\n", Paint(word, kMoods[verdict], output), f.check, f.found);
    if (!f.remedy.empty()) fmt::print("{:<26}→ {}\n", "", f.remedy);
  }
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  machine.uid = ::geteuid();
  machine.ipc_lock = capng_get_caps_process() == 0 && capng_have_capability(CAPNG_EFFECTIVE, CAP_IPC_LOCK) != 0;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    machine.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) machine.open_files = limit.rlim_max;
  machine.data_directory = DirectoryOf("XDG_STATE_HOME", "/.local/state/tierd", "/var/lib/tierd", machine.uid);
  machine.runtime_directory = DirectoryOf("XDG_RUNTIME_DIR", nullptr, "/run/tierd", machine.uid);
  machine.try_io_uring = TryIoUring;
  machine.writable = [](const std::string& path) { return ::access(NearestExisting(path).c_str(), W_OK | X_OK) == 0; };
  machine.free_bytes = [](const std::string& path) -> uint64_t {
    struct statvfs figures{};
    return ::statvfs(NearestExisting(path).c_str(), &figures) == 0 ? uint64_t{figures.f_bavail} * figures.f_frsize : 0;
  };
  return machine;
}

std::vector<Finding> Examine(const Machine& machine) {
  return {CheckMemory(machine),
          CheckMemlock(machine),
          CheckOpenFiles(machine),
          CheckHugePages(machine),
          CheckThp(machine),
          CheckIoUring(machine),
          CheckDisk(machine),
          CheckDirectory(machine, "data directory", machine.data_directory, "data_directory"),
          CheckDirectory(machine, "sockets", machine.runtime_directory, "socket_directory")};
}

int Doctor(const DaemonOptions& options) {
  std::vector<Finding> findings = Examine(ThisMachine());
  if (const auto channel = Connect(options)) {
    v1::Status status;
    const bool answers = (*channel)->Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest(), &status).has_value();
    findings.push_back({"daemon", answers ? Verdict::kGood : Verdict::kDegraded,
                        fmt::format("{} on {}: I/O {}, memory {}, pages {}", status.version(), (*channel)->socket(),
                                    status.io_mode(), status.memory_mode(), status.huge_page_mode()),
                        answers ? "" : "tierctl status"});
  } else {
    findings.push_back({"daemon", Verdict::kDegraded, channel.error().message, "systemctl start tierd"});
  }
  PrintFindings(findings, options.output);
  const Verdict worst = Worst(findings);
  return worst == Verdict::kGood ? kExitOk : worst == Verdict::kDegraded ? kExitDegraded : kExitFailure;
}

}  // namespace tier::tierctl
