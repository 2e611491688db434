#include "libclient/control/watch.h"

#include <utility>

namespace tier::control_client {

Result<std::unique_ptr<WatchStream>> WatchStream::Start(const Channel& channel) {
  std::unique_ptr<WatchStream> watch(new WatchStream());
  channel.Prepare(&watch->context_);
  watch->reader_ = channel.stub().Watch(&watch->context_, v1::WatchRequest());
  watch->reader_->WaitForInitialMetadata();  // The daemon sends it when the subscription stands.
  watch->thread_ = std::thread([raw = watch.get(), socket = channel.socket()] { raw->ReadAll(socket); });
  return watch;
}

WatchStream::~WatchStream() {
  context_.TryCancel();
  if (thread_.joinable()) thread_.join();
}

void WatchStream::ReadAll(const std::string& socket) {
  v1::Event event;
  while (reader_->Read(&event)) {
    const std::lock_guard lock(mutex_);
    if (queue_.size() == kEventsQueuedMax) queue_.pop_front();
    queue_.push_back(event);
    changed_.notify_one();
  }
  const grpc::Status status = reader_->Finish();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  end_ =
      status.ok() ? Error{Code::kDisconnected, "the daemon ended the event stream"} : ToError(status, context_, socket);
  changed_.notify_all();
}

Result<v1::Event> WatchStream::Next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool ready = changed_.wait_for(lock, timeout, [&] { return !queue_.empty() || ended_; });
  if (!queue_.empty()) {
    v1::Event event = std::move(queue_.front());
    queue_.pop_front();
    return event;
  }
  if (ready) return std::unexpected(end_);
  return Fail(Code::kTimeout, "no event within " + std::to_string(timeout.count()) + " ms");
}

}  // namespace tier::control_client
