#include "daemon/storage/transfer_memory.h"

#include <algorithm>

#include "daemon/base/check.h"
#include "daemon/base/fault_guard.h"

namespace tier::storage {

void CheckExtent(const Transfer& t, uint64_t capacity_bytes) {
  TIER_CHECK(t.length != 0 && t.length <= t.extent.run.size_bytes(), "{} bytes in an extent of {}", t.length,
             t.extent.run.size_bytes());
  TIER_CHECK(t.extent.scattered == !t.runs.empty(), "{} runs", t.runs.size());
  for (const base::PageRun run : RunsOf(t)) {
    TIER_CHECK(run.offset_bytes() + run.size_bytes() <= capacity_bytes, "block {} page {} beyond the data area",
               run.block, run.page);
  }
}

TransferPart PartAt(const Transfer& t, uint32_t at) {
  TransferPart part;
  uint64_t begin = 0;
  for (const base::PageRun run : RunsOf(t)) {
    const uint64_t end = std::min<uint64_t>(begin + run.size_bytes(), IoBytes(t));
    if (at < end) {
      part.offset = run.offset_bytes() + (at - begin);
      part.length = static_cast<uint32_t>(end - at);
      break;
    }
    begin = end;
  }
  TIER_CHECK(part.length != 0, "byte {} of {}", at, IoBytes(t));
  uint32_t before = 0;
  ForEachMemoryRun(t, IoBytes(t), [&](WindowIndex window, std::span<std::byte> memory) {
    const uint32_t end = before + static_cast<uint32_t>(memory.size());
    if (before <= at && at < end) {
      part.window = window;
      part.memory = memory.data() + (at - before);
      part.length = std::min(part.length, end - at);
    }
    before = end;
  });
  return part;
}

bool Scrub(const Transfer& t) {
  return base::RunGuarded([&t] {
    ForEachMemoryRun(t, t.length, [](WindowIndex, std::span<std::byte> bytes) {
      for (size_t at = 0; at < bytes.size(); at += kPageSize) bytes[at] ^= std::byte{0xff};
    });
  });
}

}  // namespace tier::storage
