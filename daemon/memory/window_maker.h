// WindowMaker: makes, prefaults, collapses and closes windows on worker threads.
//
// The idea: a window becomes a queue of steps (open, populate 8 MiB at a time, done), taken by at most one task a
// worker thread, each of which does some 8 MiB worth (about 5 ms) and goes back to the end of the workers' queue. So
// several threads prefault one large window, one task makes several small ones, checksums are never kept waiting for
// long, and a full workers' queue only delays.
//
// Engine thread only; what the tasks share lies behind one mutex that is never held across a system call. Windows still
// in the making when the maker ends are dropped by the tasks themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/workers.h"
#include "daemon/memory/window.h"

namespace tier::memory {

struct WindowOrder {
  Window::Options window;
  bool may_fall_back = false;  // window.pages is kHuge: small pages will do where no huge ones are to be had.
  bool made_ahead = false;     // Nothing waits for it: on_finished may tell of it together with others.
  bool collapse = false;       // Small pages: make them transparent huge ones, at some 1.1 s a GiB instead of 0.7.
};

struct MadeWindow {
  WindowIndex index{};
  Window window;  // Without a file: it was not made, `error` says why; or it was closed.
  Error error{Code::kOk, {}};
  int node = kAnyNode;            // Window::FirstNode.
  bool closed = false;            // The answer to StartClose.
  proto::FileDescriptor retired;  // Of one that was closed: Window::Close.
};

struct MakerCounters {  // Since start.
  uint64_t populated_bytes = 0;
  uint64_t huge_fallbacks = 0;  // Windows in small pages for want of huge ones.
  uint64_t collapsed_bytes = 0;
  uint64_t collapse_refused = 0;  // Steps whose pages were to be collapsed and stayed small.

  MakerCounters operator+(const MakerCounters& other) const {
    return {populated_bytes + other.populated_bytes, huge_fallbacks + other.huge_fallbacks,
            collapsed_bytes + other.collapsed_bytes, collapse_refused + other.collapse_refused};
  }
};

class WindowMaker {
 public:
  static constexpr uint64_t kStepBytes = 8 * kMiB;
  // Steps that do without after the kernel has refused one: looking for huge pages where there are none is slow.
  static constexpr int32_t kCollapsePause = 31;

  // `on_finished` is called by a worker after something has become ready for Poll; it must not block, and must stay
  // callable for as long as the workers live. May be null.
  WindowMaker(base::Workers* workers, std::function<void()> on_finished);
  ~WindowMaker();

  void StartMake(const WindowOrder& order);
  void StartClose(WindowIndex index, Window window);
  // Until this is called, no thread pauses behind a window that is made ahead: there is nothing to give way to.
  void PauseBetweenWindows();
  bool pauses_between_windows() const;
  // Appends what has finished; never blocks for long.
  void Poll(std::vector<MadeWindow>* made);
  uint32_t unfinished() const { return unfinished_; }  // Started, not yet polled.
  MakerCounters counters() const;

 private:
  struct Shared;
  void PostTasks();

  base::Workers* workers_;
  std::shared_ptr<Shared> shared_;
  uint32_t unfinished_ = 0;
};

}  // namespace tier::memory
