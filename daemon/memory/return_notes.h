// ReturnNotes: what the engine notes of windows that are to come back, for those who are asked about them later
// (KeptWindow). Few windows have any at a time, so they lie beside the table of windows. Engine thread only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/units.h"

namespace tier::memory {

class ReturnNotes {
 public:
  struct Notes {  // As WindowSource says.
    std::vector<uint64_t> unreturned;
    std::vector<uint64_t> asked;
    uint64_t number = 0;  // 0: it has none yet.
    bool owed = false;
  };

  Notes& Edit(WindowIndex window) { return notes_[window]; }
  uint64_t NumberOf(WindowIndex window) {
    uint64_t& number = notes_[window].number;
    if (number == 0) number = ++last_number_;
    return number;
  }
  void ClearUnreturned(WindowIndex window) {
    if (const auto at = notes_.find(window); at != notes_.end()) at->second.unreturned.clear();
  }
  void Strike(WindowIndex window, uint64_t number, uint64_t session) {
    const auto at = notes_.find(window);
    if (at != notes_.end() && at->second.number == number) std::erase(at->second.unreturned, session);
  }
  Notes Take(WindowIndex window) {
    auto taken = notes_.extract(window);
    return taken ? std::move(taken.mapped()) : Notes{};
  }

 private:
  std::unordered_map<WindowIndex, Notes> notes_;
  uint64_t last_number_ = 0;
};

}  // namespace tier::memory
