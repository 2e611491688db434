#include "tools/tierctl/doctor.h"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include <cap-ng.h>
#include <fmt/format.h>

#include "daemon/storage/file_system.h"
#include "proto/socket_places.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/node_text.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kHugePage = 2 * kMiB;
constexpr uint64_t kMemlockWanted = kGiB;      // Below it even one large window cannot be registered.
constexpr uint64_t kOpenFilesWanted = 20'000;  // A descriptor a window, and one for each socket.
constexpr const char* kVerdictWords[] = {"ok", "note", "degraded", "bad"};
constexpr char kMemoryCheck[] = "memory";
constexpr char kMemlockCheck[] = "memlock";
constexpr char kOpenFilesCheck[] = "open files";
constexpr char kIoUringCheck[] = "io_uring";
constexpr char kDiskCheck[] = "disk";
constexpr char kDataCheck[] = "data directory";
constexpr char kSocketsCheck[] = "sockets";
constexpr size_t kFoundIndent = 28;  // Behind the verdict and the name of the check.
constexpr size_t kFoundIndentNarrow = 4;

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

// A line of this user's for what only root may do.
std::string ByRoot(const Machine& machine, const std::string& line) { return machine.uid == 0 ? line : "sudo " + line; }

// The line that writes `value` to a file of the kernel's, which a container may not even show to its root.
void GrantBySetting(const Machine& machine, const std::string& value, const std::string& path, Finding* finding) {
  if (machine.uid == 0 && !machine.settable(path)) {
    finding->advice = fmt::format("outside of this container: echo {} > {}", value, path);
  } else {
    finding->remedy =
        fmt::format(fmt::runtime(machine.uid == 0 ? "echo {} > {}" : "echo {} | sudo tee {}"), value, path);
  }
}

// The line that raises a limit of the shell it is pasted into, and so of the tierd started there.
void GrantByLimit(const Machine& machine, const char* name, const std::string& value, Finding* finding) {
  if (machine.uid == 0 && !machine.sys_resource) {
    finding->advice =
        fmt::format("start this container with --ulimit {}={}", name, value == "unlimited" ? "-1" : value);
  } else {
    finding->remedy = ByRoot(machine, fmt::format("prlimit --pid $$ --{}={}", name, value));
    finding->advice =
        fmt::format("for this shell; for every login: `* - {} {}` in a file of /etc/security/limits.d", name, value);
  }
}

Finding Good(const char* check, const std::string& found) { return {check, Verdict::kGood, found, "", ""}; }

Finding CheckMemlock(const Machine& machine) {
  if (machine.ipc_lock) return Good(kMemlockCheck, "CAP_IPC_LOCK: memory may be pinned without limit");
  const std::string limit = machine.memlock_bytes == ~uint64_t{0} ? "no limit" : HumanBytes(machine.memlock_bytes);
  if (machine.memlock_bytes >= kMemlockWanted) return Good(kMemlockCheck, "limit: " + limit);
  Finding finding{kMemlockCheck, Verdict::kDegraded,
                  "limit " + limit + ": windows are not registered for I/O (mode unpinned)", "", ""};
  GrantByLimit(machine, "memlock", "unlimited", &finding);
  return finding;
}

Finding CheckOpenFiles(const Machine& machine) {
  const std::string found = fmt::format("hard limit {}", machine.open_files);
  if (machine.open_files >= kOpenFilesWanted) return Good(kOpenFilesCheck, found);
  Finding finding{kOpenFilesCheck, Verdict::kDegraded, found + ": bounds windows and sessions", "", ""};
  GrantByLimit(machine, "nofile", "65536", &finding);
  return finding;
}

struct HostMemory {
  uint64_t total = 0;
  uint64_t available = 0;
  uint64_t arena_default() const { return total / 4; }
};

HostMemory MemoryOf(const Machine& machine) {
  const std::string text = ReadText(machine, "/proc/meminfo");
  return {Field(text, "MemTotal") * 1024, Field(text, "MemAvailable") * 1024};
}

