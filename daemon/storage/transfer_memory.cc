// Where the bytes of a transfer lie, on the device and in RAM. See transfer_engine.h.
#include <algorithm>

#include "daemon/base/check.h"
#include "daemon/base/fault_guard.h"
#include "daemon/storage/transfer_engine.h"

namespace tier::storage {

void TransferEngine::CheckTransfer(const Transfer& t) const {
  TIER_CHECK(inflight_ < options_.inflight_max, "{} transfers in flight", inflight_);
  TIER_CHECK(t.extent.device == options_.device, "device {} for {}", t.extent.device, options_.device);
  TIER_CHECK(t.length != 0 && t.length <= t.extent.run.size_bytes(), "{} bytes in an extent of {}", t.length,
             t.extent.run.size_bytes());
  TIER_CHECK(t.extent.scattered == !t.runs.empty(), "{} runs", t.runs.size());
  for (const base::PageRun run : RunsOf(t)) {
    TIER_CHECK(run.offset_bytes() + run.size_bytes() <= options_.place.capacity_bytes,
               "block {} page {} beyond the data area", run.block, run.page);
  }
  uint32_t length = 0;
  ForEachMemoryRun(t, IoBytes(t), [&](WindowIndex index, std::span<const std::byte> memory) {
    CheckMemory(t, index, memory);
    length += static_cast<uint32_t>(memory.size());
  });
  TIER_CHECK(length == IoBytes(t), "{} bytes in {} runs of memory of {}", length, t.memory_runs.size(), IoBytes(t));
}

void TransferEngine::CheckMemory(const Transfer& t, WindowIndex index, std::span<const std::byte> memory) const {
  TIER_CHECK(Value(index) < windows_.size(), "transfer {}: window {} of {}", t.cookie, Value(index), windows_.size());
  const Window& window = windows_[Value(index)];
  TIER_CHECK(window.address != nullptr && memory.data() >= window.address &&
                 memory.data() + memory.size() <= window.address + window.size &&
                 static_cast<uint64_t>(memory.data() - window.address) % kPageSize == 0,
             "memory at {} + {} of window {}", memory.data() - window.address, memory.size(), Value(index));
}

TransferEngine::Part TransferEngine::PartAt(const Transfer& t, uint32_t at) const {
  Part part;
  uint64_t begin = 0;
  for (const base::PageRun run : RunsOf(t)) {
    const uint64_t end = std::min<uint64_t>(begin + run.size_bytes(), IoBytes(t));
    if (at < end) {
      part.offset = options_.place.data_offset + run.offset_bytes() + (at - begin);
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

// Makes every page differ from what it holds. False: it cannot be touched.
bool TransferEngine::Scrub(const Transfer& t) {
  return base::RunGuarded([&t] {
    ForEachMemoryRun(t, t.length, [](WindowIndex, std::span<std::byte> bytes) {
      for (size_t at = 0; at < bytes.size(); at += kPageSize) bytes[at] ^= std::byte{0xff};
    });
  });
}

}  // namespace tier::storage
