#include "tests/crash/daemon/daemon_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "daemon/base/check.h"

namespace tier::crash {
namespace {

constexpr int kStartMs = 60'000;

// Only what is safe between fork and exec, except setenv, which is safe here: the tests have one thread.
[[noreturn]] void Exec(const std::vector<std::string>& arguments, const DaemonOptions& options,
                       const std::string& output) {
  const int log = options.output >= 0 ? options.output : ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (log < 0) ::_exit(91);
  if (::isatty(log) == 1) {
    ::setsid();
    ::ioctl(log, TIOCSCTTY, 0);
  }
  ::dup2(log, STDERR_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::close(log);
  for (const auto& [name, value] : options.environment) {
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  for (size_t i = 0; i < options.inherited.size(); ++i) {
    const int copy =
        ::fcntl(options.inherited[i], F_DUPFD, 100);  // Out of the way: dup2 onto itself would keep close-on-exec.
    ::dup2(copy, static_cast<int>(3 + i));
    ::close(copy);
  }
  if (!options.inherited.empty()) ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  if (options.uid && (::setgid(*options.uid) != 0 || ::setuid(*options.uid) != 0)) ::_exit(90);
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  if (options.address_space_max != 0) {
    // A new thread's stack is as large as the limit on the first one's.
    const rlimit stack = {.rlim_cur = 8 << 20, .rlim_max = 8 << 20};
    const rlimit all = {.rlim_cur = options.address_space_max, .rlim_max = options.address_space_max};
    if (::setrlimit(RLIMIT_STACK, &stack) != 0 || ::setrlimit(RLIMIT_AS, &all) != 0) ::_exit(90);
  }
  ::execv(TIERD_PROGRAM, words.data());
  ::_exit(91);
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int StatusOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

}  // namespace

ScratchDirectory::ScratchDirectory() {
  std::string path = TIER_SCRATCH "/crash-XXXXXX";
  TIER_CHECK(::mkdtemp(path.data()) != nullptr, "{} errno {}", path, errno);
  path_ = path;
  TIER_CHECK(::chmod(path.c_str(), 0755) == 0, "{}", path);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> SmallDaemon(const ScratchDirectory& scratch) {
  return {"--set", "daemon.socket_directory=" + scratch / "run",
          "--set", "daemon.data_directory=" + scratch / "data",
          "--set", "arena.maximum=64MiB",
          "--set", "arena.host_reserve=64MiB",
          "--set", "ssd.file_size=128MiB",
          "--set", "metrics.listen="};
}

DaemonProcess::DaemonProcess(const ScratchDirectory& scratch, DaemonOptions options)
    : run_(scratch / "run"),
      output_path_(scratch / "output"),
      notify_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  // Abstract: its name is not limited by where the scratch directory lies.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "tier-crash-" + std::to_string(::getpid()) + scratch.path().filename().string();
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  TIER_CHECK(::bind(notify_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0, "errno {}", errno);
  std::vector<std::string> arguments = {"tierd"};
  for (const std::string& argument : SmallDaemon(scratch)) arguments.push_back(argument);
  for (const std::string& argument : options.arguments) arguments.push_back(argument);
  options.environment.emplace_back("NOTIFY_SOCKET", "@" + name);
  pid_ = ::fork();
  TIER_CHECK(pid_ >= 0, "errno {}", errno);
  if (pid_ == 0) Exec(arguments, options, output_path_);
}

DaemonProcess::~DaemonProcess() { Kill(); }

std::optional<std::string> DaemonProcess::NextNotice(int wait_ms) {
  const proto::FileDescriptor end(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  std::array<pollfd, 2> polls = {
      {{.fd = notify_.get(), .events = POLLIN, .revents = 0}, {.fd = end.get(), .events = POLLIN, .revents = 0}}};
  if (::poll(polls.data(), polls.size(), wait_ms) <= 0 || (polls[0].revents & POLLIN) == 0) return std::nullopt;
  std::array<char, 4096> text;
  const ssize_t length = ::recv(notify_.get(), text.data(), text.size(), 0);
  return std::string(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
}

bool DaemonProcess::WaitReady() {
  auto notice = NextNotice(kStartMs);
  // A start that makes its device, or waits for one, asks for more time.
  while (notice && notice->starts_with("EXTEND_TIMEOUT_USEC=")) notice = NextNotice(kStartMs);
  if (!notice || !notice->starts_with("READY=1\n")) return false;
  const size_t at = notice->find("STATUS=");
  status_ = notice->substr(at + 7, notice->find('\n', at) - at - 7);
  return true;
}

bool DaemonProcess::WaitOutput(const std::string& text) const {
  const proto::FileDescriptor end(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  const proto::FileDescriptor writes(::inotify_init1(IN_CLOEXEC));
  TIER_CHECK(::inotify_add_watch(writes.get(), output_path_.c_str(), IN_MODIFY) >= 0, "errno {}", errno);
  std::array<pollfd, 2> polls = {
      {{.fd = writes.get(), .events = POLLIN, .revents = 0}, {.fd = end.get(), .events = POLLIN, .revents = 0}}};
  for (;;) {
    if (Output().find(text) != std::string::npos) return true;
    if (::poll(polls.data(), polls.size(), kStartMs) <= 0 || (polls[0].revents & POLLIN) == 0) break;
    std::array<char, 4096> events;
    if (::read(writes.get(), events.data(), events.size()) <= 0) break;
  }
  return Output().find(text) != std::string::npos;
}

int DaemonProcess::Stop(int signal) {
  if (pid_ < 0) return 0;
  ::kill(pid_, signal);
  return Wait();
}

int DaemonProcess::Wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return StatusOf(status);
}

std::string DaemonProcess::Output() const { return ReadFile(output_path_); }

Outcome RunTierd(const ScratchDirectory& scratch, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& environment, uint64_t address_space_max) {
  const std::string output = scratch / "run-output";
  std::filesystem::remove(output);
  std::vector<std::string> words = {"tierd"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  DaemonOptions options;
  options.environment = environment;
  options.address_space_max = address_space_max;
  const pid_t pid = ::fork();
  TIER_CHECK(pid >= 0, "errno {}", errno);
  if (pid == 0) Exec(words, options, output);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return {StatusOf(status), ReadFile(output)};
}

}  // namespace tier::crash
