// Fuzz entry: the lists of extents beside manifests, as a damaged or foreign index may hold them. An input is
//   byte 0  bit 0: set run count and checksum right, so that a change reaches the runs
//   then    the bytes of a list (proto/extent_list_record.h)
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"
#include "daemon/storage/extent_list.h"

namespace tier::storage {
namespace {

constexpr uint64_t kVisitedMax = 1 << 14;  // Pages of one list that are gone through.

void Seal(std::vector<std::byte>* bytes) {
  proto::ExtentListHeader header{};
  if (bytes->size() < sizeof(header)) return;
  std::memcpy(&header, bytes->data(), sizeof(header));
  const auto runs = std::span(*bytes).subspan(sizeof(header));
  header.run_count = runs.size() / sizeof(proto::ExtentListRun);
  header.crc = 0;
  header.crc = Crc32c(std::as_bytes(std::span(&header, 1)), Crc32c(runs));
  std::memcpy(bytes->data(), &header, sizeof(header));
}

// The parts of a run lie within blocks, follow each other, and are all of it.
void CheckRun(const proto::ExtentListRun& run, ExtentListWriter* again) {
  uint64_t next = run.first_page;
  ForEachExtent(run, [&](const Extent& extent) {
    const uint64_t first = uint64_t{extent.run.block} * kPagesPerBlock + extent.run.page;
    TIER_CHECK(first == next && extent.device == run.device && !extent.scattered, "page {} after {}", first, next);
    TIER_CHECK(extent.run.pages != 0 && uint32_t{extent.run.page} + extent.run.pages <= kPagesPerBlock, "pages {} + {}",
               extent.run.page, extent.run.pages);
    next += extent.run.pages;
    again->Add(extent);
  });
  TIER_CHECK(next == run.first_page + run.pages, "{} pages of {}", next - run.first_page, run.pages);
}

void CheckAnswer(const Result<std::vector<proto::ExtentListRun>>& decoded) {
  if (!decoded) {
    TIER_CHECK(decoded.error().code == Code::kCorrupt, "code {}", static_cast<int>(decoded.error().code));
    TIER_CHECK(!decoded.error().message.empty(), "a refusal without a word");
    return;
  }
  ExtentListWriter writer(decoded->size());
  uint64_t visited = 0;
  for (const proto::ExtentListRun& run : *decoded) {
    visited += run.pages;
    // The start takes what it can of others; a writer names devices of the run.
    if (visited > kVisitedMax || run.device >= DeviceNumbers::kStoredMax) return;
    CheckRun(run, &writer);
  }
  // Written again it names the same pages in the same order, with what follows each other as one run.
  const auto again = DecodeExtentList(std::move(writer).Take());
  TIER_CHECK(again.has_value() && again->size() <= decoded->size(), "{} runs", decoded->size());
  uint64_t pages = 0;
  for (const proto::ExtentListRun& run : *again) pages += run.pages;
  TIER_CHECK(pages == visited, "{} pages of {}", pages, visited);
}

}  // namespace
}  // namespace tier::storage

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tier::storage;
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> bytes(input.begin(), input.end());
  if ((data[0] & 1) != 0) Seal(&bytes);
  CheckAnswer(DecodeExtentList(bytes));
  return 0;
}
