// Reservations: keeps the file of the jobs that are reserved for users as the running daemon has them, on a thread of
// its own: a first run comes, or one is closed, and the engine thread waits for no disk. Who reserves waits for it
// (ControlServer). A write that fails is made again. After a crash a reservation may be there again whose run came in
// the last second.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "daemon/base/clock.h"
#include "daemon/base/workers.h"
#include "daemon/session/reservation_file.h"
#include "daemon/session/warning_limit.h"

namespace tier {

struct ReservationsParts {
  boost::asio::io_context& io;                    // Of the main thread.
  session::ReservationFile* file = nullptr;       // Null: nothing is kept.
  std::function<uint64_t()> version;              // Of the list as it is now. Engine thread.
  std::function<session::ReservationList()> now;  // Engine thread; and for Finish once that has ended.
  const base::Clock& clock;
  std::function<void(const std::string&)> warn;  // Main thread.
};

class Reservations {
 public:
  explicit Reservations(ReservationsParts parts) : parts_(std::move(parts)) {}

  // About once a second: has the file written where it is not as the jobs are. It asks for the list only where the file
  // does not have that version. Engine thread.
  void Note();
  // The last ones are written when it returns. REQUIRES: the engine thread has ended.
  void Finish();

 private:
  void Save(session::ReservationList list);  // Main thread.
  void EndSave(const Status& saved);

  const ReservationsParts parts_;
  std::atomic<bool> saving_{false};  // One list at a time waits to be written.
  session::WarningLimit warnings_{1, std::chrono::seconds(60)};
  std::unique_ptr<base::Workers> writer_;  // One thread. Null: there was nothing to write yet.
};

}  // namespace tier
