// ExtentList: the extents that a manifest names, as bytes and back (layout: proto/extent_list_record.h). Extents that
// follow each other on a device are one run. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/storage/device_numbers.h"
#include "daemon/storage/extent.h"
#include "proto/extent_list_record.h"
#include "proto/result.h"

namespace tier::storage {

class ExtentListWriter {
 public:
  // `extents_expected`: estimated count. The list names devices by their stored numbers.
  explicit ExtentListWriter(size_t extents_expected, const DeviceNumbers& numbers = {});
  void Add(Extent extent);
  // What was added since the last Mark is removed by DropToMark.
  void Mark() { mark_ = state_; }
  void DropToMark();
  std::vector<std::byte> Take() &&;

 private:
  struct State {
    size_t size = 0;              // Of `bytes_`, with the runs that are complete.
    uint32_t crc = 0;             // Of these runs.
    proto::ExtentListRun last{};  // Still grows. No pages: there is none.
  };
  void EndRun();

  const DeviceNumbers numbers_;
  std::vector<std::byte> bytes_;
  State state_;
  State mark_;
};

// With stored numbers of devices. CORRUPT: not such a list, or damaged.
Result<std::vector<proto::ExtentListRun>> DecodeExtentList(std::span<const std::byte> bytes);

// visit(extent) for the part of a run in each block. The device is what the run says.
template <typename Visit>
void ForEachExtent(const proto::ExtentListRun& run, Visit visit) {
  for (uint64_t page = run.first_page, end = run.first_page + run.pages; page < end;) {
    const uint64_t in_block = page % kPagesPerBlock;
    const uint64_t pages = std::min<uint64_t>(kPagesPerBlock - in_block, end - page);
    visit(Extent{.run = {.block = static_cast<uint32_t>(page / kPagesPerBlock),
                         .page = static_cast<uint16_t>(in_block),
                         .pages = static_cast<uint16_t>(pages)},
                 .device = run.device});
    page += pages;
  }
}

}  // namespace tier::storage
