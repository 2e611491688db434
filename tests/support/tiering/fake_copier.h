// FakeCopier: a PageCopyPort for the engine's tests and the simulator. Single-threaded and deterministic: all chance
// comes from the seed, time is counted in turns (calls of Poll).
//
// Meaner than a worker on purpose: the target holds poison until the copy completes, and the source is read only then,
// so that an engine that gives either place away too early hands out wrong bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "daemon/memory/page_copier.h"

namespace tier::memory::testing {

struct FakeCopierOptions {
  uint64_t seed = 1;
  // A submitted copy completes after min … max further turns, drawn for each; 0, 0: at the next Poll.
  uint32_t delay_turns_min = 0;
  uint32_t delay_turns_max = 0;
};

class FakeCopier final : public PageCopyPort {
 public:
  explicit FakeCopier(const FakeCopierOptions& options) : options_(options), random_(options.seed) {}

  void Start(const PageCopy& copy) override { started_.push_back(copy); }
  void Submit() override;
  void Poll(std::vector<PageCopyResult>* results) override;
  uint32_t inflight() const override { return static_cast<uint32_t>(under_way_.size()); }

  // The script.
  void SetDelay(uint32_t min, uint32_t max) {
    options_.delay_turns_min = min;
    options_.delay_turns_max = max;
  }
  void FaultNext(CopyOutcome outcome) { next_outcome_ = outcome; }  // The next copy that completes ends so.
  void SetFaults(uint32_t per_million) { faults_ = per_million; }   // On either side.
  uint64_t completed() const { return completed_; }
  uint64_t faulted() const { return faulted_; }

 private:
  struct UnderWay {
    PageCopy copy;
    uint64_t due_turn = 0;
  };
  CopyOutcome Complete(const PageCopy& copy);

  FakeCopierOptions options_;
  std::mt19937_64 random_;
  std::vector<PageCopy> started_;
  std::vector<UnderWay> under_way_;
  CopyOutcome next_outcome_ = CopyOutcome::kDone;
  uint32_t faults_ = 0;
  uint64_t turn_ = 0;
  uint64_t completed_ = 0;
  uint64_t faulted_ = 0;
};

}  // namespace tier::memory::testing
