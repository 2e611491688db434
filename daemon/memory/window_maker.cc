// Steps, and the worker tasks that take them.
#include "daemon/memory/window_maker.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <utility>

#include "daemon/base/check.h"
#include "proto/mutex.h"
#include "proto/urgency.h"

namespace tier::memory {
namespace {

constexpr size_t kToldTogether = 64;  // Windows made ahead, at most.

// One window in the making, or being closed.
struct Job {
  WindowOrder order;
  Window window;
  bool close = false;
  proto::FileDescriptor retired;  // Of one that was closed.
  uint32_t steps_left = 0;        // Under the mutex.
  Error error{Code::kOk, {}};     // Under the mutex; the first one stays.
};

struct Step {
  enum class Kind : uint8_t { kClose, kOpen, kPopulate };
  Kind kind = Kind::kOpen;
  std::shared_ptr<Job> job;
  uint64_t offset = 0;
  uint64_t length = 0;
};

}  // namespace

struct WindowMaker::Shared : std::enable_shared_from_this<WindowMaker::Shared> {
  Shared(base::Workers* w, std::function<void()> f) : workers(w), on_finished(std::move(f)) {}

  base::Workers* const workers;
  const std::function<void()> on_finished;
  Mutex mutex;
  // At most kWindowsMax jobs of at most kWindowSizeMax / kStepBytes steps.
  std::deque<Step> steps TIER_GUARDED_BY(mutex);
  std::vector<MadeWindow> finished TIER_GUARDED_BY(mutex);
  unsigned tasks TIER_GUARDED_BY(mutex) = 0;          // Posted or running.
  unsigned tasks_waiting TIER_GUARDED_BY(mutex) = 0;  // Posted, not begun.
  bool stopping TIER_GUARDED_BY(mutex) = false;
  std::atomic<uint32_t> finished_count{0};
  std::atomic<bool> pauses{false};  // Behind windows that are made ahead; behind others always.
  std::atomic<uint64_t> populated_bytes{0};
  std::atomic<uint64_t> huge_fallbacks{0};
  std::atomic<uint64_t> collapsed_bytes{0};
  std::atomic<uint64_t> collapse_refused{0};
  std::atomic<int32_t> collapse_pause{0};  // Steps left. Threads that take one at once may take it below 0.

  void PostTasks();
  void RunTask();
  bool TakeStep(Step* step);
  void Do(const Step& step);
  void Close(const std::shared_ptr<Job>& job);
  void Open(const std::shared_ptr<Job>& job);
  void Populate(const Step& step);
  void Collapse(const Step& step);
  void EndStep(const std::shared_ptr<Job>& job, Status status);
  bool TryFallBack(const std::shared_ptr<Job>& job);
  void Finish(const std::shared_ptr<Job>& job);
};

void WindowMaker::Shared::PostTasks() {
  for (;;) {
    {
      const MutexLock lock(mutex);
      if (tasks >= workers->threads() || tasks_waiting >= steps.size()) return;
      ++tasks;
      ++tasks_waiting;
    }
    if (workers->TryPost([self = shared_from_this()] { self->RunTask(); })) continue;
    const MutexLock lock(mutex);
    --tasks;  // The queue is full: Poll tries again.
    --tasks_waiting;
    return;
  }
}

bool WindowMaker::Shared::TakeStep(Step* step) {
  const MutexLock lock(mutex);
  if (steps.empty()) {
    --tasks;
    return false;
  }
  *step = std::move(steps.front());
  steps.pop_front();
  return true;
}

void WindowMaker::Shared::RunTask() {
  {
    const MutexLock lock(mutex);
    --tasks_waiting;
  }
  for (;;) {
    for (uint64_t done = 0; done < kStepBytes;) {
      Step step;
      if (!TakeStep(&step)) return;
      done += std::max(step.length, kPageSize);
      Do(step);
    }
    // To the end of the queue: others have waited. Where it is full there is nothing to be polite to.
    {
      const MutexLock lock(mutex);
      ++tasks_waiting;
    }
    if (workers->TryPost([self = shared_from_this()] { self->RunTask(); })) return;
    const MutexLock lock(mutex);
    --tasks_waiting;
  }
}

void WindowMaker::Shared::Do(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kClose: return Close(step.job);
    case Step::Kind::kOpen: return Open(step.job);
    case Step::Kind::kPopulate: return Populate(step);
  }
}

void WindowMaker::Shared::Close(const std::shared_ptr<Job>& job) {
  job->retired = job->window.Close();
  Finish(job);
  proto::GiveWay();
}

void WindowMaker::Shared::Open(const std::shared_ptr<Job>& job) {
  Result<Window> window = Window::Open(job->order.window);
  if (!window) {
    {
      const MutexLock lock(mutex);
      job->steps_left = 1;
    }
    return EndStep(job, std::unexpected(std::move(window.error())));
  }
  job->window = std::move(*window);
  TIER_CHECK(!job->close, "window {}", Value(job->order.window.index));
  const uint64_t size = job->window.size();
  if (size <= kStepBytes) {  // The common small window: no detour over the queue.
    job->steps_left = 1;
    return Populate({Step::Kind::kPopulate, job, 0, size});
  }
  {
    const MutexLock lock(mutex);
    job->steps_left = static_cast<uint32_t>(size / kStepBytes);
    // In front of what else waits, the first bytes first: windows finish in the order they were asked for.
    for (uint64_t end = size; end != 0; end -= kStepBytes) {
      steps.push_front({Step::Kind::kPopulate, job, end - kStepBytes, kStepBytes});
    }
  }
  PostTasks();
}

