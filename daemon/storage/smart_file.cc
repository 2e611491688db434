// See smart_file.h. A line is split at single spaces, and a number is written in one way only: what is read back is
// what was written, byte for byte.
#include "daemon/storage/smart_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/os_error.h"
#include "proto/mapping.h"

namespace tier::storage {
namespace {

constexpr std::string_view kProgram = "tierd-smart ";
constexpr std::string_view kVersion = "2";
constexpr mode_t kFileMode = 0644;  // It holds no secret, and the daemon is another user.
constexpr size_t kFields = 8;       // Numbers; a name, a serial number and a path follow.

std::unexpected<Error> Corrupt(size_t line, std::string_view what) {
  return Fail(Code::kCorrupt, fmt::format("line {} {}; the next run of tierd-smart writes it again", line, what));
}

// Takes what stands before the next `mark` off the text, and the mark. None: there is no mark.
std::optional<std::string_view> TakeUntil(char mark, std::string_view* text) {
  const size_t end = text->find(mark);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text->substr(0, end);
  text->remove_prefix(end + 1);
  return taken;
}

// "PREFIX" before it, or nothing is taken.
bool TakePrefix(std::string_view prefix, std::string_view* line) {
  if (!line->starts_with(prefix)) return false;
  line->remove_prefix(prefix.size());
  return true;
}

std::optional<uint64_t> NumberOf(std::string_view text, uint64_t most) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = !text.empty() && error == std::errc() && end == text.data() + text.size();
  if (!whole || number > most || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  return number;
}

std::optional<SmartDevice> DeviceOf(std::string_view line) {
  std::array<uint64_t, kFields> fields{};
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  constexpr auto kTime = static_cast<uint64_t>(kSmartTimeMax);
  constexpr std::array<uint64_t, kFields> kMost = {kTime,     UINT8_MAX, UINT16_MAX, UINT8_MAX,
                                                   UINT8_MAX, UINT8_MAX, kAny,       kAny};
  for (size_t i = 0; i < kFields; ++i) {
    const auto field = TakeUntil(' ', &line);
    const auto number = field ? NumberOf(*field, kMost[i]) : std::nullopt;
    if (!number) return std::nullopt;
    fields[i] = *number;
  }
  const auto name = TakeUntil(' ', &line);
  const auto serial = TakeUntil(' ', &line);
  if (!name || !serial || !IsSmartWord(*name) || !IsSmartWord(*serial)) return std::nullopt;
  SmartDevice device{.path = std::string(line),
                     .name = std::string(*name),
                     .serial = std::string(*serial),
                     .time = static_cast<int64_t>(fields[0]),
                     .figures = {.warnings = static_cast<uint8_t>(fields[1]),
                                 .temperature_kelvin = static_cast<uint16_t>(fields[2]),
                                 .available_spare = static_cast<uint8_t>(fields[3]),
                                 .spare_threshold = static_cast<uint8_t>(fields[4]),
                                 .percentage_used = static_cast<uint8_t>(fields[5]),
                                 .written_bytes = fields[6],
                                 .media_errors = fields[7]}};
  if (!IsSmartPath(device.path) || !IsSane(device.figures)) return std::nullopt;
  return device;
}

bool Has(const SmartReport& report, const SmartDevice& device) {
  return std::ranges::any_of(
      report.devices, [&](const SmartDevice& each) { return each.path == device.path && each.name == device.name; });
}

// To read. What is no regular file is not even opened: there are devices that do something when they are.
Result<proto::FileDescriptor> OpenRegular(const std::string& path) {
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0) return FailErrno(errno, "reading " + path);
  if (!S_ISREG(about.st_mode)) return Fail(Code::kInvalid, path + " is no file");
  // Another may stand there by now: not blocked by a FIFO of that name, and led nowhere else by a link.
  proto::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file || ::fstat(file.get(), &about) != 0) return FailErrno(errno, "reading " + path);
  if (!S_ISREG(about.st_mode)) return Fail(Code::kInvalid, path + " is no file");
  return file;
}

Result<std::string> ReadWhole(const std::string& path) {
  const auto opened = OpenRegular(path);
  if (!opened) return std::unexpected(opened.error());
  const proto::FileDescriptor& file = *opened;
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0) return FailErrno(errno, "reading " + path);
    if (got == 0) return text;
    text.append(part.data(), static_cast<size_t>(got));
    if (text.size() > kSmartFileMax)
      return Fail(Code::kInvalid, fmt::format("{} has more than {} bytes", path, kSmartFileMax));
  }
}

Status WriteDraft(int file, const std::string& draft, std::string_view text) {
  while (!text.empty()) {
    const ssize_t some = ::write(file, text.data(), text.size());
    if (some < 0) return FailErrno(errno, "writing " + draft);
    text.remove_prefix(static_cast<size_t>(some));
  }
  if (::fchmod(file, kFileMode) != 0) return FailErrno(errno, "opening " + draft + " to others");
  return {};
}

}  // namespace

bool IsStale(int64_t time, int64_t now) {
  TIER_CHECK(time >= 0 && time <= kSmartTimeMax, "figures of second {}", time);
  return now - time > kSmartStaleSeconds || time - now > kSmartStaleSeconds;
}

bool IsSmartPath(std::string_view path) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  return !path.empty() && path.size() <= kSmartPathMax && std::ranges::none_of(path, is_control);
}

