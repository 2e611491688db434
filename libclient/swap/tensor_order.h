// TensorOrder: which operation of a client follows which, decided by the tensors that they name. Pure.
//
// The idea: every operation gets a ticket when it is asked for. It may begin when no earlier one conflicts with it:
//   - two operations that name one tensor of one namespace conflict, unless both are swaps that only read it;
//   - an operation that names none means every tensor of both namespaces (flush, persist, drop): it conflicts with all
//     earlier ones. Later ones conflict with it only from when it may begin itself: while it waits for a swap of some
//     tensor it does not hold up what concerns others.
// An operation is over when its ticket is removed: a swap when it has ended, a request when it is on the ring (the
// daemon keeps the order of one client's requests) or given up.
//
// Thread: one at a time, under its owner's lock. Invariants (CheckInvariants): every tensor's list holds, in ascending
//   order, exactly the tickets that name it; the oldest ticket may always begin.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "proto/message.h"
#include "proto/result.h"

namespace tier::swap {

class TensorOrder {
 public:
  using Ticket = uint64_t;
  enum class Kind : uint8_t { kReadingSwap, kWritingSwap, kRequest };

  // `size` follows size(), for readers without the lock.
  explicit TensorOrder(std::atomic<uint64_t>& size) : size_(size) {}

  // Tickets ascend. `flags` choose the namespace (kFlagShared); no items: every tensor.
  Ticket Add(Kind kind, uint32_t flags, std::span<const proto::RequestItem> items);
  // False when there is no such ticket.
  [[nodiscard]] bool Remove(Ticket ticket);

  // REQUIRES for MayBegin and FollowsSwap: an operation that is not over.
  bool MayBegin(Ticket ticket) const;
  // Does it wait for a swap, directly or through a request that waits for a swap?
  bool FollowsSwap(Ticket ticket) const;

  // A swap of this tensor is not over.
  bool HasSwap(uint64_t tensor, uint32_t flags) const;
  bool Contains(Ticket ticket) const { return entries_.contains(ticket); }
  size_t size() const { return entries_.size(); }
  Status CheckInvariants() const;

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // Tensor, kFlagShared or 0.
  struct Entry {
    Kind kind = Kind::kRequest;
    std::vector<Key> keys;  // Each once. None: every tensor.
  };
  using Queue = std::deque<Ticket>;  // Ascending.

  static std::vector<Key> KeysOf(uint32_t flags, std::span<const proto::RequestItem> items);
  bool MayBeginAt(const Queue& queue, Ticket ticket, Kind kind) const;
  // The last operation of this list before `ticket` that conflicts with it; 0 when there is none. Earlier conflicts
  // concern only that operation.
  Ticket LastConflictAt(const Queue& queue, Ticket ticket, Kind kind) const;
  bool OldestIsForAll() const { return !entries_.empty() && entries_.begin()->second.keys.empty(); }

  std::map<Ticket, Entry> entries_;
  std::map<Key, Queue> by_tensor_;
  uint64_t swaps_ = 0;  // Among the entries.
  Ticket last_ = 0;
  std::atomic<uint64_t>& size_;
};

}  // namespace tier::swap
