// PressureReport: what is to be told of a shortage of the host's memory: that the arena begins to give memory back, and
// what it has given when that is over. Two sentences for each shortage, however long it lasts. Pure; one thread at a
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/time.h"
#include "daemon/memory/host_pressure.h"

namespace tier::memory {

struct PressureFigures {  // Of the arena, in bytes.
  uint64_t arena_bytes = 0;
  uint64_t given_back_bytes = 0;  // Since the daemon's start.
};

class PressureReport {
 public:
  // The sentence that is due, if one is. `why`: what is short, in words.
  std::optional<std::string> Note(const HostPressure& pressure, const PressureFigures& figures, const std::string& why,
                                  base::TimePoint now);

 private:
  bool told_ = false;  // The begin, and not yet the end.
  uint64_t given_before_ = 0;
  base::TimePoint since_;
};

}  // namespace tier::memory
