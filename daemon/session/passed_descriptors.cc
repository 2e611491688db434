#include "daemon/session/passed_descriptors.h"

#include <sys/socket.h>

#include <utility>

#include "daemon/base/interrupt_timer.h"
#include "proto/start_thread.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16; not in older headers.
#endif

namespace tier::session {

void RefuseDescriptors(int socket) {
  const int off = 0;
  (void)::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));  // DescriptorsRefused says what came of it.
}

bool DescriptorsRefused(int socket) {
  int allowed = 1;
  socklen_t size = sizeof(allowed);
  return ::getsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &allowed, &size) == 0 && allowed == 0;
}

BackgroundCloser::~BackgroundCloser() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (!thread_.joinable()) {
    if (waiting_.load(std::memory_order_relaxed) > 0) Run();  // No thread could be started for them.
    return;
  }
  changed_.NotifyOne();
  thread_.join();
}

Status BackgroundCloser::Close(proto::FileDescriptor socket) {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  {
    const MutexLock lock(mutex_);
    queue_.push_back(std::move(socket));
  }
  changed_.NotifyOne();
  return EnsureThread();
}

bool BackgroundCloser::full() {
  if (waiting_.load(std::memory_order_relaxed) < kBackgroundClosesMax) return false;
  (void)EnsureThread();  // Full it is; without a thread it would stay so.
  return true;
}

Status BackgroundCloser::EnsureThread() {
  if (thread_.joinable()) return {};
  auto thread = proto::StartThread("tierd-close", proto::BlockedSignals::kAsynchronous, [this] { Run(); });
  if (!thread) return std::unexpected(std::move(thread.error()));
  thread_ = std::move(*thread);
  return {};
}

void BackgroundCloser::Run() {
  base::InterruptTimer timer;
  const MutexLock lock(mutex_);
  for (;;) {
    while (!stopping_ && queue_.empty()) changed_.Wait(mutex_);
    if (queue_.empty()) return;
    proto::FileDescriptor socket = std::move(queue_.front());
    queue_.pop_front();
    const MutexUnlock unlocked(mutex_);
    timer.Start();
    socket.Reset();
    timer.Stop();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace tier::session