// How many huge pages the pool needs for all windows of the daemon that answers: those that others have of it, and one
// for each 2 MiB of the arena. What the daemon has is at most what it holds.
uint64_t HugePagesFor(const v1::NodeStatus& status, uint64_t used) {
  const bool has_some = status.huge_page_mode() == v1::HUGE_PAGE_MODE_HUGETLB;
  const uint64_t own = has_some ? std::min(used, (status.arena_bytes() + status.arena_stock_bytes()) / kHugePage) : 0;
  return used - own + status.arena_max_bytes() / kHugePage;
}

Finding CheckHugePages(const Machine& machine, const v1::NodeStatus* status) {
  const std::string text = ReadText(machine, "/proc/meminfo");
  const uint64_t total = Field(text, "HugePages_Total");
  const uint64_t free = Field(text, "HugePages_Free");
  if (free > 0) return Good("huge pages", fmt::format("{} of {} free", free, total));
  const HostMemory memory = MemoryOf(machine);
  const uint64_t needed = status != nullptr ? HugePagesFor(*status, total) : total + memory.arena_default() / kHugePage;
  const bool has_some = status != nullptr && status->huge_page_mode() == v1::HUGE_PAGE_MODE_HUGETLB;
  if (has_some && needed <= total)
    return Good("huge pages", fmt::format("{} of {} free: tierd's windows are in them", free, total));
  Finding finding{"huge pages", Verdict::kNote,
                  fmt::format("{} of {} free: {}windows use small pages, or collapsed ones", free, total,
                              has_some ? "tierd has some, and more " : ""),
                  "", "optional; best at boot, while memory is in one piece"};
  const uint64_t lacking = needed > total ? needed - total : 0;
  const uint64_t wanted = std::min(lacking, memory.available / 2 / kHugePage);
  if (wanted > 0) GrantBySetting(machine, std::to_string(total + wanted), "/proc/sys/vm/nr_hugepages", &finding);
  return finding;
}

Finding CheckIoUring(const Machine& machine) {
  const int error = machine.try_io_uring();
  if (error == 0) return Good(kIoUringCheck, "works");
  std::string disabled = ReadText(machine, "/proc/sys/kernel/io_uring_disabled");
  disabled.erase(disabled.find_last_not_of(" \n") + 1);
  const bool by_sysctl = !disabled.empty() && disabled != "0";
  Finding finding{kIoUringCheck, Verdict::kDegraded,
                  fmt::format("{}{}: I/O runs on a thread pool", std::strerror(error),
                              by_sysctl ? " (kernel.io_uring_disabled=" + disabled + ")" : ""),
                  "", ""};
  if (by_sysctl) {
    GrantBySetting(machine, "0", "/proc/sys/kernel/io_uring_disabled", &finding);
  } else {
    finding.advice = "allow the io_uring system calls in the container's seccomp profile";
  }
  return finding;
}

// By the rule for a daemon that was told no size.
Finding CheckDisk(const Machine& machine) {
  const std::string present = machine.data_directory + "/tier.ssd";
  std::error_code absent;
  if (const uint64_t size = std::filesystem::file_size(machine.root + present, absent); !absent && size > 0)
    return {kDiskCheck, Verdict::kGood, fmt::format("{} is there with {}", present, HumanBytes(size)), "", ""};
  const storage::FileSystemSpace space = machine.space(machine.data_directory);
  const storage::DefaultFile file = storage::PlanDefaultFile(space, machine.data_directory);
  const std::string advice = "free some space, or set daemon.data_directory or ssd.devices to a place with more room";
  if (file.size == 0)
    return {kDiskCheck, Verdict::kDegraded, file.shortage + ": no SSD tier, tensors stay in RAM", "", advice};
  const std::string found = fmt::format(
      "{}: the default SSD file takes {}",
      file.shortage.empty() ? fmt::format("{} free for {}", HumanBytes(space.available), machine.data_directory)
                            : file.shortage,
      HumanBytes(file.size));
  if (file.shortage.empty()) return Good(kDiskCheck, found);
  return {kDiskCheck, Verdict::kNote, found, "", advice};
}

