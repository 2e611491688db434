// Random programs of one job in RAM alone, against a model of what its tensors hold: whatever moves meanwhile, a tensor
// that was put has its bytes, nothing under a lease moves, and every page that is free serves whatever sizes come. The
// world checks every invariant of the engine after each step. Replay with RC_PARAMS="seed=<seed>".
#include <map>
#include <ostream>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

constexpr uint64_t kBlocks = 12;
constexpr uint64_t kPages = kBlocks * kPagesPerBlock;

enum class Action : uint8_t { kPutSmall, kPutLarge, kFree, kRead, kRelease, kRewrite, kCheck, kTurn };

struct Step {
  Action action;
  uint32_t which;
  uint32_t size;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{" << static_cast<int>(step.action) << ", " << step.which << ", " << step.size << "}";
}

// With huge pages whole blocks lie in windows of two blocks that take nothing else, all else in windows of one.
enum class Pages : uint8_t { kSmall, kHuge };

memory::testing::FakeWindowOptions WindowsOf(Pages pages) {
  memory::testing::FakeWindowOptions options{.window_size = 2 * kBlockSize,
                                             .arena_max_bytes = 4 * kBlocks * kBlockSize};
  if (pages == Pages::kHuge) {
    options.slot_window_size = kBlockSize;
    options.page_size = kBlockSize;
  }
  return options;
}

class Program {
 public:
  Program(uint32_t delay, uint32_t slot_pages_max, Pages pages = Pages::kSmall)
      : slot_pages_max_(slot_pages_max),
        // What admission keeps for other jobs; of a window in huge pages its second block, too, and a block for slots.
        kept_pages_((pages == Pages::kHuge ? 3 : 1) * kPagesPerBlock),
        world_({.windows = WindowsOf(pages),
                .transfers = {.device_count = 0},
                .copies = {.seed = delay, .delay_turns_max = delay}}),
        job_(world_.OpenJob({.key = {}, .limit_bytes = kBlocks * kBlockSize})),
        session_(world_.OpenSession(job_)) {}

  void Do(const Step& step) {
    switch (step.action) {
      case Action::kPutSmall: return Put((1 + step.size % slot_pages_max_) * kPageSize);
      case Action::kPutLarge: return Put((1 + step.size % 3) * kBlockSize + step.size % 7 * kPageSize);
      case Action::kFree: return Free(step.which);
      case Action::kRead: return Read(step.which);
      case Action::kRelease: return Release(step.which);
      case Action::kRewrite: return Rewrite(step.which);
      case Action::kCheck: return Check(step.which);
      case Action::kTurn: world_.Turns(1 + step.size % 3);
    }
  }
  void CheckLeases() {
    for (const auto& [tensor, lease] : leases_) {
      RC_ASSERT(world_.Matches(lease.spans, tensor, tensors_.at(tensor).seed));
    }
  }
  void Finish() {
    while (!leases_.empty()) Release(0);
    for (const auto& [id, tensor] : tensors_) RC_ASSERT(world_.Check(session_, id, tensor.seed) == Code::kOk);
    PutAllThatFits();
    while (!tensors_.empty()) Free(0);
    world_.EndSession(session_);
    world_.Turns(200);
    RC_ASSERT(world_.windows.window_count() == 0U);
  }
  uint64_t moves() const {
    uint64_t moves = 0;
    for (const CompactionFigures& figures : world_.engine->Snapshot().compaction) moves += figures.moves;
    return moves;
  }

