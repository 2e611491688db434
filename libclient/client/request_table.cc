#include "libclient/client/request_table.h"

#include <numeric>
#include <string>
#include <unordered_set>

namespace tier::client {

RequestTable::RequestTable() {
  pool_.reserve(proto::kRequestsOutstandingMax);
  for (uint32_t i = 0; i < proto::kRequestsOutstandingMax; ++i) pool_.push_back(&storage_.emplace_back());
}

Pending* RequestTable::Add(Pending::Order order) {
  Pending* const pending = pool_.back();
  pool_.pop_back();
  ++used_[static_cast<size_t>(order.credit)];
  order.sequence = next_sequence_++;
  pending->Begin(order);
  on_their_way_.Insert(order.sequence, pending);
  return pending;
}

bool RequestTable::Finish(Pending* pending) {
  if (pending->order().sequence == 0) return false;
  --used_[static_cast<size_t>(pending->order().credit)];
  pending->Leave();
  pool_.push_back(pending);
  return true;
}

const Pending* RequestTable::FindLate(std::chrono::milliseconds now) const {
  return on_their_way_.Find([now](const Pending& pending) { return pending.order().answer_by < now; });
}

Status RequestTable::CheckInvariants() const {
  const auto broken = [](const std::string& what) { return Fail(Code::kInvalid, what); };
  std::array<uint32_t, kCreditClasses> held{};
  for (const Pending& pending : storage_) {
    if (pending.order().sequence != 0) ++held[static_cast<size_t>(pending.order().credit)];
  }
  for (size_t i = 0; i < kCreditClasses; ++i) {
    if (held[i] == used_[i] && used_[i] <= kCreditQuota[i]) continue;
    return broken("credit class " + std::to_string(i) + ": " + std::to_string(used_[i]) + " used, " +
                  std::to_string(held[i]) + " held by requests, quota " + std::to_string(kCreditQuota[i]));
  }
  const uint32_t used = std::accumulate(used_.begin(), used_.end(), uint32_t{0});
  if (pool_.size() + used != storage_.size() || on_their_way_.count() > used) {
    return broken(std::to_string(pool_.size()) + " in the pool, " + std::to_string(used) + " credits used, of them " +
                  std::to_string(on_their_way_.count()) + " on their way, of " + std::to_string(storage_.size()));
  }
  const std::unordered_set<const Pending*> free(pool_.begin(), pool_.end());
  if (free.size() != pool_.size()) return broken("a request is in the pool twice");
  return {};
}

}  // namespace tier::client
