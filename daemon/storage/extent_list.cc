// See extent_list.h.
#include "daemon/storage/extent_list.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "daemon/storage/checksum.h"

namespace tier::storage {
namespace {

constexpr uint64_t kPagesMax = (uint64_t{UINT32_MAX} + 1) * kPagesPerBlock;  // Of a device: blocks have 32 bits.

uint32_t CrcWith(proto::ExtentListHeader header, uint32_t crc_of_runs) {
  header.crc = 0;
  return Crc32c(std::as_bytes(std::span(&header, 1)), crc_of_runs);
}

std::unexpected<Error> Corrupt(std::string what) {
  return Fail(Code::kCorrupt, "the list of the manifest's extents is damaged: " + std::move(what));
}

bool SaneRun(const proto::ExtentListRun& run) {
  return run.pages != 0 && run.reserved == 0 && run.first_page < kPagesMax && run.pages <= kPagesMax - run.first_page;
}

}  // namespace

ExtentListWriter::ExtentListWriter(size_t extents_expected, const DeviceNumbers& numbers) : numbers_(numbers) {
  bytes_.reserve(sizeof(proto::ExtentListHeader) + extents_expected * sizeof(proto::ExtentListRun));
  bytes_.resize(sizeof(proto::ExtentListHeader));
  state_.size = bytes_.size();
  mark_ = state_;
}

void ExtentListWriter::Add(Extent extent) {
  proto::ExtentListRun& last = state_.last;
  const uint64_t first = uint64_t{extent.run.block} * kPagesPerBlock + extent.run.page;
  const uint16_t device = numbers_.StoredOf(extent.device);
  const bool follows = last.pages != 0 && last.device == device && last.first_page + last.pages == first &&
                       last.pages <= UINT32_MAX - extent.run.pages;
  if (follows) {
    last.pages += extent.run.pages;
    return;
  }
  EndRun();
  last = {.first_page = first, .pages = extent.run.pages, .device = device};
}

void ExtentListWriter::EndRun() {
  if (state_.last.pages == 0) return;
  const auto run = std::as_bytes(std::span(&state_.last, 1));
  bytes_.resize(state_.size + run.size());
  std::memcpy(bytes_.data() + state_.size, run.data(), run.size());
  state_.size = bytes_.size();
  state_.crc = Crc32c(run, state_.crc);
  state_.last = {};
}

void ExtentListWriter::DropToMark() {
  state_ = mark_;
  bytes_.resize(state_.size);
}

std::vector<std::byte> ExtentListWriter::Take() && {
  EndRun();
  proto::ExtentListHeader header{.magic = proto::kExtentListMagic,
                                 .run_count = (bytes_.size() - sizeof(header)) / sizeof(proto::ExtentListRun)};
  header.crc = CrcWith(header, state_.crc);
  std::memcpy(bytes_.data(), &header, sizeof(header));
  return std::move(bytes_);
}

Result<std::vector<proto::ExtentListRun>> DecodeExtentList(std::span<const std::byte> bytes) {
  proto::ExtentListHeader header{};
  if (bytes.size() < sizeof(header)) return Corrupt("it is too short");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != proto::kExtentListMagic || header.reserved != 0) return Corrupt("it does not begin like one");
  bytes = bytes.subspan(sizeof(header));
  const size_t count = bytes.size() / sizeof(proto::ExtentListRun);
  if (header.run_count != count || bytes.size() % sizeof(proto::ExtentListRun) != 0) return Corrupt("wrong length");
  if (header.crc != CrcWith(header, Crc32c(bytes))) return Corrupt("wrong checksum");
  std::vector<proto::ExtentListRun> runs(count);
  if (count != 0) std::memcpy(runs.data(), bytes.data(), bytes.size());
  if (!std::ranges::all_of(runs, SaneRun)) return Corrupt("an impossible run");
  return runs;
}

}  // namespace tier::storage
