#include "tests/perf/churn/marked_transfers.h"

#include <algorithm>
#include <span>

#include "daemon/base/check.h"

namespace tier::churn {

using storage::Direction;
using storage::TransferOutcome;

MarkedTransfers::MarkedTransfers(const std::vector<uint32_t>& device_blocks) : traffic_(device_blocks.size()) {
  for (const uint32_t blocks : device_blocks) marks_.emplace_back(uint64_t{blocks} * kPagesPerBlock);
}

void MarkedTransfers::TakeRemoved(std::vector<WindowIndex>* windows) {
  windows->insert(windows->end(), removed_.begin(), removed_.end());
  removed_.clear();
}

// The checksum of a write is its mark: the engine names it when it reads.
void MarkedTransfers::Start(const storage::Transfer& transfer) {
  const bool writes = transfer.direction == Direction::kWrite;
  storage::TransferResult result{.cookie = transfer.cookie, .crc = writes ? ++last_mark_ : transfer.crc};
  std::vector<uint32_t>& marks = marks_.at(transfer.extent.device);
  uint64_t left = PagesFor(transfer.length);
  for (const base::PageRun& run : storage::RunsOf(transfer)) {
    const uint64_t first = uint64_t{run.block} * kPagesPerBlock + run.page;
    const uint64_t count = std::min<uint64_t>(run.pages, left);
    TIER_CHECK(first + run.pages <= marks.size(), "page {} + {} of {}", first, run.pages, marks.size());
    const std::span<uint32_t> pages(marks.data() + first, count);
    if (writes) std::ranges::fill(pages, result.crc);
    const auto other = std::ranges::find_if(pages, [&result](uint32_t mark) { return mark != result.crc; });
    if (other != pages.end()) {
      result = {.cookie = transfer.cookie, .outcome = TransferOutcome::kCorrupt, .crc = *other};
      break;
    }
    left -= count;
  }
  storage::DeviceTraffic& traffic = traffic_[transfer.extent.device];
  (writes ? traffic.written_bytes : traffic.read_bytes) += transfer.length;
  ++(writes ? traffic.write_requests : traffic.read_requests);
  ended_.push_back(result);
}

void MarkedTransfers::Poll(std::vector<storage::TransferResult>* results) {
  results->insert(results->end(), ended_.begin(), ended_.end());
  ended_.clear();
}

}  // namespace tier::churn
