// StartThread: starts the library's own threads. They inherit a mask with every signal blocked, so that no handler of
// the program ever runs in one. Threads: any.
#pragma once

#include <functional>
#include <thread>

#include "proto/result.h"

namespace tier::client {

// NO_MEMORY where the system gives no thread (a pids limit, no memory for a stack). The caller's own mask stays as it
// was.
Result<std::thread> StartThread(const char* name, std::function<void()> body);

}  // namespace tier::client
