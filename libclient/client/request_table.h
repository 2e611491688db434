// RequestTable: the requests of one session that are on their way or answered, and the credits that bound their number.
//
// A request takes one credit of its class when it is sent and gives it back when its answer has been used (Finish). A
// request that is never answered, because the session ended, keeps its credit.
// Thread: one at a time, under the channel's lock. Invariants, checked by CheckInvariants:
//   for each class: free + on their way + answered == its quota; Σ quotas == kRequestsOutstandingMax == the pool's
//   size; sequences are 1, 2, 3 … in the order of Add.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "libclient/client/pending.h"
#include "proto/message.h"
#include "proto/result.h"

namespace tier::client {

class RequestTable {
 public:
  RequestTable();

  uint32_t free(Credit credit) const { return QuotaOf(credit) - used_[static_cast<size_t>(credit)]; }
  // A new request on its way, with the next sequence. REQUIRES: a free credit of its class.
  Pending* Add(Pending::Order order);
  // The request that an answer names, which is no longer on its way. Null when there is none.
  Pending* TakeAnswered(uint64_t sequence) { return on_their_way_.Take(sequence); }
  // Gives the credit of an answered request back. False when the request holds none: it was finished before.
  [[nodiscard]] bool Finish(Pending* pending);
  // A request on its way that should have been answered before `now`; null when there is none.
  const Pending* FindLate(std::chrono::milliseconds now) const;

  uint32_t on_their_way() const { return on_their_way_.count(); }
  // INVALID with the figures of the first equation that does not hold.
  Status CheckInvariants() const;

 private:
  std::deque<Pending> storage_;  // Addresses are stable.
  std::vector<Pending*> pool_;
  PendingTable on_their_way_;
  std::array<uint32_t, kCreditClasses> used_{};
  uint64_t next_sequence_ = 1;
};

}  // namespace tier::client
