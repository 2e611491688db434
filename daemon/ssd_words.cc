#include "daemon/ssd_words.h"

namespace tier {

std::string SsdStatus(const storage::SsdTier& ssd) {
  const std::string& reason = ssd.ssd_mode_reason();
  switch (ssd.ssd_mode()) {
    case storage::SsdMode::kFull: return "";
    case storage::SsdMode::kReduced: return "the SSD file is smaller than usual: " + reason;
    case storage::SsdMode::kNone: break;
  }
  return "no SSD tier, tensors stay in RAM" + (reason.empty() ? "" : ": " + reason);
}

std::string IoModeName(const storage::SsdTier& ssd) {
  return ssd.io_mode() == storage::IoMode::kUring ? "io_uring" : "threads";
}

std::string SsdModeName(storage::SsdMode mode) {
  switch (mode) {
    case storage::SsdMode::kFull: return "full";
    case storage::SsdMode::kReduced: return "reduced";
    case storage::SsdMode::kNone: break;
  }
  return "none";
}

}  // namespace tier
