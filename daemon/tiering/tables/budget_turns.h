// BudgetTurns: whose turn it is among the jobs that wait for the budget of writes (write_budget.h). Deficit round robin
// (Shreedhar and Varghese, 1995): a turn is worth so many bytes, not writes, or a job with large pieces would get
// nearly all of the budget beside one with small ones. What a job does not use of its turn, because its next write is
// larger than that, is added to its next turn; what is left when it has nothing to write any more is lost. Jobs that
// have more to write all the time differ by less than two turns in what they wrote meanwhile.
//
// Pure. Engine thread only. Invariants: a job stands here once; what each has left is above 0 and below two turns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/units.h"

namespace tier::tiering {

class BudgetTurns {
 public:
  // Bytes of a turn: as many as the largest write has, so that each turn has room for one.
  static constexpr uint64_t kTurnBytes = kBlockSize;

  bool empty() const { return waiting_.empty(); }
  JobIndex first() const { return empty() ? kNoJob : waiting_.front().job; }  // Whose turn it is.
  // Its turn comes after all others'. REQUIRES: it is not here.
  void Join(JobIndex job) { waiting_.push_back({job, kTurnBytes}); }
  // What is left of its turn is lost. REQUIRES: it is here.
  void Leave(JobIndex job) {
    const size_t gone = std::erase_if(waiting_, [job](const Waiting& waiting) { return waiting.job == job; });
    TIER_CHECK(gone == 1, "job {} waits {} times", Value(job), gone);
  }
  // Whether its turn has so many bytes left. False: it has not, and is over; another job is the first. REQUIRES: it is
  // the first.
  bool Allows(JobIndex job, uint64_t bytes) {
    TIER_CHECK(job == first() && bytes != 0 && bytes <= kTurnBytes, "job {}, a write of {} bytes", Value(job), bytes);
    if (waiting_.front().left < bytes) EndTurn();
    return job == first();
  }
  // It writes so many. REQUIRES: Allows.
  void Spend(JobIndex job, uint64_t bytes) {
    TIER_CHECK(!empty() && job == first() && waiting_.front().left >= bytes, "job {}, a write of {} bytes", Value(job),
               bytes);
    waiting_.front().left -= bytes;
    if (waiting_.front().left == 0) EndTurn();  // The next one need not wait until this one asks again.
  }
  bool Has(JobIndex job) const {  // It waits here.
    return std::ranges::any_of(waiting_, [job](const Waiting& waiting) { return waiting.job == job; });
  }
  void CheckInvariants() const {
    for (const Waiting& waiting : waiting_) {
      TIER_CHECK(waiting.left != 0 && waiting.left < 2 * kTurnBytes, "job {} has {} bytes left", Value(waiting.job),
                 waiting.left);
    }
  }

 private:
  struct Waiting {
    JobIndex job{};
    uint64_t left = 0;  // Bytes, of this turn or, where it is not the first, of its next one.
  };

  void EndTurn() {
    waiting_.front().left += kTurnBytes;
    std::rotate(waiting_.begin(), waiting_.begin() + 1, waiting_.end());
  }

  std::vector<Waiting> waiting_;  // In the order of their turns. A vector: it takes no memory once it has grown.
};

}  // namespace tier::tiering
