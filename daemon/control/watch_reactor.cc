#include "daemon/control/watch_reactor.h"

#include <utility>

#include "daemon/control/convert.h"

namespace tier::control {

WatchReactor* WatchReactor::Start(session::ControlApi& api, const session::Caller& caller,
                                  const v1::WatchRequest& request, grpc::CallbackServerContext* context) {
  auto* reactor = new WatchReactor();  // Owned by gRPC until OnDone.
  if (request.recent_only()) {
    reactor->PushLast(api.RecentEvents(caller, request.since()));
    return reactor;
  }
  {
    const MutexLock lock(reactor->self_->mutex);
    reactor->self_->reactor = reactor;
  }
  auto subscription = reactor->Subscribe(api, caller, request);
  if (!subscription) {
    const MutexLock lock(reactor->mutex_);
    const Error& error = subscription.error();
    reactor->End(ToStatus({error.code, api.NameOwners(caller, error.message)}, context));
    return reactor;
  }
  reactor->subscription_ = std::move(*subscription);
  // The headers tell the client that events from here on will reach it.
  reactor->StartSendInitialMetadata();
  return reactor;
}

Result<std::shared_ptr<void>> WatchReactor::Subscribe(session::ControlApi& api, const session::Caller& caller,
                                                      const v1::WatchRequest& request) {
  auto push = [self = self_](const session::Event& event) {
    const MutexLock lock(self->mutex);
    if (self->reactor != nullptr) self->reactor->Push(event);
  };
  if (!request.has_since()) return api.Watch(caller, std::move(push));
  return api.WatchFrom(caller, request.since(), std::move(push));
}

void WatchReactor::PushLast(const std::vector<session::Event>& events) {
  const MutexLock lock(mutex_);
  for (const session::Event& event : events) ToMessage(event, queue_.emplace_back().mutable_event());
  last_is_queued_ = true;
  WriteNext();
}

void WatchReactor::Push(const session::Event& event) {
  const MutexLock lock(mutex_);
  while (queue_.size() == kWatchQueueMax && !finished_) has_room_.Wait(mutex_);
  if (finished_) return;
  ToMessage(event, queue_.emplace_back().mutable_event());
  if (!writing_) WriteNext();
}

void WatchReactor::WriteNext() {
  if (queue_.empty()) {
    if (last_is_queued_) End(grpc::Status::OK);
    return;
  }
  in_flight_ = std::move(queue_.front());
  queue_.pop_front();
  has_room_.NotifyOne();
  writing_ = true;
  StartWrite(&in_flight_);
}

// Once. Who waits for room goes away.
void WatchReactor::End(const grpc::Status& status) {
  if (std::exchange(finished_, true)) return;
  has_room_.NotifyAll();
  Finish(status);
}

void WatchReactor::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) return End(grpc::Status::CANCELLED);
  if (!finished_) WriteNext();
}

void WatchReactor::OnCancel() {
  const MutexLock lock(mutex_);
  End(grpc::Status::CANCELLED);
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