void WindowMaker::Shared::Populate(const Step& step) {
  const Window& window = step.job->window;
  bool wanted = false;
  {
    const MutexLock lock(mutex);
    wanted = !stopping && step.job->error.code == Code::kOk;
  }
  if (!wanted) return EndStep(step.job, {});
  if (step.job->order.collapse && window.page_size() == kPageSize) Collapse(step);
  Status status = window.Populate(step.offset, step.length);
  if (status) populated_bytes.fetch_add(step.length, std::memory_order_relaxed);
  EndStep(step.job, std::move(status));
}

// Before populating: a block made as one huge page needs no small ones, and no copy of them.
void WindowMaker::Shared::Collapse(const Step& step) {
  bool collapsed = false;
  if (collapse_pause.load(std::memory_order_relaxed) > 0) {
    collapse_pause.fetch_sub(1, std::memory_order_relaxed);
  } else {
    collapsed = step.job->window.TryCollapse(step.offset, step.length);
    if (!collapsed) collapse_pause.store(kCollapsePause, std::memory_order_relaxed);
  }
  (collapsed ? collapsed_bytes : collapse_refused).fetch_add(collapsed ? step.length : 1, std::memory_order_relaxed);
}

void WindowMaker::Shared::EndStep(const std::shared_ptr<Job>& job, Status status) {
  {
    const MutexLock lock(mutex);
    TIER_CHECK(job->steps_left != 0, "window {}", Value(job->order.window.index));
    if (!status && job->error.code == Code::kOk) job->error = std::move(status.error());
    if (--job->steps_left != 0) return;
  }
  // The last step: the job is this thread's alone.
  if (job->error.code != Code::kOk) {
    (void)job->window.Close();  // No client has had it.
    if (TryFallBack(job)) return;
    job->window = Window();
  }
  Finish(job);
}

bool WindowMaker::Shared::TryFallBack(const std::shared_ptr<Job>& job) {
  if (!job->order.may_fall_back) return false;
  job->order.may_fall_back = false;
  job->order.window.pages = PageKind::kSmall;
  job->error = {Code::kOk, {}};
  huge_fallbacks.fetch_add(1, std::memory_order_relaxed);
  Open(job);
  return true;
}

void WindowMaker::Shared::Finish(const std::shared_ptr<Job>& job) {
  // Behind each window: this thread may be no nicer than those that wake up beside it.
  if (!job->close && (!job->order.made_ahead || pauses.load(std::memory_order_relaxed))) proto::GiveWay();
  bool tell = true;
  const int node = job->window ? job->window.FirstNode() : kAnyNode;
  {
    const MutexLock lock(mutex);
    if (stopping) return;
    finished.push_back({.index = job->order.window.index,
                        .window = std::move(job->window),
                        .error = std::move(job->error),
                        .node = node,
                        .closed = job->close,
                        .retired = std::move(job->retired)});
    finished_count.store(static_cast<uint32_t>(finished.size()), std::memory_order_release);
    tell = !job->order.made_ahead || steps.empty() || finished.size() >= kToldTogether;
  }
  if (tell && on_finished) on_finished();
}

WindowMaker::WindowMaker(base::Workers* workers, std::function<void()> on_finished)
    : workers_(workers), shared_(std::make_shared<Shared>(workers, std::move(on_finished))) {}

WindowMaker::~WindowMaker() {
  std::deque<Step> dropped;  // Ends outside the lock.
  const MutexLock lock(shared_->mutex);
  shared_->stopping = true;
  dropped.swap(shared_->steps);
}

void WindowMaker::PauseBetweenWindows() { shared_->pauses.store(true, std::memory_order_relaxed); }

bool WindowMaker::pauses_between_windows() const { return shared_->pauses.load(std::memory_order_relaxed); }

void WindowMaker::StartMake(const WindowOrder& order) {
  TIER_CHECK(order.window.size <= kStepBytes || order.window.size % kStepBytes == 0, "size {}", order.window.size);
  auto job = std::make_shared<Job>();
  job->order = order;
  {
    const MutexLock lock(shared_->mutex);
    shared_->steps.push_back({Step::Kind::kOpen, std::move(job), 0, std::min(order.window.size, kStepBytes)});
  }
  ++unfinished_;
  shared_->PostTasks();
}

void WindowMaker::StartClose(WindowIndex index, Window window) {
  TIER_CHECK(window, "window {} has no file", Value(index));
  auto job = std::make_shared<Job>();
  job->order.window.index = index;
  job->close = true;
  job->window = std::move(window);
  {
    const MutexLock lock(shared_->mutex);
    // First of all: what is closed is room for what is to be made.
    shared_->steps.push_front({Step::Kind::kClose, std::move(job), 0, kStepBytes});
  }
  ++unfinished_;
  shared_->PostTasks();
}

void WindowMaker::Poll(std::vector<MadeWindow>* made) {
  if (unfinished_ == 0) return;
  if (shared_->finished_count.load(std::memory_order_acquire) != 0) {
    const MutexLock lock(shared_->mutex);
    TIER_CHECK(shared_->finished.size() <= unfinished_, "finished {} of {}", shared_->finished.size(), unfinished_);
    unfinished_ -= static_cast<uint32_t>(shared_->finished.size());
    std::move(shared_->finished.begin(), shared_->finished.end(), std::back_inserter(*made));
    shared_->finished.clear();
    shared_->finished_count.store(0, std::memory_order_relaxed);
  }
  if (unfinished_ != 0) shared_->PostTasks();  // Costs a lock only; needed where the workers' queue was full.
}

MakerCounters WindowMaker::counters() const {
  return {shared_->populated_bytes.load(std::memory_order_relaxed),
          shared_->huge_fallbacks.load(std::memory_order_relaxed),
          shared_->collapsed_bytes.load(std::memory_order_relaxed),
          shared_->collapse_refused.load(std::memory_order_relaxed)};
}

}  // namespace tier::memory
