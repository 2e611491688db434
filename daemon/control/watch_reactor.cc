#include "daemon/control/watch_reactor.h"

#include <utility>

#include "daemon/control/convert.h"

namespace tier::control {

WatchReactor* WatchReactor::Start(session::ControlApi& api, const session::Caller& caller,
                                  grpc::CallbackServerContext* context) {
  auto* reactor = new WatchReactor();  // Owned by gRPC until OnDone.
  reactor->self_ = std::make_shared<WatchReactor*>(reactor);
  auto subscription =
      api.Watch(caller, [self = reactor->self_, mutex = reactor->self_mutex_](const session::Event& event) {
        const std::lock_guard lock(*mutex);
        if (*self != nullptr) (*self)->Push(event);
      });
  if (!subscription) {
    const std::lock_guard lock(reactor->mutex_);
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
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (!ok && !std::exchange(finished_, true)) {
    Finish(grpc::Status::CANCELLED);
    return;
  }
  if (!finished_) WriteNext();
}

void WatchReactor::OnCancel() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(finished_, true)) Finish(grpc::Status::CANCELLED);
}

void WatchReactor::OnDone() {
  {
    const std::lock_guard lock(*self_mutex_);
    *self_ = nullptr;
  }
  subscription_.reset();
  delete this;
}

}  // namespace tier::control