// A directory that exists keeps its owner: the system's may be where a daemon of root serves every user.
Finding CheckDataDirectory(const Machine& machine) {
  const std::string& path = machine.data_directory;
  if (machine.writable(path)) return Good(kDataCheck, path + " is writable");
  Finding finding{kDataCheck, Verdict::kBad, fmt::format("uid {} may not write {}", machine.uid, path), "",
                  "set daemon.data_directory to a directory of this user's"};
  if (machine.uid != 0 && !machine.owner(path)) {
    finding.remedy = fmt::format("sudo install -d -o {} {}", machine.uid, path);
    finding.advice = "or " + finding.advice;
  }
  return finding;
}

// Sockets go elsewhere instead: who owns /run/tierd decides which daemon every client of the machine meets.
Finding CheckSockets(const Machine& machine) {
  const std::string& path = machine.runtime_directory;
  if (machine.writable(path)) return Good(kSocketsCheck, path + " is writable");
  const auto owner = machine.owner(path);
  const std::string whose = owner && *owner != machine.uid ? fmt::format(", which belongs to uid {}", *owner) : "";
  Finding finding{kSocketsCheck, Verdict::kBad, fmt::format("uid {} may not write {}{}", machine.uid, path, whose), "",
                  "set daemon.socket_directory to a directory of this user's, and TIERD_SOCKET for its clients"};
  if (machine.daemon_program.empty() || !machine.writable(machine.data_directory)) return finding;
  const std::string own = machine.data_directory + "-run";
  finding.remedy = fmt::format("{} --set daemon.socket_directory={}", machine.daemon_program, own);
  finding.advice = fmt::format("and for its clients: export TIERD_SOCKET={}/tierd.sock", own);
  return finding;
}

Finding CheckMemory(const Machine& machine) {
  const HostMemory memory = MemoryOf(machine);
  const std::string found =
      fmt::format("{} available of {}; the default arena grows to {}", HumanBytes(memory.available),
                  HumanBytes(memory.total), HumanBytes(memory.arena_default()));
  if (memory.available > memory.arena_default()) return Good(kMemoryCheck, found);
  Finding finding{kMemoryCheck, Verdict::kDegraded, found, "", "or free memory"};
  const uint64_t spare = memory.available / 2 / kMiB;
  if (spare >= 64 && !machine.daemon_program.empty())
    finding.remedy = fmt::format("{} --set arena.maximum={}MiB", machine.daemon_program, spare);
  else
    finding.advice = "free memory";
  return finding;
}

