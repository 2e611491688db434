// See crowded.h.
#include "libclient/control/crowded.h"

#include <algorithm>
#include <random>
#include <thread>

namespace tier::control_client {

const Pauses& SystemPauses() {
  static const Pauses pauses{.now = [] { return std::chrono::system_clock::now(); },
                             .sleep = [](std::chrono::milliseconds pause) { std::this_thread::sleep_for(pause); },
                             .random =
                                 [] {
                                   thread_local std::minstd_rand source{std::random_device{}()};
                                   return std::uniform_real_distribution<>()(source);
                                 }};
  return pauses;
}

bool WasTurnedAway(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return false;
  if (context.GetServerTrailingMetadata().contains(kCodeKey)) return false;
  // gRPC's server has this code also for calls that it ends while they run, and for messages beyond a limit: only this
  // word of it says that the call was never begun.
  return status.error_message().find("Server Threadpool Exhausted") != std::string::npos;
}

Attempt RepeatWhileCrowded(std::chrono::system_clock::time_point deadline, const std::function<Attempt()>& attempt,
                           const Pauses& pauses) {
  std::chrono::milliseconds longest = kPauseFirst;
  for (;;) {
    Attempt made = attempt();
    if (!made.turned_away) return made;
    // At least half of it: a pause of nothing would only add to the crowd.
    const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(longest * (0.5 + pauses.random() / 2));
    if (pauses.now() + pause >= deadline) return made;
    pauses.sleep(pause);
    longest = std::min(longest * 2, kPauseMax);
  }
}

}  // namespace tier::control_client
