// PrefaultReport: what is to be told of a prefault as it goes on: that it has begun, each tenth of it, and its end.
// Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tier::memory {

class PrefaultReport {
 public:
  // The sentence that is due by the figures of ArenaSnapshot, if one is. `target_bytes` falls by what could not be had,
  // or was closed again.
  std::optional<std::string> Note(uint64_t done_bytes, uint64_t target_bytes);
  // Whether the end has been told.
  bool ended() const { return ended_; }

 private:
  uint64_t asked_bytes_ = 0;  // The target at the beginning; 0: there was none yet.
  uint64_t tenths_told_ = 0;
  bool ended_ = false;
};

}  // namespace tier::memory