Finding CheckThp(const Machine& machine) {
  constexpr char kPath[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  std::string text = ReadText(machine, kPath);
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  const std::string mode =
      open == std::string::npos || close < open ? "unknown" : text.substr(open + 1, close - open - 1);
  // MADV_COLLAPSE works whatever the mode but "deny"; it says how windows behave before they are collapsed.
  if (mode != "deny") return Good("shmem huge pages", "shmem_enabled=" + mode);
  Finding finding{"shmem huge pages", Verdict::kNote, "shmem_enabled=deny: windows stay in small pages", "", ""};
  GrantBySetting(machine, "advise", kPath, &finding);
  return finding;
}

// Of the daemon that answers, in place of what one with default places would find.
Finding MemoryOf(const v1::NodeStatus& status) {
  const uint64_t held = status.arena_bytes() + status.arena_stock_bytes();
  const std::string found =
      fmt::format("{} available; the arena has {} and may grow to {}", HumanBytes(status.host_available_bytes()),
                  HumanBytes(held), HumanBytes(status.arena_max_bytes()));
  const std::string advice = "free memory, or lower arena.maximum";
  if (const std::string& shortage = status.host_shortage(); !shortage.empty())
    return {kMemoryCheck, Verdict::kDegraded, found + "; " + shortage, "", advice};
  const bool fits = status.host_available_bytes() + held >= status.arena_max_bytes();
  return {kMemoryCheck, fits ? Verdict::kGood : Verdict::kNote, found, "", fits ? "" : advice};
}

std::vector<Finding> DisksOf(const v1::NodeStatus& status) {
  std::vector<Finding> disks;
  for (const v1::Device& device : status.devices()) {
    const std::string found = fmt::format("{}: {} free of {}", device.path(), HumanBytes(device.free_bytes()),
                                          HumanBytes(device.capacity_bytes()));
    const bool is_online = device.state() == v1::DEVICE_STATE_ONLINE;
    disks.push_back(
        {kDiskCheck, is_online ? Verdict::kGood : Verdict::kNote,
         is_online ? found : fmt::format("{}, {} ({})", found, WordOf(device.state()), device.state_reason()), "",
         is_online ? "" : "tierctl device list has more of it"});
  }
  for (const v1::MissingDevice& device : status.missing_devices()) {
    disks.push_back(
        {kDiskCheck, Verdict::kNote,
         fmt::format("{} is missing: {}", device.path().empty() ? device.uuid() : device.path(), device.reason()), "",
         MissingAdvice(device)});
  }
  if (disks.empty()) {
    const std::string& reason = status.ssd_mode_reason();
    disks.push_back({kDiskCheck, reason.empty() ? Verdict::kGood : Verdict::kNote,
                     "no SSD device: tensors stay in RAM" + (reason.empty() ? "" : ": " + reason), "",
                     reason.empty() ? "" : "set ssd.devices or daemon.data_directory to a place with room"});
  }
  return disks;
}

// That this login may not write there is no lack.
std::vector<Finding> DirectoryOf(const char* check, const std::string& directory) {
  if (directory.empty()) return {};
  return {{check, Verdict::kGood, directory + " is the daemon's", "", ""}};
}

// A line that lifts a limit of this login lifts none of a daemon that runs.
Finding MemlockOf(const v1::NodeStatus& status) {
  if (status.memory_mode() == v1::MEMORY_MODE_PINNED) return Good(kMemlockCheck, "the daemon's memory is pinned");
  const std::string& reason = status.memory_mode_reason();
  return {kMemlockCheck, Verdict::kNote, "the daemon's memory is not pinned" + (reason.empty() ? "" : ": " + reason),
          "", "a limit that is raised holds from the next start of tierd on"};
}

Finding IoUringOf(const v1::NodeStatus& status, Finding by_default) {
  if (status.io_mode() == v1::IO_MODE_IO_URING) return Good(kIoUringCheck, "the daemon's I/O runs on it");
  if (by_default.verdict == Verdict::kGood)
    return {kIoUringCheck, Verdict::kNote, "works here; the daemon's I/O runs on a thread pool", "",
            "the log of its start says why"};
  by_default.verdict = Verdict::kNote;
  return by_default;
}

// The limit of a daemon that runs is not told: this one is of a daemon that this login starts.
Finding OpenFilesOf(Finding by_default) {
  if (by_default.verdict == Verdict::kGood) return by_default;
  by_default.verdict = Verdict::kNote;
  by_default.found += " of a tierd that is started from this shell";
  return by_default;
}

std::vector<Finding> AsTheDaemonHasIt(Finding by_default, const v1::NodeStatus& status) {
  if (by_default.check == kMemoryCheck) return {MemoryOf(status)};
  if (by_default.check == kMemlockCheck) return {MemlockOf(status)};
  if (by_default.check == kIoUringCheck) return {IoUringOf(status, std::move(by_default))};
  if (by_default.check == kOpenFilesCheck) return {OpenFilesOf(std::move(by_default))};
  if (by_default.check == kDiskCheck) return DisksOf(status);
  if (by_default.check == kDataCheck) return DirectoryOf(kDataCheck, status.data_directory());
  if (by_default.check == kSocketsCheck) return DirectoryOf(kSocketsCheck, status.socket_directory());
  by_default.verdict = std::min(by_default.verdict, Verdict::kNote);
  return {std::move(by_default)};
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

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// As daemon_paths.h has it.
std::string DataDirectory(uint32_t uid) {
  if (uid == 0) return "/var/lib/tierd";
  if (const std::string state = Variable("XDG_STATE_HOME"); !state.empty()) return state + "/tierd";
  const std::string home = Variable("HOME");
  return home.empty() ? "/var/tmp" : home + "/.local/state/tierd";
}

std::string RuntimeDirectory(const Machine& machine) {
  if (const std::string runtime = Variable("XDG_RUNTIME_DIR"); !runtime.empty()) return runtime + "/tierd";
  const bool own = machine.uid == 0 || machine.owner(proto::kSystemSocketDirectory) == machine.uid;
  return own ? proto::kSystemSocketDirectory : proto::UserSocketDirectory(machine.uid);
}

// A program as the shell finds it by name, or else beside this one (which a wheel does not put on PATH).
std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::stringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (!directory.empty() && ::access(fmt::format("{}/{}", directory, name).c_str(), X_OK) == 0) return name;
  }
  std::error_code ignored;
  const std::string beside = std::filesystem::read_symlink("/proc/self/exe", ignored).replace_filename(name).string();
  return ::access(beside.c_str(), X_OK) == 0 ? beside : "";
}

