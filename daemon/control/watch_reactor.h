// One Watch stream: carries events from ControlApi to one gRPC client at the client's pace.
//
// A bounded queue stands between the daemon and a slow reader; when it is full the oldest event goes, which the reader
// sees as a gap in `sequence`. Methods are called by gRPC's threads and by ControlApi's event thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include <grpcpp/grpcpp.h>

#include "control.grpc.pb.h"
#include "daemon/session/control_api.h"

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
  void WriteNext();  // REQUIRES: mutex_ held, no write in flight.

  std::mutex mutex_;
  std::deque<v1::Event> queue_;
  v1::Event in_flight_;
  bool writing_ = false;
  bool finished_ = false;
  std::shared_ptr<void> subscription_;
  std::shared_ptr<WatchReactor*> self_;  // Cleared before deletion, so that a late event finds nobody.
  std::shared_ptr<std::mutex> self_mutex_ = std::make_shared<std::mutex>();
};

}  // namespace tier::control
