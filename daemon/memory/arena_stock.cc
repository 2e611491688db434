// What the arena makes ahead of need ("stock"): block windows of the largest size, handed out at once, and the first to
// go where the host runs short.
#include <algorithm>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/memory/arena.h"

namespace tier::memory {

Status Arena::StartPrefault(uint64_t bytes) {
  const uint64_t windows = bytes / stock_size();
  for (uint64_t i = 0; i < windows; ++i) {
    const auto started = StartMake(State::kMakingStock, {.size = stock_size(), .node = nodes_.ForStock()});
    if (!started) return std::unexpected(started.error());
    stock_bytes_ += started->size;
    prefault_target_bytes_ += started->size;
  }
  return {};
}

// One from this node, where there is one.
StartedWindow Arena::HandOutStock(OwnerId owner, int node) {
  const auto near = std::find_if(stock_.rbegin(), stock_.rend(),
                                 [&](WindowIndex window) { return entries_[Value(window)].node == node; });
  if (near != stock_.rend()) std::swap(*near, stock_.back());
  const WindowIndex index = stock_.back();
  stock_.pop_back();
  Entry& entry = At(index);
  TIER_CHECK(entry.state == State::kStock, "window {} state {}", Value(index), static_cast<int>(entry.state));
  entry.owner = owner;
  entry.state = State::kMaking;  // Until its event is polled.
  stock_bytes_ -= entry.size;
  owned_bytes_ += entry.size;
  handed_out_.push_back(index);
  if (options_.on_event) options_.on_event();
  return {.index = index, .size = entry.size};
}

// Its pages are as good as free: a reading counts what is being closed as well.
void Arena::TradeStock() {
  const bool huge = At(stock_.back()).window.page_size() != kPageSize;
  CloseStock();
  (huge ? huge_credit_bytes_ : small_credit_bytes_) += stock_size();
}

// The one that would be handed out next.
void Arena::CloseStock() {
  const WindowIndex index = stock_.back();
  stock_.pop_back();
  NoteGivenBack(index);
  stock_bytes_ -= At(index).size;
  StartClose(index);
}

// As much as is missing should come back, stock first.
void Arena::CloseStockBeyond(uint64_t bytes) {
  max_now_bytes_ = std::min(max_now_bytes_, bytes);
  const auto gains = [&] { return !stock_.empty() && At(stock_.back()).window.page_size() == kPageSize; };
  while (gains() && owned_bytes_ + stock_bytes_ > bytes) CloseStock();
}

}  // namespace tier::memory
