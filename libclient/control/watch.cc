#include "libclient/control/watch.h"

#include <utility>

#include "proto/start_thread.h"

namespace tier::control_client {

Result<std::unique_ptr<WatchStream>> WatchStream::Start(const Channel& channel) {
  std::unique_ptr<WatchStream> watch(new WatchStream());
  channel.Prepare(&watch->context_);
  watch->reader_ = channel.stub().Watch(&watch->context_, v1::WatchRequest());
  watch->reader_->WaitForInitialMetadata();  // The daemon sends it when the subscription stands.
  auto thread = proto::StartThread("tier-watch", proto::BlockedSignals::kAll,
                                   [raw = watch.get(), socket = channel.socket()] { raw->ReadAll(socket); });
  if (!thread) {
    watch->context_.TryCancel();
    watch->ReadAll(channel.socket());  // To its end: gRPC holds what is not finished.
    return std::unexpected(std::move(thread.error()));
  }
  watch->thread_ = std::move(*thread);
  return watch;
}

WatchStream::~WatchStream() {
  context_.TryCancel();
  if (thread_.joinable()) thread_.join();
}

void WatchStream::ReadAll(const std::string& socket) {
  v1::Event event;
  while (reader_->Read(&event)) {
    const MutexLock lock(mutex_);
    if (queue_.size() == kEventsQueuedMax) queue_.pop_front();
    queue_.push_back(event);
    changed_.NotifyOne();
  }
  const grpc::Status status = reader_->Finish();
  const MutexLock lock(mutex_);
  ended_ = true;
  end_ =
      status.ok() ? Error{Code::kDisconnected, "the daemon ended the event stream"} : ToError(status, context_, socket);
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
    return event;
  }
  if (ended_) return std::unexpected(end_);
  return Fail(Code::kTimeout, "no event within " + std::to_string(timeout.count()) + " ms");
}

}  // namespace tier::control_client
