// RetiredWindows: the files of windows that were closed while another process could still use them: one that is
// stopped, that was revoked, or that keeps what it was asked to return.
//
// Nothing can take a mapping from another process, so each file stays open here until no other process has it open or
// mapped. Once a second or so a worker looks at all of them (Start). What a process has put into one again is punched
// out and counted. A process that was stopped while it mapped the window fills it once when it goes on, and then
// returns it; so what is reported is a file that was filled again in two looks.
//
// That no other process has a file is known exactly: the kernel gives a write lease (F_SETLEASE) on a file only to its
// sole opener, and a mapping keeps the file open. Where it gives none for other reasons, a file stays until it has to
// make room for others.
//
// Engine thread only; what the worker's task shares lies behind one mutex that is never held across a system call.
// At most kFilesMax files; beyond that the oldest is let go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/base/workers.h"
#include "daemon/memory/window_source.h"
#include "proto/mapping.h"

namespace tier::memory {

// Whether no other process has the file open or mapped. It was opened by its path, for reading and writing.
bool IsUnusedByOthers(int file);

struct RetiredFile {
  OwnerId owner{};
  std::vector<uint64_t> sessions;  // Those that have not returned the window.
  proto::FileDescriptor file;
  uint64_t refilled_bytes = 0;  // Found and punched out in the last look.
  uint32_t refills = 0;         // Looks that found some.
};

class RetiredWindows {
 public:
  static constexpr size_t kFilesMax = 1024;
  static constexpr uint32_t kRefillsReported = 2;

  explicit RetiredWindows(base::Workers* workers);
  ~RetiredWindows();

  void Add(RetiredFile file);
  // Looks at all files, on a worker. Without effect while that is under way, or the workers' queue is full.
  void Start();
  // Takes over what a look has found. Appends files that were filled again, for the second time and further ones.
  void Poll(std::vector<WindowRefill>* refills);

  size_t count() const { return count_; }
  uint64_t refilled_bytes() const { return refilled_bytes_; }  // In all files, in the last look.

 private:
  struct Shared;
  base::Workers* workers_;
  std::shared_ptr<Shared> shared_;
  std::vector<RetiredFile> files_;  // Not those that are being looked at.
  bool under_way_ = false;
  size_t count_ = 0;
  uint64_t refilled_bytes_ = 0;
};

}  // namespace tier::memory
