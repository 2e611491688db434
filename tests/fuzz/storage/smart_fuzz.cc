// Fuzz entry: what is told of a device's health. An input is
//   byte 0  bit 0: the SMART log page of a device, else the file of tierd-smart
//   then    the bytes of it
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/base/check.h"
#include "daemon/storage/smart_file.h"
#include "daemon/storage/smart_log.h"

namespace tier::storage {
namespace {

void CheckPage(std::span<const std::byte> page) {
  const auto figures = ParseSmartLog(page);
  if (!figures) {
    TIER_CHECK(figures.error().code == Code::kCorrupt && !figures.error().message.empty(), "code {}",
               static_cast<int>(figures.error().code));
    return;
  }
  TIER_CHECK(IsSane(*figures), "a spare of {} %", figures->available_spare);
  // What a device says can be told in the file.
  const SmartReport report{
      .time = 1, .devices = {{.path = "/dev/md0", .name = "nvme0n1", .serial = "S1", .time = 1, .figures = *figures}}};
  TIER_CHECK(ParseSmartReport(FormatSmartReport(report)) == report, "a report is read back otherwise ({} bytes)",
             page.size());
}

void CheckFile(std::string_view text) {
  const auto report = ParseSmartReport(text);
  if (!report) {
    const Code code = report.error().code;
    TIER_CHECK((code == Code::kCorrupt || code == Code::kVersion) && !report.error().message.empty(), "code {}",
               static_cast<int>(code));
    return;
  }
  TIER_CHECK(FormatSmartReport(*report) == text, "one report of {} devices has two texts", report->devices.size());
  for (const SmartDevice& device : report->devices) {
    const auto health = HealthOf(*report, device.path);
    TIER_CHECK(health && health->time <= device.time && IsSane(health->figures), "the health of {}", device.path);
  }
}

}  // namespace
}  // namespace tier::storage

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tier::storage;
  if (size == 0) return 0;
  const std::span input(data + 1, size - 1);
  if ((data[0] & 1) != 0) {
    CheckPage(std::as_bytes(input));
  } else {
    CheckFile({reinterpret_cast<const char*>(input.data()), input.size()});
  }
  return 0;
}
