// WorkBudget: how much of the engine thread one turn may take, so that no request keeps other clients waiting.
//
// The unit is a look at one piece, one tensor, one lease or one request: some ten nanoseconds. What is done until the
// end of a turn goes through stages, each with units of its own (WorkUnits). Who finds none left goes on in the next
// turn. Work that cannot be divided, such as a look at one request over thousands of pieces, is begun only where all of
// its cost is left; kLookMax bounds that cost. Engine thread only.
//
// Invariant: what one turn spends is at most the sum of its stages' units, where each of these is at least the cost of
// the largest indivisible work of that stage. Beyond that goes only what cannot be put off (Charge):
//   requests that were submitted although TakesRequests said no: the last ones of a session that ends;
//   what is left of a session's releases, before such a request of it (FinishReleases);
//   what dead sessions have left of a tensor of which a part is sealed, and the shards that others have of it;
//   ranges of a creation that make room for one that is sealed before them;
//   what a search for the coldest piece takes out of its order: pinned pieces, and those of freed tensors, each once;
//   the refusals of all who wait for a read that failed;
//   the look for a key that names no tensor, in each namespace of the job;
//   the chunks of the piece list of a tensor that is created: 4,096 for the largest there can be.
// What the end of a session does at once is not counted: it takes back grants of the same turn, gives back its windows,
// and drops what was to be said to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/tiering/api/options.h"
#include "proto/message.h"

namespace tier::tiering {

static_assert(proto::kSpansPerCompletionMax + 1 <= WorkUnits{}.teardown, "a lease ends in one go");

class WorkBudget {
 public:
  explicit WorkBudget(const WorkUnits& units) : units_(units) { BeginTurn(); }

  // The stage that begins with the end of a turn.
  void BeginTurn() {
    most_spent_ = std::max(most_spent_, spent_);
    spent_ = 0;
    Enter(units_.submit);
  }
  // What the stage before left is not carried over.
  void Enter(uint32_t units) {
    left_ = units;
    fresh_ = true;
  }
  const WorkUnits& units() const { return units_; }

  bool exhausted() const { return left_ == 0; }
  uint32_t left() const { return left_; }
  // False: not so much is left, and nothing is spent. The first work of an undivided stage is begun however small the
  // stage was made.
  bool TrySpend(uint32_t cost = 1) {
    if (prepaid_) return true;
    if (cost > left_ && !(fresh_ && divisions_ == 0)) return false;
    Charge(cost);
    return true;
  }
  // For work that cannot be put off.
  void Charge(uint32_t cost) {
    fresh_ = fresh_ && cost == 0;
    left_ -= std::min(left_, cost);
    spent_ += cost;
  }
  // All of `work` is done now, and spends nothing: the look at the request that it belongs to has paid for it. Not one
  // in another.
  template <typename Work>
  void Prepaid(Work work) {
    prepaid_ = true;
    work();
    prepaid_ = false;
  }
  // `work` may spend its part of what is left, as one of so many that are still to come; at least one unit.
  template <typename Work>
  void Divide(size_t parties, Work work) {
    const auto part = std::max(static_cast<uint32_t>(left_ / std::max<size_t>(parties, 1)), 1u);
    const uint32_t kept = left_ - std::min(left_, part);
    left_ -= kept;
    ++divisions_;
    work();
    --divisions_;
    left_ += kept;
  }

  uint64_t spent() const { return spent_; }                              // In this turn so far.
  uint64_t most_spent() const { return std::max(most_spent_, spent_); }  // In any turn.

 private:
  WorkUnits units_;
  uint32_t left_ = 0;       // Of the stage.
  bool fresh_ = true;       // The stage has spent nothing.
  uint32_t divisions_ = 0;  // Under way, one in another.
  bool prepaid_ = false;    // Prepaid work is under way.
  uint64_t spent_ = 0;
  uint64_t most_spent_ = 0;
};

}  // namespace tier::tiering