bool UnderSystemd(const Machine& machine) {
  const auto exists = [&](const char* path) { return ::access((machine.root + path).c_str(), F_OK) == 0; };
  return exists("/run/systemd/system") &&
         (exists("/usr/lib/systemd/system/tierd.service") || exists("/lib/systemd/system/tierd.service") ||
          exists("/etc/systemd/system/tierd.service"));
}

void PrintFindings(const std::vector<Finding>& findings, const OutputOptions& output) {
  // A path has little room beside the names on a narrow terminal: what was found stands below them there.
  const bool is_narrow = IsNarrow(output.width);
  const size_t indent = is_narrow ? kFoundIndentNarrow : kFoundIndent;
  for (const Finding& f : findings) {
    const std::string word = fmt::format("{:<8}", kVerdictWords[static_cast<int>(f.verdict)]);
    const bool is_good = f.verdict == Verdict::kGood;
    const Mood mood = is_good ? Mood::kGood : f.verdict == Verdict::kBad ? Mood::kBad : Mood::kWarning;
    const auto text = [&](const std::string& sentence, size_t column) {
      return Wrapped(Printable(sentence), output.width, column);
    };
    const std::string begin =
        is_narrow ? fmt::format("{}\n{:<{}}", f.check, "", indent) : fmt::format("{:<17} ", f.check);
    fmt::print("{}  {}{}\n", f.verdict == Verdict::kNote ? word : Paint(word, mood, output), begin,
               text(f.found, indent));
    // Whole, however long it is: it is there to be pasted.
    if (!f.remedy.empty()) fmt::print("{:<{}}{} {}\n", "", indent, output.unicode ? "→" : ">", f.remedy);
    if (!f.advice.empty()) fmt::print("{:<{}}{}\n", "", indent + 2, text(f.advice, indent + 2));
  }
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  machine.uid = ::geteuid();
  machine.ipc_lock = capng_get_caps_process() == 0 && capng_have_capability(CAPNG_EFFECTIVE, CAP_IPC_LOCK) != 0;
  machine.sys_resource = capng_have_capability(CAPNG_EFFECTIVE, CAP_SYS_RESOURCE) != 0;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    machine.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) machine.open_files = limit.rlim_max;
  machine.data_directory = DataDirectory(machine.uid);
  machine.daemon_program = FindProgram("tierd");
  machine.try_io_uring = TryIoUring;
  machine.settable = [](const std::string& path) { return ::access(path.c_str(), W_OK) == 0; };
  machine.writable = [](const std::string& path) { return ::access(NearestExisting(path).c_str(), W_OK | X_OK) == 0; };
  machine.owner = [](const std::string& path) -> std::optional<uint32_t> {
    struct stat about{};
    if (::stat(path.c_str(), &about) != 0) return std::nullopt;
    return about.st_uid;
  };
  machine.space = [](const std::string& path) {
    return storage::SpaceOf(NearestExisting(path)).value_or(storage::FileSystemSpace{});
  };
  machine.runtime_directory = RuntimeDirectory(machine);
  return machine;
}