bool IsSmartWord(std::string_view word) {
  return !word.empty() && word.size() <= kSmartWordMax &&
         std::ranges::all_of(word, [](char c) { return c > ' ' && c <= '~'; });
}

std::optional<SmartHealth> HealthOf(const SmartReport& report, std::string_view path) {
  std::optional<SmartHealth> health;
  for (const SmartDevice& device : report.devices) {
    if (device.path != path) continue;
    if (!health) {
      health = {.figures = device.figures, .time = device.time};
    } else {
      health = {.figures = WorseOf(health->figures, device.figures), .time = std::min(health->time, device.time)};
    }
  }
  return health;
}

std::string FormatSmartReport(const SmartReport& report) {
  TIER_CHECK(report.devices.size() <= kSmartDevicesMax && report.time >= 0 && report.time <= kSmartTimeMax,
             "{} devices at second {}", report.devices.size(), report.time);
  std::string text = fmt::format("{}{}\ntime {}\n", kProgram, kVersion, report.time);
  for (const SmartDevice& device : report.devices) {
    const SmartFigures& figures = device.figures;
    TIER_CHECK(IsSmartPath(device.path) && IsSane(figures), "figures of {}", device.path);
    TIER_CHECK(IsSmartWord(device.name) && IsSmartWord(device.serial), "'{}' '{}'", device.name, device.serial);
    TIER_CHECK(device.time >= 0 && device.time <= kSmartTimeMax, "{} at second {}", device.path, device.time);
    text += fmt::format("device {} {} {} {} {} {} {} {} {} {} {}\n", device.time, figures.warnings,
                        figures.temperature_kelvin, figures.available_spare, figures.spare_threshold,
                        figures.percentage_used, figures.written_bytes, figures.media_errors, device.name,
                        device.serial, device.path);
  }
  return text + fmt::format("end {}\n", report.devices.size());
}

Result<SmartReport> ParseSmartReport(std::string_view text) {
  auto line = TakeUntil('\n', &text);
  if (!line || !TakePrefix(kProgram, &*line)) return Corrupt(1, "is not \"tierd-smart 2\"");
  if (*line != kVersion) {
    if (!NumberOf(*line, UINT32_MAX)) return Corrupt(1, "is not \"tierd-smart 2\"");
    return Fail(Code::kVersion,
                fmt::format("it has version {} and this tierd reads {}: install tierd-smart and tierd of one version; "
                            "its next run writes it again",
                            *line, kVersion));
  }
  SmartReport report;
  line = TakeUntil('\n', &text);
  const bool timed = line && TakePrefix("time ", &*line);
  const auto time = timed ? NumberOf(*line, static_cast<uint64_t>(kSmartTimeMax)) : std::nullopt;
  if (!time) return Corrupt(2, "has no time");
  report.time = static_cast<int64_t>(*time);
  for (size_t number = 3;; ++number) {
    line = TakeUntil('\n', &text);
    if (!line) return Corrupt(number, "is missing or cut short");
    if (TakePrefix("end ", &*line)) {
      if (NumberOf(*line, kSmartDevicesMax) != report.devices.size()) return Corrupt(number, "counts other devices");
      return text.empty() ? Result<SmartReport>(std::move(report)) : Corrupt(number + 1, "follows the end");
    }
    auto device = TakePrefix("device ", &*line) ? DeviceOf(*line) : std::nullopt;
    if (!device) return Corrupt(number, "is no device with sane figures");
    if (Has(report, *device)) return Corrupt(number, "names a device again");
    if (report.devices.size() == kSmartDevicesMax) return Corrupt(number, "is of one device too many");
    report.devices.push_back(std::move(*device));
  }
}

Result<SmartReport> ReadSmartFile(const std::string& path) {
  const auto text = ReadWhole(path);
  if (!text) return std::unexpected(text.error());
  auto report = ParseSmartReport(*text);
  if (!report) return Fail(report.error().code, path + ": " + report.error().message);
  return report;
}

Status CheckSmartTarget(const std::string& path) {
  const auto file = OpenRegular(path);
  std::array<char, kProgram.size()> head{};
  ssize_t got = 0;
  if (file) {
    got = ::read(file->get(), head.data(), head.size());
    if (got < 0) return FailErrno(errno, "reading " + path);
  } else if (file.error().code == Code::kNotFound) {
    return {};
  } else if (file.error().code != Code::kInvalid) {
    return std::unexpected(file.error());
  }
  if (file && (got == 0 || std::string_view(head.data(), static_cast<size_t>(got)) == kProgram)) return {};
  return Fail(Code::kInvalid,
              fmt::format("{} is left untouched: {}; tierd-smart replaces only a file of its own: set ssd.smart_file "
                          "to a path where nothing is",
                          path, file ? "tierd-smart did not write it" : file.error().message));
}

Status WriteSmartFile(const std::string& path, const SmartReport& report) {
  const std::string draft = path + ".new";
  for (const std::string& each : {path, draft}) {
    if (Status ours = CheckSmartTarget(each); !ours) return ours;
  }
  (void)::unlink(draft.c_str());  // Of a run that was killed.
  const proto::FileDescriptor file(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!file) return FailErrno(errno, "making " + draft);
  Status written = WriteDraft(file.get(), draft, FormatSmartReport(report));
  if (written && ::rename(draft.c_str(), path.c_str()) != 0) written = FailErrno(errno, "replacing " + path);
  if (!written) (void)::unlink(draft.c_str());
  return written;
}

}  // namespace tier::storage
