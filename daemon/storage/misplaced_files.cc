#include "daemon/storage/misplaced_files.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/check.h"
#include "daemon/storage/extent_list.h"

namespace tier::storage {

MisplacedFiles::MisplacedFiles(const std::function<std::string(uint16_t)>& of_device, size_t devices, std::string index)
    : devices_(devices), index_(std::move(index)) {
  TIER_CHECK(devices <= DeviceNumbers::kStoredMax, "{} devices", devices);
  for (uint16_t device = 0; of_device && device < devices; ++device) devices_[device] = of_device(device);
}

std::string MisplacedFiles::Text() const {
  std::vector<std::string> said = devices_;
  said.push_back(index_);
  std::erase(said, "");
  return fmt::format("{}", fmt::join(said, "; "));
}

Status MisplacedFiles::Check(std::span<const std::byte> extents, const DeviceNumbers& numbers) const {
  if (!index_.empty()) return Fail(Code::kIoError, index_);
  if (extents.empty() || std::ranges::all_of(devices_, &std::string::empty)) return {};
  const auto runs = DecodeExtentList(extents);
  if (!runs) return std::unexpected(runs.error());
  for (const proto::ExtentListRun& run : *runs) {
    const uint16_t device = numbers.DeviceOf(run.device);
    TIER_CHECK(device < devices_.size(), "a list names device {} of {}", device, devices_.size());
    if (!devices_[device].empty()) return Fail(Code::kIoError, devices_[device]);
  }
  return {};
}

}  // namespace tier::storage
