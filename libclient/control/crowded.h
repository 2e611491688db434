// Calls that a daemon's gRPC server turned away before tierd saw them, as too many of this user run already: a burst of
// them is over soon, so such a call is made again until its deadline.
//
// The idea: what tierd refuses carries its code, and is never repeated. What is turned away carries none, and has
// changed nothing. The pauses grow and are random, so that those who came together do not come again together.
// Thread-safe.
#pragma once

#include <chrono>
#include <functional>

#include <grpcpp/grpcpp.h>

namespace tier::control_client {

inline constexpr char kCodeKey[] = "tier-code";  // Of the metadata beside a status: tierd's own code.
inline constexpr std::chrono::milliseconds kPauseFirst{20};
inline constexpr std::chrono::milliseconds kPauseMax{640};

// What passes while a call waits for its turn. Tests have their own.
struct Pauses {
  std::function<std::chrono::system_clock::time_point()> now;
  std::function<void(std::chrono::milliseconds)> sleep;
  std::function<double()> random;  // From 0 to 1.
};
const Pauses& SystemPauses();

bool WasTurnedAway(const grpc::Status& status, const grpc::ClientContext& context);

struct Attempt {
  grpc::Status status;
  bool turned_away = false;
};
// Makes `attempt` until one is not turned away. The last one, if the next pause would reach `deadline`.
Attempt RepeatWhileCrowded(std::chrono::system_clock::time_point deadline, const std::function<Attempt()>& attempt,
                           const Pauses& pauses = SystemPauses());

}  // namespace tier::control_client
