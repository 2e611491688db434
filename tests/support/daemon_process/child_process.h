// ChildProcess: a program under test in a process of its own, killed with its parent; its standard output is read line
// by line. Threads: one.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tier::daemon_process {

// Owns a descriptor. Not proto's: these tests see the library from outside, where tier::Error is tier.hpp's.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> command;                // command[0] is the path.
    std::map<std::string, std::string> environment;  // Beside the parent's own.
    std::string error_file;                          // Where standard error goes; empty: the parent's.
  };
  // Throws std::runtime_error when it cannot be started.
  explicit ChildProcess(const Options& options);
  ~ChildProcess();  // Kills it if it still runs.
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  // The next line of its output without the newline; empty at its end.
  std::string ReadLine();
  void Signal(int signal);
  // Until its pidfd fires. False at the timeout.
  bool AwaitDeath(std::chrono::milliseconds timeout);
  // Waits for the end: exit status, or 128 + signal.
  int Join();

 private:
  pid_t pid_ = -1;
  bool joined_ = false;
  int status_ = 0;
  Descriptor pidfd_;
  Descriptor output_;
  std::string buffer_;
};

}  // namespace tier::daemon_process
