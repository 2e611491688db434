// ActivityReport: what log.level "debug" adds: once a second, what has changed in windows, requests and devices since
// the second before. A second in which nothing changed says nothing, so the lines are few however much the daemon does.
// One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/tiering/api/snapshot.h"

namespace tier {

class ActivityReport {
 public:
  // The lines to log. The first call has nothing to compare with, and says how things stand.
  std::vector<std::string> Note(const tiering::EngineSnapshot& now);
  // The level was another meanwhile: the next call is a first one.
  void Restart() { before_.reset(); }

 private:
  std::optional<tiering::EngineSnapshot> before_;
};

}  // namespace tier
