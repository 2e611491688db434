// RetiredWindows: the files of windows that were closed while another process could still use them: one that is
// stopped, that was revoked, or that keeps what it was asked to return.
//
// Nothing can take a mapping from another process, so each file stays open here until no other process has it open or
// mapped. Once a second or so a worker looks at all of them (Start). What a process has put into one again is punched
// out and counted. What it has pinned leaves the file and cannot be seen: so a file that a process has is reported
// whole.
//
// That no other process has a file is known exactly: the kernel gives a write lease (F_SETLEASE) on a file only to its
// sole opener, and a mapping keeps the file open. Where it gives none for other reasons, a file stays until it has to
// make room for others.
//
// Engine thread only; what the worker's task shares lies behind one mutex that is never held across a system call.
// At most so many files as FilesMax says; beyond that the oldest one of the job that has most is let go.
#pragma once

#include <compare>
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
  KeptWindow window;
  proto::FileDescriptor file;
};

class RetiredWindows {
 public:
  static constexpr size_t kFilesMax = 4096;  // Twice the windows of a job of 64 GiB.
  // An eighth of the descriptors that the process may have, and kFilesMax at most.
  static size_t FilesMax();

  explicit RetiredWindows(base::Workers* workers, size_t files_max = FilesMax());
  ~RetiredWindows();

  void Add(RetiredFile file);
  // The session has returned the window of this number (KeptWindow::number): no later Poll names it. O(1).
  void Strike(uint64_t number, uint64_t session);
  // Looks at all files, on a worker. Without effect while that is under way, or the workers' queue is full.
  void Start();
  // Takes over what a look has found: all that other processes have. False: no look has ended.
  bool Poll(std::vector<KeptWindow>* kept);

  size_t count() const { return count_; }

 private:
  struct Shared;
  struct Answer {
    uint64_t number = 0;
    uint64_t session = 0;
    friend auto operator<=>(const Answer&, const Answer&) = default;
  };
  void StrikeAnswers(std::vector<RetiredFile>* files);
  base::Workers* workers_;
  std::shared_ptr<Shared> shared_;
  std::vector<RetiredFile> files_;  // Not those that are being looked at.
  std::vector<Answer> answers_;     // Since a look ended last: the names of these are still on the files.
  bool under_way_ = false;
  size_t count_ = 0;
  size_t files_max_;
};

}  // namespace tier::memory
