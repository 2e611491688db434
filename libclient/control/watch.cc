#include "libclient/control/watch.h"

#include <utility>

#include "proto/start_thread.h"

namespace tier::control_client {

Result<std::unique_ptr<WatchStream>> WatchStream::Start(const Channel& channel, const WatchOptions& options) {
  std::unique_ptr<WatchStream> watch(new WatchStream());
  channel.Prepare(&watch->context_);
  v1::WatchRequest request;
  if (options.since) request.set_since(*options.since);
  request.set_recent_only(options.recent_only);
  watch->recent_only_ = options.recent_only;
  watch->reader_ = channel.stub().Watch(&watch->context_, request);
  auto thread = proto::StartThread("tier-watch", proto::BlockedSignals::kAll,
                                   [raw = watch.get(), socket = channel.socket()] { raw->ReadAll(socket); });
  if (!thread) {
    watch->Cancel();
    watch->ReadAll(channel.socket());  // To its end: gRPC holds what is not finished.
    return std::unexpected(std::move(thread.error()));
  }
  watch->thread_ = std::move(*thread);
  if (auto subscribed = watch->AwaitSubscription(); !subscribed) return std::unexpected(subscribed.error());
  return watch;
}

Status WatchStream::AwaitSubscription() {
  const MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + kCallTimeout;
  bool in_time = true;
  while (!subscribed_ && in_time) in_time = changed_.WaitUntil(mutex_, deadline);
  if (subscribed_) return {};
  return Fail(Code::kTimeout, "the daemon has not answered within " + std::to_string(kCallTimeout.count()) + " ms");
}

void WatchStream::Cancel() {
  context_.TryCancel();
  const MutexLock lock(mutex_);
  closing_ = true;
  has_room_.NotifyAll();
}

WatchStream::~WatchStream() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

void WatchStream::ReadAll(const std::string& socket) {
  reader_->WaitForInitialMetadata();  // The daemon sends it when the subscription stands.
  {
    const MutexLock lock(mutex_);
    subscribed_ = true;
    changed_.NotifyAll();
  }
  v1::WatchResponse response;
  while (reader_->Read(&response)) {
    const MutexLock lock(mutex_);
    while (queue_.size() == kEventsQueuedMax && !closing_) has_room_.Wait(mutex_);
    if (closing_) continue;
    queue_.push_back(std::move(*response.mutable_event()));
    changed_.NotifyOne();
  }
  const grpc::Status status = reader_->Finish();
  const MutexLock lock(mutex_);
  ended_ = true;
  end_ = !status.ok()   ? ToError(status, context_, socket)
         : recent_only_ ? Error{Code::kOk, "these were all"}
                        : Error{Code::kDisconnected, "the daemon ended the event stream"};
  changed_.NotifyAll();
}

Result<v1::Event> WatchStream::Next(std::chrono::milliseconds timeout) {
  const MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  bool in_time = true;
  while (queue_.empty() && !ended_ && in_time) in_time = changed_.WaitUntil(mutex_, deadline);
  if (!queue_.empty()) {
    v1::Event event = std::move(queue_.front());
    queue_.pop_front();
    has_room_.NotifyOne();
    return event;
  }
  if (ended_) return std::unexpected(end_);
  return Fail(Code::kTimeout, "no event within " + std::to_string(timeout.count()) + " ms");
}

}  // namespace tier::control_client
