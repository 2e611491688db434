// Operation: an asynchronous call as its caller sees it. Threads: any. One waiter takes the outcome.
#pragma once

#include <chrono>
#include <cstdint>

#include "proto/result.h"

namespace tier::swap {

struct Outcome {
  uint64_t bytes = 0;  // Moved, as counted in the caller's memory.
  uint64_t non_finite_count = 0;
  double sum_of_squares = 0;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool done() = 0;
  // False when the deadline came first.
  virtual bool Wait(std::chrono::steady_clock::time_point deadline) = 0;
  // Returns its outcome. REQUIRES: it is done, or a Wait returned true. To be called once.
  virtual Result<Outcome> Take() = 0;
  // Asks that the operation end early.
  virtual void Cancel() = 0;
};

}  // namespace tier::swap
