// A stream of daemon events: a reader thread fills a bounded queue, Next() empties it.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <thread>

#include "libclient/control/channel.h"
#include "proto/mutex.h"

namespace tier::control_client {

inline constexpr size_t kEventsQueuedMax = 1024;  // Beyond it the oldest goes; the reader sees a gap in `sequence`.

class WatchStream {
 public:
  // Returns once the daemon has confirmed the subscription. NO_MEMORY: the system gives no thread to read it with.
  // `channel` must outlive the stream.
  static Result<std::unique_ptr<WatchStream>> Start(const Channel& channel);
  ~WatchStream();  // Cancels and joins.
  // TIMEOUT without an event in time, DISCONNECTED (or the daemon's code) when the stream has ended.
  Result<v1::Event> Next(std::chrono::milliseconds timeout);

 private:
  WatchStream() = default;
  void ReadAll(const std::string& socket);

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Event>> reader_;
  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::Event> queue_ TIER_GUARDED_BY(mutex_);
  bool ended_ TIER_GUARDED_BY(mutex_) = false;
  Error end_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::control_client
