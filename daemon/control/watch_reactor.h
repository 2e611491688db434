// One Watch stream: carries events from ControlApi to one gRPC client at the client's pace.
//
// A short queue stands between the two; while it is full, ControlApi's thread for this watcher waits. Events that come
// meanwhile wait in the daemon's own queue for it, or are lost there, which the watcher is told (event_log.h). Methods
// are called by gRPC's threads and by that thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "daemon/session/control_api.h"
#include "proto/mutex.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::control {

inline constexpr size_t kWatchQueueMax = 64;

class WatchReactor final : public grpc::ServerWriteReactor<v1::WatchResponse> {
 public:
  // Starts the stream; deletes itself when it is done (gRPC's OnDone).
  // RESOURCE_EXHAUSTED, and no events, when too many watch already.
  static WatchReactor* Start(session::ControlApi& api, const session::Caller& caller, const v1::WatchRequest& request,
                             grpc::CallbackServerContext* context);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchReactor() = default;
  Result<std::shared_ptr<void>> Subscribe(session::ControlApi& api, const session::Caller& caller,
                                          const v1::WatchRequest& request);
  // All there is to tell: the stream ends behind it.
  void PushLast(const std::vector<session::Event>& events);
  void Push(const session::Event& event);
  void WriteNext() TIER_REQUIRES(mutex_);  // REQUIRES: no write in flight.
  void End(const grpc::Status& status) TIER_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar has_room_;
  std::deque<v1::WatchResponse> queue_ TIER_GUARDED_BY(mutex_);
  v1::WatchResponse in_flight_ TIER_GUARDED_BY(mutex_);
  bool writing_ TIER_GUARDED_BY(mutex_) = false;
  bool last_is_queued_ TIER_GUARDED_BY(mutex_) = false;
  bool finished_ TIER_GUARDED_BY(mutex_) = false;
  std::shared_ptr<void> subscription_;
  struct Self {  // Cleared before deletion, so that a late event finds no reactor.
    Mutex mutex;
    WatchReactor* reactor TIER_GUARDED_BY(mutex) = nullptr;
  };
  std::shared_ptr<Self> self_ = std::make_shared<Self>();
};

}  // namespace tier::control