std::vector<Finding> Examine(const Machine& machine, const v1::NodeStatus* status) {
  return {CheckMemory(machine), CheckMemlock(machine), CheckOpenFiles(machine), CheckHugePages(machine, status),
          CheckThp(machine),    CheckIoUring(machine), CheckDisk(machine),      CheckDataDirectory(machine),
          CheckSockets(machine)};
}

Finding WithoutDaemon(const Machine& machine, const Error& error, bool named) {
  const bool absent = error.code == Code::kDisconnected;
  // The configuration file may name others, and which one it is knows the daemon alone.
  Finding finding{"daemon", absent && !named ? Verdict::kNote : Verdict::kDegraded, error.message, "",
                  "memory, disk and directories above are those of a tierd without a configuration"};
  if (!absent) return finding;
  finding.remedy = UnderSystemd(machine) ? ByRoot(machine, "systemctl start tierd") : machine.daemon_program;
  if (finding.remedy.empty())
    finding.advice = "tierd is not on PATH: install the package or the wheel; " + finding.advice;
  return finding;
}

std::vector<Finding> WithDaemon(std::vector<Finding> by_default, const v1::NodeStatus& status,
                                const std::string& socket) {
  std::vector<Finding> findings;
  for (Finding& finding : by_default)
    std::ranges::move(AsTheDaemonHasIt(std::move(finding), status), std::back_inserter(findings));
  std::string found =
      fmt::format("{} on {}: I/O {}, memory {}, pages {}, SSD {}", status.version(), socket, WordOf(status.io_mode()),
                  WordOf(status.memory_mode()), PagesText(status), SsdModeText(status));
  const std::string lack = LackText(status);  // As `tierctl status` has it.
  if (!lack.empty()) found += "; " + lack;
  findings.push_back({"daemon", lack.empty() ? Verdict::kGood : Verdict::kDegraded, std::move(found), "", ""});
  return findings;
}

int ExitCodeOf(const std::vector<Finding>& findings) {
  Verdict worst = Verdict::kGood;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  if (worst == Verdict::kBad) return kExitFailure;
  return worst == Verdict::kDegraded ? kExitDegraded : kExitOk;
}

Json ToJson(const std::vector<Finding>& findings) {
  Json document = Json::array();
  for (const Finding& f : findings) {
    document.push_back({{"check", f.check},
                        {"verdict", kVerdictWords[static_cast<int>(f.verdict)]},
                        {"found", f.found},
                        {"remedy", f.remedy},
                        {"advice", f.advice}});
  }
  return document;
}

std::vector<Finding> Diagnose(const DaemonOptions& options) {
  const Machine machine = ThisMachine();
  v1::GetStatusResponse answered;
  auto channel = Connect(options);
  auto answer = channel ? (*channel)->Call(&v1::ControlService::Stub::GetStatus, v1::GetStatusRequest(), &answered)
                        : Status(std::unexpected(channel.error()));
  std::vector<Finding> findings = Examine(machine, answer ? &answered.status() : nullptr);
  if (answer) {
    findings = WithDaemon(std::move(findings), answered.status(), (*channel)->socket());
  } else {
    findings.push_back(WithoutDaemon(machine, answer.error(), SocketIsNamed(options)));
  }
  return findings;
}

int Doctor(const DaemonOptions& options) {
  const std::vector<Finding> findings = Diagnose(options);
  options.output.json ? PrintJson({{"findings", ToJson(findings)}}) : PrintFindings(findings, options.output);
  return ExitCodeOf(findings);
}

}  // namespace tier::tierctl
