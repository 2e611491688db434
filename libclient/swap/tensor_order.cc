#include "libclient/swap/tensor_order.h"

#include <algorithm>
#include <string>

namespace tier::swap {

std::vector<TensorOrder::Key> TensorOrder::KeysOf(uint32_t flags, std::span<const proto::RequestItem> items) {
  std::vector<Key> keys;
  keys.reserve(items.size());
  for (const auto& item : items) keys.emplace_back(item.tensor, flags & proto::kFlagShared);
  std::ranges::sort(keys);
  keys.erase(std::ranges::unique(keys).begin(), keys.end());
  return keys;
}

TensorOrder::Ticket TensorOrder::Add(Kind kind, uint32_t flags, std::span<const proto::RequestItem> items) {
  Entry entry{.kind = kind, .keys = KeysOf(flags, items)};
  const Ticket ticket = ++last_;
  for (const Key& key : entry.keys) by_tensor_[key].push_back(ticket);
  if (kind != Kind::kRequest) ++swaps_;
  entries_.emplace(ticket, std::move(entry));
  size_.store(entries_.size());
  return ticket;
}

bool TensorOrder::Remove(Ticket ticket) {
  const auto entry = entries_.find(ticket);
  if (entry == entries_.end()) return false;
  for (const Key& key : entry->second.keys) {
    const auto queue = by_tensor_.find(key);
    queue->second.erase(std::ranges::lower_bound(queue->second, ticket));
    if (queue->second.empty()) by_tensor_.erase(queue);
  }
  if (entry->second.kind != Kind::kRequest) --swaps_;
  entries_.erase(entry);
  size_.store(entries_.size());
  return true;
}

bool TensorOrder::MayBegin(Ticket ticket) const {
  const Entry& entry = entries_.at(ticket);
  if (entries_.begin()->first == ticket) return true;
  if (entry.keys.empty() || OldestIsForAll()) return false;
  return std::ranges::all_of(entry.keys,
                             [&](const Key& key) { return MayBeginAt(by_tensor_.at(key), ticket, entry.kind); });
}

bool TensorOrder::MayBeginAt(const Queue& queue, Ticket ticket, Kind kind) const {
  if (kind != Kind::kReadingSwap) return queue.front() == ticket;
  for (const Ticket earlier : queue) {
    if (earlier == ticket) return true;
    if (entries_.at(earlier).kind != Kind::kReadingSwap) return false;
  }
  return false;
}

bool TensorOrder::FollowsSwap(Ticket ticket) const {
  if (swaps_ == 0) return false;
  std::set<Ticket> seen{ticket};
  std::vector<Ticket> waiting{ticket};
  while (!waiting.empty()) {
    const Ticket next = waiting.back();
    waiting.pop_back();
    const Entry& entry = entries_.at(next);
    if (entry.keys.empty()) {  // It waits for all that is older.
      const auto is_swap = [](const auto& older) { return older.second.kind != Kind::kRequest; };
      if (std::any_of(entries_.begin(), entries_.find(next), is_swap)) return true;
      continue;
    }
    for (const Key& key : entry.keys) {
      const Ticket conflict = LastConflictAt(by_tensor_.at(key), next, entry.kind);
      if (conflict == 0) continue;
      if (entries_.at(conflict).kind != Kind::kRequest) return true;
      if (seen.insert(conflict).second) waiting.push_back(conflict);
    }
  }
  return false;
}

TensorOrder::Ticket TensorOrder::LastConflictAt(const Queue& queue, Ticket ticket, Kind kind) const {
  for (auto earlier = std::ranges::lower_bound(queue, ticket); earlier != queue.begin();) {
    --earlier;
    const bool both_read = kind == Kind::kReadingSwap && entries_.at(*earlier).kind == Kind::kReadingSwap;
    if (!both_read) return *earlier;
  }
  return 0;
}

bool TensorOrder::HasSwap(uint64_t tensor, uint32_t flags) const {
  const auto queue = by_tensor_.find(Key{tensor, flags & proto::kFlagShared});
  if (queue == by_tensor_.end()) return false;
  return std::ranges::any_of(queue->second, [&](Ticket ticket) { return entries_.at(ticket).kind != Kind::kRequest; });
}

Status TensorOrder::CheckInvariants() const {
  const auto broken = [](const std::string& what) { return Fail(Code::kInvalid, what); };
  std::map<Key, Queue> expected;
  uint64_t swaps = 0;
  for (const auto& [ticket, entry] : entries_) {
    for (const Key& key : entry.keys) expected[key].push_back(ticket);
    swaps += entry.kind != Kind::kRequest ? 1 : 0;
  }
  if (expected != by_tensor_) return broken("the tensors' lists do not hold the tickets that name them");
  if (swaps != swaps_) return broken(std::to_string(swaps_) + " swaps counted, there are " + std::to_string(swaps));
  if (size_.load() != entries_.size()) return broken("the published size is " + std::to_string(size_.load()));
  if (!entries_.empty() && !MayBegin(entries_.begin()->first)) return broken("the oldest operation may not begin");
  return {};
}

}  // namespace tier::swap
