#include "tests/support/daemon_process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tier::daemon_process {
namespace {

void Require(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& added) {
  std::vector<std::string> lines;
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string text = *line;
    if (!added.contains(text.substr(0, text.find('=')))) lines.push_back(text);
  }
  for (const auto& [name, value] : added) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& lines) {
  std::vector<char*> pointers;
  for (std::string& line : lines) pointers.push_back(line.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildProcess::ChildProcess(const Options& options) {
  int ends[2];
  Require(::pipe2(ends, O_CLOEXEC) == 0, "pipe");
  output_ = Descriptor(ends[0]);
  const Descriptor write_end(ends[1]);
  auto command = options.command;
  auto environment = EnvironmentWith(options.environment);
  const auto argv = Pointers(command);
  const auto envp = Pointers(environment);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  Require(pid_ >= 0, "fork");
  if (pid_ == 0) {
    // Between fork and exec only calls that are safe in a child of a program with threads.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != parent) ::_exit(125);
    ::dup2(write_end.get(), STDOUT_FILENO);
    if (!options.error_file.empty()) {
      const int log = ::open(options.error_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      ::dup2(log, STDERR_FILENO);
    }
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(126);
  }
  pidfd_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  Require(pidfd_.get() >= 0, "pidfd_open");
}

ChildProcess::~ChildProcess() {
  if (joined_) return;
  Signal(SIGKILL);
  Join();
}

std::string ChildProcess::ReadLine() {
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    std::array<char, 512> part;
    const ssize_t got = ::read(output_.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    buffer_.append(part.data(), static_cast<size_t>(got));
  }
}

void ChildProcess::Signal(int signal) {
  if (!joined_) ::kill(pid_, signal);
}

bool ChildProcess::AwaitDeath(std::chrono::milliseconds timeout) {
  pollfd entry{pidfd_.get(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

int ChildProcess::Join() {
  if (joined_) return status_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  joined_ = true;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_;
}

}  // namespace tier::daemon_process
