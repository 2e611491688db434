// StartThread: starts the threads of the library and of the daemon, with a name, a signal mask and an urgency. Threads:
// any.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "proto/result.h"
#include "proto/urgency.h"

namespace tier::proto {

enum class BlockedSignals {
  kAll,           // No handler of the program ever runs in the thread; a fault of it ends the process.
  kAsynchronous,  // All but faults, which have handlers of ours.
};

// NO_MEMORY where the system gives no thread (a pids limit, no memory for a stack). The caller's own mask stays as it
// was. Of `name` the first 15 bytes count.
Result<std::thread> StartThread(const std::string& name, BlockedSignals blocked, std::function<void()> body,
                                Urgency urgency = Urgency::kNormal);

}  // namespace tier::proto
