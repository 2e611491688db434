// WorkBudget: how much of the engine thread one turn may take, so that no request keeps other clients waiting.
//
// The unit is a look at one piece, one tensor, one lease or one request: some ten nanoseconds. The work of a turn goes
// through stages, each with units of its own (WorkUnits). Work that finds no units left continues in the next turn.
// Indivisible work, such as one attempt of a request over thousands of pieces, is begun only if the units for all of it
// are left; kLookMax bounds its cost. Engine thread only.
//
// Invariant: one turn spends at most the sum of its stages' units, if these are for each stage at least the cost of its
// largest indivisible work. Only work that cannot be put off may exceed that (Charge):
//   requests that were submitted although TakesRequests said no: the last ones of a session that ends;
//   the rest of a session's releases, before such a request of the session (FinishReleases);
//   updates of dead sessions to break before a part of their tensor is sealed, and the shards of other sessions in it;
//   unfinished swap_outs over a tensor, where a part of one is sealed or a request asks for the tensor;
//   dead sessions whose updates are not broken yet, at each tensor with updates that a request asks for;
//   sealed ranges of a creation to move for one that is sealed before them;
//   pieces that a search for the coldest one takes out of its order: pinned ones and those of freed tensors, each once;
//   the refusals of all waiters for a read that failed;
//   the search for a key that names no tensor, in each namespace of the job;
//   the lists of tensors that stand at a tensor which is freed: they go on with the next one;
//   the sessions of a job that is asked for a window back, or misses the time for it;
//   the windows of jobs that may bind more than they are promised, while a job is overdue (ForceReturns);
//   the chunks of the piece list of a created tensor: 4,096 for the largest possible one.
// Work that the end of a session does at once is not counted: it takes back grants of the same turn, gives back its
// windows, and drops its replies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/tiering/api/options.h"
#include "proto/message.h"

namespace tier::tiering {

static_assert(proto::kSpansPerCompletionMax + 1 <= WorkUnits{}.teardown, "a lease ends in one go");

class WorkBudget {
 public:
  explicit WorkBudget(const WorkUnits& units) : units_(units) { BeginTurn(); }

  // Enters the stage that begins with the end of a turn.
  void BeginTurn() {
    most_spent_ = std::max(most_spent_, spent_);
    spent_ = 0;
    windows_ = 0;
    Enter(units_.submit);
  }
  // Enters the next stage. Units that the previous one left are not carried over.
  void Enter(uint32_t units) {
    left_ = units;
    fresh_ = true;
  }
  const WorkUnits& units() const { return units_; }

  bool exhausted() const { return left_ == 0; }
  uint32_t left() const { return left_; }
  // False: not enough units are left, and none was spent. The first work of an undivided stage is begun however few
  // units the stage has.
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
  // What TrySpend took for work that did not come to it, in this stage.
  void Refund(uint32_t cost) {
    left_ += cost;
    spent_ -= std::min<uint64_t>(spent_, cost);
  }
  // Does all of `work` now and spends nothing: the attempt of the request that it belongs to has paid for it. Not
  // nested.
  template <typename Work>
  void Prepaid(Work work) {
    prepaid_ = true;
    work();
    prepaid_ = false;
  }
  // `work` may spend 1/parties of the units that are left, at least one unit.
  template <typename Work>
  void Divide(size_t parties, Work work) {
    Within(std::max(static_cast<uint32_t>(left_ / std::max<size_t>(parties, 1)), 1u), work);
  }
  // `work` may spend none of the units that are left: what can be put off is. What it charges all the same is taken
  // from them.
  template <typename Work>
  void PutOff(Work work) {
    const uint64_t before = spent_;
    Within(0, work);
    left_ -= static_cast<uint32_t>(std::min<uint64_t>(left_, spent_ - before));
  }

  // Windows are counted apart from units: what they cost is paid by other threads too, and a request that has spent all
  // its units on its pieces needs its windows all the same.
  void NoteWindow() { ++windows_; }
  bool may_start_window() const { return windows_ < units_.windows; }

  bool prepaid() const { return prepaid_; }

  uint64_t spent() const { return spent_; }                              // In this turn so far.
  uint64_t most_spent() const { return std::max(most_spent_, spent_); }  // In any turn.

 private:
  // `work` may spend so many of the units that are left.
  template <typename Work>
  void Within(uint32_t part, const Work& work) {
    const uint32_t kept = left_ - std::min(left_, part);
    left_ -= kept;
    ++divisions_;
    work();
    --divisions_;
    left_ += kept;
  }

  WorkUnits units_;
  uint32_t left_ = 0;       // Units of the stage.
  bool fresh_ = true;       // The stage has spent nothing.
  uint32_t divisions_ = 0;  // Calls of Divide under way, nested.
  bool prepaid_ = false;    // Prepaid work is under way.
  uint32_t windows_ = 0;    // Started in this turn.
  uint64_t spent_ = 0;
  uint64_t most_spent_ = 0;
};

}  // namespace tier::tiering
