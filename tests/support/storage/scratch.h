// What storage tests need of the machine: a directory that goes away, window memory, random bytes, and commands that
// make real faults (loop devices, mounts, nbdkit).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/mapping.h"
#include "proto/units.h"

namespace tier::storage::testing {

// A directory under $TMPDIR (else /var/tmp: a disk, not tmpfs), removed with what is in it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A memory file mapped as the daemon maps a window.
class WindowMemory {
 public:
  explicit WindowMemory(uint64_t size);
  std::byte* data() const { return mapping_.data(); }
  uint64_t size() const { return mapping_.size(); }
  int fd() const { return file_.get(); }
  std::span<std::byte> bytes() const { return {data(), size()}; }
  void Fill(uint64_t seed) const;  // Bytes that depend on the seed and on where they lie.

 private:
  proto::FileDescriptor file_;
  proto::Mapping mapping_;
};

void FillRandom(std::span<std::byte> bytes, uint64_t seed);

// Runs `sh -c command`; true if it exits with 0. Output goes nowhere.
bool RunCommand(const std::string& command);
// The first line that `sh -c command` prints, empty on failure.
std::string CommandLine(const std::string& command);
bool IsRoot();
bool HasTool(const std::string& name);

// Runs commands, last added first, when it goes.
class Cleanup {
 public:
  Cleanup() = default;
  ~Cleanup();
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  void Add(std::string command) { commands_.push_back(std::move(command)); }

 private:
  std::vector<std::string> commands_;
};

// True when `fd` becomes readable within `timeout_ms`.
bool WaitReadable(int fd, int timeout_ms);

}  // namespace tier::storage::testing
