// See fake_copier.h.
#include "tests/support/tiering/fake_copier.h"

#include <cstring>
#include <utility>

#include "daemon/base/check.h"

namespace tier::memory::testing {

void FakeCopier::Submit() {
  for (const PageCopy& copy : started_) {
    const uint64_t delays = options_.delay_turns_max - options_.delay_turns_min + 1;
    under_way_.push_back({copy, turn_ + options_.delay_turns_min + random_() % delays});
    TIER_CHECK(copy.from + copy.length <= copy.to || copy.to + copy.length <= copy.from, "{} bytes onto themselves",
               copy.length);
    std::memset(copy.to, 0xdb, copy.length);
  }
  started_.clear();
}

CopyOutcome FakeCopier::Complete(const PageCopy& copy) {
  ++completed_;
  CopyOutcome outcome = std::exchange(next_outcome_, CopyOutcome::kDone);
  if (faults_ != 0 && random_() % 1000000 < faults_) {
    outcome = random_() % 2 == 0 ? CopyOutcome::kSourceFault : CopyOutcome::kTargetFault;
  }
  faulted_ += outcome == CopyOutcome::kDone ? 0 : 1;
  // A fault comes in the middle.
  std::memcpy(copy.to, copy.from, outcome == CopyOutcome::kDone ? copy.length : copy.length / 2);
  return outcome;
}

void FakeCopier::Poll(std::vector<PageCopyResult>* results) {
  const uint64_t now = turn_++;
  for (auto at = under_way_.begin(); at != under_way_.end();) {
    if (at->due_turn > now) {
      ++at;
      continue;
    }
    results->push_back({at->copy.cookie, Complete(at->copy)});
    at = under_way_.erase(at);
  }
}

}  // namespace tier::memory::testing
