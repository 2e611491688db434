// What an SSD tier is opened from. Plain data.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/time.h"
#include "daemon/storage/device_io.h"
#include "daemon/storage/file_system.h"
#include "daemon/storage/space_plan.h"
#include "daemon/storage/transfer.h"
#include "proto/result.h"

namespace tier::storage {

enum class IoChoice : uint8_t {
  kAuto,     // io_uring where the machine allows it, else threads (said in `io_mode_reason`).
  kUring,    // io_uring or a refusal.
  kThreads,  // The thread pool.
};
// What becomes of the tier when a device cannot be opened.
enum class Need : uint8_t {
  kRequired,    // The tier is refused.
  kIfRoom,      // The tier does without the device when there is no room to make its file.
  kIfPossible,  // The tier does without the device, whatever is in the way.
};

struct SsdDeviceOptions {
  std::string path;   // A block device, a file (made when absent), or, with private_file, a directory.
  uint64_t size = 0;  // Bytes, files only: of a new one, and what a smaller one grows to. 0: as it stands, or by rule.
  bool private_file = false;  // A file without a name in directory `path`: gone with the daemon.
  Need need = Need::kRequired;
};

inline constexpr auto kOpenWait = std::chrono::seconds(5);
inline constexpr auto kOpenRetryPause = std::chrono::milliseconds(250);
inline constexpr auto kMakeWait = std::chrono::minutes(10);  // To discard or extend a large device takes minutes.
inline base::TimePoint NowForRetries() { return base::SteadyClock().Now(); }

struct SsdTierOptions {
  std::vector<SsdDeviceOptions> devices;  // None: a tier without room; every Allocate answers NO_SPACE.
  std::string no_device_reason;           // Why there is none; empty: it was configured so.
  IoChoice io = IoChoice::kAuto;
  uint32_t io_depth = kIoDepthDefault;  // Requests on one device at a time, 1 … kIoDepthMax.
  uint32_t inflight_max = 1024;         // Transfers started and not yet polled.
  uint32_t merge_bytes_max = 0;         // Neighbouring transfers become one request up to this; 0: the default.
  uint32_t windows_max = kWindowsMax;   // Window indices are below this.
  bool discard_at_format = true;        // Block devices: BLKDISCARD before the first use.
  std::string data_dir;                 // Holds the manifests' index; empty: nothing persists (private daemons).
  uint64_t window_bytes_max = 0;        // Of all windows together: what is to be pinned for each device.
  bool allow_any_file_system = false;   // Tests: take tmpfs, overlayfs, FUSE and network file systems too.
  std::function<Result<FileSystemSpace>(const std::string&)> space = SpaceOf;  // Tests: how full the disk is.
  // A device that fails at first (IO_ERROR) may answer soon, as after a reset at the start of the machine. Where jobs
  // persisted tensors on it, it is opened again before it counts as lost, with a pause before each time; all such
  // devices until this one time. None: kOpenWait from now. One that hangs is waited for until that time too, and for
  // kOpenWait at least.
  std::optional<base::TimePoint> open_until;
  // The start is only planned: nothing is locked, made or written (device_opening.h). None: it is real.
  std::shared_ptr<SpacePlan> plan;
  // Told where the start takes time: it goes on for so long at most, or says so again before. May be empty.
  std::function<void(base::Duration)> on_wait;
  std::function<base::TimePoint()> now = NowForRetries;
  // Tests: in place of a pause of kOpenRetryPause. `unanswered`: attempts under way, of which some may have ended.
  std::function<void(size_t unanswered)> pause;
  // Tests: on the thread of each attempt, before it. It owns what it uses.
  std::function<void(const std::string& path)> before_attempt;
};

}  // namespace tier::storage
