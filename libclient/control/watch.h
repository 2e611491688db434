// A stream of daemon events: a reader thread fills a bounded queue, Next() empties it. While the queue is full nothing
// is read: the daemon notices, and says in the stream what is lost.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "libclient/control/channel.h"
#include "proto/mutex.h"

namespace tier::control_client {

inline constexpr size_t kEventsQueuedMax = 1024;

struct WatchOptions {
  std::optional<uint64_t> since;  // First the events behind this one; 0: all that the daemon has kept.
  bool recent_only = false;       // The stream ends behind those.
};

class WatchStream {
 public:
  // Returns once the daemon has confirmed the subscription. NO_MEMORY: the system gives no thread to read it with.
  // TIMEOUT: the daemon has not confirmed it within kCallTimeout.
  // `channel` must outlive the stream.
  static Result<std::unique_ptr<WatchStream>> Start(const Channel& channel, const WatchOptions& options = {});
  ~WatchStream();  // Cancels and joins.
  // TIMEOUT without an event in time, OK as an error where the recent ones have ended, DISCONNECTED (or the daemon's
  // code) when the stream has broken off.
  Result<v1::Event> Next(std::chrono::milliseconds timeout);

 private:
  WatchStream() = default;
  void Cancel();
  Status AwaitSubscription();
  void ReadAll(const std::string& socket);

  bool recent_only_ = false;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> reader_;
  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  CondVar has_room_;
  std::deque<v1::Event> queue_ TIER_GUARDED_BY(mutex_);
  bool subscribed_ TIER_GUARDED_BY(mutex_) = false;
  bool ended_ TIER_GUARDED_BY(mutex_) = false;
  bool closing_ TIER_GUARDED_BY(mutex_) = false;
  Error end_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::control_client
