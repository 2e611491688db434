#include "daemon/control/watch_reactor.h"

#include <utility>

#include "daemon/control/convert.h"

namespace tier::control {

WatchReactor* WatchReactor::Start(session::ControlApi& api, const session::Caller& caller,
                                  grpc::CallbackServerContext* context) {
  auto* reactor = new WatchReactor();  // Owned by gRPC until OnDone.
  {
    const MutexLock lock(reactor->self_->mutex);
    reactor->self_->reactor = reactor;
  }
  auto subscription = api.Watch(caller, [self = reactor->self_](const session::Event& event) {
    const MutexLock lock(self->mutex);
    if (self->reactor != nullptr) self->reactor->Push(event);
  });
  if (!subscription) {
    const MutexLock lock(reactor->mutex_);
    reactor->finished_ = true;
    reactor->Finish(ToStatus(subscription.error(), context));
    return reactor;
  }
  reactor->subscription_ = std::move(*subscription);
  // The headers tell the client that events from here on will reach it.
  reactor->StartSendInitialMetadata();
  return reactor;
}

void WatchReactor::Push(const session::Event& event) {
  const MutexLock lock(mutex_);
  if (finished_) return;
  if (queue_.size() == kWatchQueueMax) queue_.pop_front();
  ToMessage(event, &queue_.emplace_back());
  if (!writing_) WriteNext();
}

void WatchReactor::WriteNext() {
  if (queue_.empty()) return;
  in_flight_ = std::move(queue_.front());
  queue_.pop_front();
  writing_ = true;
  StartWrite(&in_flight_);
}

void WatchReactor::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok && !std::exchange(finished_, true)) {
    Finish(grpc::Status::CANCELLED);
    return;
  }
  if (!finished_) WriteNext();
}

void WatchReactor::OnCancel() {
  const MutexLock lock(mutex_);
  if (!std::exchange(finished_, true)) Finish(grpc::Status::CANCELLED);
}

void WatchReactor::OnDone() {
  {
    const MutexLock lock(self_->mutex);
    self_->reactor = nullptr;
  }
  subscription_.reset();
  delete this;
}

}  // namespace tier::control