 private:
  struct Held {
    uint64_t bytes = 0;
    uint64_t seed = 0;
  };
  uint64_t FreePages() const { return kPages - used_pages_; }
  // With nothing leased every page that is free serves, whatever the sizes before and now.
  void PutAllThatFits() {
    for (uint32_t i = 0; FreePages() > kept_pages_; ++i) {
      const uint64_t left = FreePages() - kept_pages_;
      const uint64_t pages = std::min<uint64_t>(left, i % 3 == 0 ? kPagesPerBlock : 1 + (i * 197) % slot_pages_max_);
      const base::TimePoint before = world_.now;
      RC_ASSERT(TryPut(pages * kPageSize) == Code::kOk);
      RC_ASSERT((world_.now - before) < std::chrono::seconds(1));
    }
  }
  Code TryPut(uint64_t bytes) {
    const uint64_t id = next_++;
    const Answer created = world_.Create(session_, id, bytes);
    if (created.code != Code::kOk) return created.code;
    world_.Fill(created.spans, id, id);
    RC_ASSERT(world_.Release(session_, World::LeaseOf(created)).code == Code::kOk);
    tensors_[id] = {bytes, id};
    used_pages_ += PagesFor(bytes);
    return Code::kOk;
  }
  void Put(uint64_t bytes) {
    // One block stays free beside what is kept.
    if (FreePages() < PagesFor(bytes) + kPagesPerBlock + kept_pages_ || !leases_.empty()) return;
    (void)TryPut(bytes);
  }
  std::map<uint64_t, Held>::iterator Pick(uint32_t which) {
    return std::next(tensors_.begin(), static_cast<ptrdiff_t>(which % tensors_.size()));
  }
  void Free(uint32_t which) {
    if (tensors_.empty()) return;
    const auto at = Pick(which);
    if (leases_.contains(at->first)) return;
    RC_ASSERT(world_.Free(session_, at->first).code == Code::kOk);
    used_pages_ -= PagesFor(at->second.bytes);
    tensors_.erase(at);
  }
  void Read(uint32_t which) {
    if (tensors_.empty()) return;
    const auto at = Pick(which);
    if (leases_.contains(at->first)) return;
    const uint64_t sent = world_.Send(session_, Op::kAcquire, {{at->first, 0, 0, 0}});
    world_.Turn();
    const auto acquired = world_.Answered(session_, sent);
    RC_ASSERT(acquired.has_value());  // It never waits for a move.
    RC_ASSERT(acquired->code == Code::kOk);
    leases_[at->first] = *acquired;
  }
  void Release(uint32_t which) {
    if (leases_.empty()) return;
    const auto at = std::next(leases_.begin(), static_cast<ptrdiff_t>(which % leases_.size()));
    RC_ASSERT(world_.Release(session_, World::LeaseOf(at->second)).code == Code::kOk);
    leases_.erase(at);
  }
  void Rewrite(uint32_t which) {
    if (tensors_.empty()) return;
    const auto at = Pick(which);
    if (leases_.contains(at->first)) return;
    at->second.seed = next_++;
    RC_ASSERT(world_.Rewrite(session_, at->first, at->second.seed).code == Code::kOk);
  }
  void Check(uint32_t which) {
    if (tensors_.empty()) return;
    const auto at = Pick(which);
    RC_ASSERT(world_.Check(session_, at->first, at->second.seed) == Code::kOk);
  }

  const uint32_t slot_pages_max_;
  const uint64_t kept_pages_;
  World world_;
  JobId job_;
  SessionId session_;
  std::map<uint64_t, Held> tensors_;
  std::map<uint64_t, Answer> leases_;
  uint64_t used_pages_ = 0;
  uint64_t next_ = 1;
};

rc::Gen<std::vector<Step>> Programs() {
  const auto action = rc::gen::weightedElement<Action>({{14, Action::kPutSmall},
                                                        {4, Action::kPutLarge},
                                                        {10, Action::kFree},
                                                        {3, Action::kRead},
                                                        {4, Action::kRelease},
                                                        {2, Action::kRewrite},
                                                        {2, Action::kCheck},
                                                        {3, Action::kTurn}});
  const auto number = rc::gen::inRange<uint32_t>(0, 1U << 16);
  return rc::gen::container<std::vector<Step>>(rc::gen::construct<Step>(action, number, number));
}

void RunProgram(Pages pages) {
  const auto steps = *rc::gen::scale(2.0, Programs());
  const auto delay = *rc::gen::inRange<uint32_t>(0, 5);
  Program program(delay, *rc::gen::element(8U, 64U, 200U, 511U), pages);
  for (const Step& step : steps) {
    program.Do(step);
    program.CheckLeases();
  }
  program.Finish();
}

RC_GTEST_PROP(CompactionProperty, TensorsKeepTheirBytesAndScatteredPagesServe, ()) { RunProgram(Pages::kSmall); }
RC_GTEST_PROP(CompactionProperty, TheSameBesideHugePages, ()) { RunProgram(Pages::kHuge); }

TEST(CompactionProperty, ItsProgramsMovePieces) {
  Program program(2, 64);
  for (uint32_t i = 0; i < 200; ++i) program.Do({Action::kPutSmall, i, i * 37});
  for (uint32_t i = 0; i < 150; ++i) program.Do({Action::kFree, i * 7, 0});
  program.Finish();
  EXPECT_GT(program.moves(), 0U);
}

}  // namespace
}  // namespace tier::tiering::testing
