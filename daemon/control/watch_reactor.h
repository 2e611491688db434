// One Watch stream: carries events from ControlApi to one gRPC client at the client's pace.
//
// A bounded queue stands between the daemon and a slow reader; when it is full the oldest event goes, which the reader
// sees as a gap in `sequence`. Methods are called by gRPC's threads and by ControlApi's event thread.
#pragma once

#include <deque>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "control.grpc.pb.h"
#include "daemon/session/control_api.h"
#include "proto/mutex.h"

namespace tier::control {

inline constexpr size_t kWatchQueueMax = 1024;

class WatchReactor final : public grpc::ServerWriteReactor<v1::Event> {
 public:
  // Starts the stream; deletes itself when it is done (gRPC's OnDone).
  // RESOURCE_EXHAUSTED, and no events, when too many watch already.
  static WatchReactor* Start(session::ControlApi& api, const session::Caller& caller,
                             grpc::CallbackServerContext* context);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchReactor() = default;
  void Push(const session::Event& event);
  void WriteNext() TIER_REQUIRES(mutex_);  // REQUIRES: no write in flight.

  Mutex mutex_;
  std::deque<v1::Event> queue_ TIER_GUARDED_BY(mutex_);
  v1::Event in_flight_ TIER_GUARDED_BY(mutex_);
  bool writing_ TIER_GUARDED_BY(mutex_) = false;
  bool finished_ TIER_GUARDED_BY(mutex_) = false;
  std::shared_ptr<void> subscription_;
  struct Self {  // Cleared before deletion, so that a late event finds no reactor.
    Mutex mutex;
    WatchReactor* reactor TIER_GUARDED_BY(mutex) = nullptr;
  };
  std::shared_ptr<Self> self_ = std::make_shared<Self>();
};

}  // namespace tier::control
