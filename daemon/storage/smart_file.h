// SmartFile: what tierd-smart, which runs as root now and then, tells the daemon of the health of its devices: one
// small text file (docs/formats.md), written as a whole. The daemon trusts it no more than other input.
// Thread-safety: functions of their arguments, and of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/storage/smart_log.h"
#include "proto/result.h"

namespace tier::storage {

inline constexpr size_t kSmartDevicesMax = 128;      // Lines.
inline constexpr size_t kSmartPathMax = 4096;        // Bytes.
inline constexpr size_t kSmartWordMax = 64;          // Bytes.
inline constexpr size_t kSmartFileMax = 640 * 1024;  // Bytes: of as many devices with the longest paths.
inline constexpr char kSmartSerialUnknown[] = "-";
inline constexpr int64_t kSmartStaleSeconds = 60 * 60;  // tierd-smart.timer: every 10 minutes.
inline constexpr int64_t kSmartTimeMax = int64_t{1} << 40;

// One NVMe device behind a path. A path on a RAID has several.
struct SmartDevice {
  std::string path;    // As configured (ssd.devices), or the SSD tier's file.
  std::string name;    // "nvme0n1". The kernel may give it to another device at the next start.
  std::string serial;  // Of the device, or kSmartSerialUnknown.
  int64_t time = 0;    // Seconds of the Unix epoch, when it answered last.
  SmartFigures figures;
  friend bool operator==(const SmartDevice&, const SmartDevice&) = default;
};

struct SmartReport {
  int64_t time = 0;  // Seconds of the Unix epoch, when the devices were asked last.
  std::vector<SmartDevice> devices;
  friend bool operator==(const SmartReport&, const SmartReport&) = default;
};

// Of all devices behind a path.
struct SmartHealth {
  SmartFigures figures;  // The worst.
  int64_t time = 0;      // When the one that is silent for the longest answered last.
};

// Figures of that time may be wrong by now; or the clock was set.
bool IsStale(int64_t time, int64_t now);
// The path can stand in the file: no control characters, not too long.
bool IsSmartPath(std::string_view path);
// So can the name or the serial number: printable ASCII without spaces, not too long.
bool IsSmartWord(std::string_view word);
// None: the report says nothing of it.
std::optional<SmartHealth> HealthOf(const SmartReport& report, std::string_view path);
// REQUIRES: at most kSmartDevicesMax devices, sane figures, and what can stand there, each name once for a path.
std::string FormatSmartReport(const SmartReport& report);
// VERSION: of another tierd. CORRUPT, with the line: anything else that FormatSmartReport does not write.
Result<SmartReport> ParseSmartReport(std::string_view text);
// NOT_FOUND: there is none. DENIED, IO_ERROR: it cannot be read. INVALID: it is no file, or too large. The rest as
// ParseSmartReport, with the path.
Result<SmartReport> ReadSmartFile(const std::string& path);
// That file may be replaced: there is none, or it is empty or begins as FormatSmartReport does. INVALID: it is another,
// which root would destroy, or is no regular file, or the path leads through one. Else: it cannot be read.
Status CheckSmartTarget(const std::string& path);
// In place of the one that is there, all of it or nothing. As CheckSmartTarget: it may not be replaced, nor the draft
// PATH.new of an earlier run. After any failure there is no draft.
Status WriteSmartFile(const std::string& path, const SmartReport& report);

}  // namespace tier::storage
