// DaemonProcess: a real tierd in a scratch directory, for tests that need the whole program: started with what a test
// says, waited for by its READY, and gone with the object.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/mapping.h"

namespace tier::crash {

// A directory of its own on a real file system (the build tree's), removed with everything in it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct DaemonOptions {
  std::vector<std::string> arguments;                            // After the program's name.
  std::vector<std::pair<std::string, std::string>> environment;  // Added; an empty value removes the variable.
  std::optional<uid_t> uid;                                      // Needs root.
  std::vector<int> inherited;                                    // Become descriptors 3, 4, … (socket activation).
  uint64_t address_space_max = 0;  // RLIMIT_AS and, with it, stacks of 8 MiB; 0: as the test's own.
  int output = -1;                 // Takes its output instead of the file. A terminal becomes its controlling terminal.
};

class DaemonProcess {
 public:
  // Starts it in `scratch` with a small arena and SSD file and sockets of its own.
  DaemonProcess(const ScratchDirectory& scratch, DaemonOptions options = {});
  ~DaemonProcess();

  // True once it said READY; false when it ended instead.
  bool WaitReady();
  // What it told the service manager: the next message, or nothing if it ends or is silent for `wait_ms`.
  std::optional<std::string> NextNotice(int wait_ms);
  // True once its output holds `text`; false when it ended before, or said nothing like it for a minute.
  bool WaitOutput(const std::string& text) const;
  // Ends it with SIGTERM (or `signal`) and returns its exit status; -signal if it was killed.
  int Stop(int signal = 15);
  int Wait();
  void Kill() { (void)Stop(9); }

  pid_t pid() const { return pid_; }
  const std::string& status() const { return status_; }  // STATUS= of its READY.
  std::string Output() const;                            // Standard error so far.
  std::string socket() const { return run_ + "/tierd.sock"; }
  const std::string& run_directory() const { return run_; }

 private:
  std::string run_;
  std::string output_path_;
  std::string status_;
  proto::FileDescriptor notify_;
  pid_t pid_ = -1;
};

// Runs tierd to its end; its exit status and everything it wrote.
struct Outcome {
  int status = 0;
  std::string output;
};
Outcome RunTierd(const ScratchDirectory& scratch, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& environment = {},
                 uint64_t address_space_max = 0);

// What small daemons of tests are started with.
std::vector<std::string> SmallDaemon(const ScratchDirectory& scratch);

}  // namespace tier::crash
