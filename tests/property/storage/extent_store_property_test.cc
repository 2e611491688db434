// Random programs against a model of ExtentStore that is a map of pages: no page is ever in two hands, figures add up,
// and nothing that this turn freed is handed out before the turn ends.
#include "daemon/storage/extent_store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace tier::storage {
namespace {

constexpr uint32_t kBlocks[] = {3, 5};

// What each page of each device is, kept the slow and obvious way.
class Model {
 public:
  enum class State { kFree, kLive, kPending, kDoubtful, kQuarantined };

  Model() {
    for (uint16_t device = 0; device < std::size(kBlocks); ++device) {
      for (uint32_t page = 0; page < kBlocks[device] * kPagesPerBlock; ++page) pages_[{device, page}] = State::kFree;
    }
  }
  void Move(Extent extent, State from, State to) {
    for (uint32_t i = 0; i < extent.run.pages; ++i) {
      const auto key = std::pair(extent.device, extent.run.block * kPagesPerBlock + extent.run.page + i);
      RC_ASSERT(pages_.at(key) == from);
      pages_[key] = to;
    }
  }
  bool AllFree(Extent extent) const {
    for (uint32_t i = 0; i < extent.run.pages; ++i) {
      const auto found = pages_.find({extent.device, extent.run.block * kPagesPerBlock + extent.run.page + i});
      if (found == pages_.end() || found->second != State::kFree) return false;
    }
    return true;
  }
  uint64_t FreePages(uint16_t device) const { return Bytes(device, State::kFree) / kPageSize; }
  // A whole free block, or room for `pages` in a row within one block, none of these.
  bool HasRun(uint16_t device, uint32_t pages, const std::set<std::pair<uint16_t, uint32_t>>& but) const {
    uint32_t in_row = 0;
    for (uint32_t page = 0; page < kBlocks[device] * kPagesPerBlock; ++page) {
      if (page % kPagesPerBlock == 0) in_row = 0;
      if (but.contains({device, page / kPagesPerBlock})) continue;
      in_row = pages_.at({device, page}) == State::kFree ? in_row + 1 : 0;
      if (in_row == pages) return true;
    }
    return false;
  }
  void Strike(Extent extent) { struck_.push_back(extent); }
  bool TakeStrikes(Extent extent) {
    const auto meets = [&](Extent other) {
      return other.device == extent.device && other.run.block == extent.run.block &&
             other.run.page < extent.run.page + extent.run.pages && extent.run.page < other.run.page + other.run.pages;
    };
    return std::erase_if(struck_, meets) != 0;
  }
  uint64_t Bytes(uint16_t device, State state) const {
    uint64_t pages = 0;
    for (const auto& [key, value] : pages_) pages += key.first == device && value == state ? 1 : 0;
    return pages * kPageSize;
  }

 private:
  std::map<std::pair<uint16_t, uint32_t>, State> pages_;
  std::vector<Extent> struck_;
};

class Program {
 public:
  Program() {
    for (const uint32_t blocks : kBlocks) store_.AddDevice(blocks);
    for (auto left = *rc::gen::inRange(0, 4); left != 0; --left) QuarantineAtStart();
  }

  void Step() {
    switch (*rc::gen::weightedElement<int>(
        {{10, 0}, {5, 1}, {4, 2}, {1, 3}, {2, 4}, {2, 5}, {1, 6}, {1, 7}, {1, 8}, {2, 9}, {1, 10}})) {
      case 0: Allocate(); break;
      case 1: Free(); break;
      case 2: FreeAtTurnEnd(); break;
      case 3: SetInDoubt(); break;
      case 7: EndDoubts(); break;
      case 8: Retry(); break;
      case 9: Clear(); break;
      case 10: EndClearing(); break;
      case 4: Commit(); break;
      case 5: Take(); break;
      case 6: Drain(); break;
    }
    Compare();
  }

 private:
  void Allocate() {
    const auto pages = *rc::gen::weightedOneOf<uint32_t>(
        {{1, rc::gen::inRange<uint32_t>(1, 513)}, {1, rc::gen::just(uint32_t{kPagesPerBlock})}});
    const std::set<std::pair<uint16_t, uint32_t>> cleared = Cleared();
    const auto extent = store_.Allocate(pages);
    FreeTriedDoubts(!extent);
    if (!extent) {
      RC_ASSERT(extent.error().code == Code::kNoSpace);
      for (uint16_t device = 0; device < std::size(kBlocks); ++device) {
        RC_ASSERT(draining_.contains(device) || model_.FreePages(device) < pages);
      }
      return;
    }
    RC_ASSERT(extent->run.pages == pages);
    RC_ASSERT(!draining_.contains(extent->device));
    for (uint16_t device = 0; extent->scattered && device < std::size(kBlocks); ++device) {
      RC_ASSERT(draining_.contains(device) || !model_.HasRun(device, pages, cleared));
    }
    for (const Extent& part : PartsOf(*extent)) RC_ASSERT(!store_.Clears(part.device, part.run.block));
    AddLive(*extent);
  }

  // Of each device, the blocks that are being cleared.
  std::set<std::pair<uint16_t, uint32_t>> Cleared() const {
    std::set<std::pair<uint16_t, uint32_t>> blocks;
    for (uint16_t device = 0; device < std::size(kBlocks); ++device) {
      for (uint32_t block = 0; block < kBlocks[device]; ++block) {
        if (store_.Clears(device, block)) blocks.insert({device, block});
      }
    }
    return blocks;
  }

  // Nothing is placed there until it is empty: then it is a free block, and as good as any other.
  void Clear() {
    const auto device = *rc::gen::inRange<uint16_t>(0, std::size(kBlocks));
    std::vector<base::SparseBlock> sparse;
    store_.ListSparseBlocks(device, 8, &sparse);
    if (sparse.empty()) return;
    const uint32_t block = sparse[*rc::gen::inRange<size_t>(0, sparse.size())].block;
    RC_ASSERT(store_.BeginClearing(device, block));
    RC_ASSERT(store_.clears(device) && store_.Clears(device, block));
  }

  void EndClearing() {
    const std::set<std::pair<uint16_t, uint32_t>> cleared = Cleared();
    if (cleared.empty()) return;
    const auto [device, block] = *cleared.begin();
    const bool all = *rc::gen::arbitrary<bool>();
    all ? store_.EndClearing(device) : store_.EndClearing(device, block);
    RC_ASSERT(!store_.Clears(device, block) && (!all || !store_.clears(device)));
  }

  // Each run as an extent of its own.
  std::vector<Extent> PartsOf(const Extent& extent) const {
    std::vector<Extent> parts;
    for (const base::PageRun run : store_.RunsOf(extent)) parts.push_back({.run = run, .device = extent.device});
    RC_ASSERT(extent.scattered == (parts.size() > 1) && parts[0].run.offset_bytes() == extent.run.offset_bytes());
    return parts;
  }

  void AddLive(const Extent& extent) {
    uint32_t pages = 0;
    for (const Extent& part : PartsOf(extent)) {
      model_.Move(part, Model::State::kFree, Model::State::kLive);
      pages += part.run.pages;
    }
    RC_ASSERT(pages == extent.run.pages);
    live_.push_back(extent);
  }

  // One of the live extents, which is live no more. None: there is none.
  std::optional<Extent> TakeLive() {
    if (live_.empty()) return std::nullopt;
    const size_t at = *rc::gen::inRange<size_t>(0, live_.size());
    const Extent extent = live_[at];
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(at));
    return extent;
  }

  void Free() {
    const std::optional<Extent> extent = TakeLive();
    if (!extent) return;
    for (const Extent& part : PartsOf(*extent)) model_.Move(part, Model::State::kLive, Model::State::kFree);
    store_.Free(*extent);
  }

  // Where no device has other pages that do, those in doubt and those put aside become free when the turn ends.
  void FreeTriedDoubts(bool nothing_else) {
    if (!nothing_else) return;
    for (uint16_t device = 0; device < std::size(kBlocks); ++device) {
      if (draining_.contains(device)) continue;
      FreeAll(&doubtful_[device]);
      for (const Extent& extent : aside_[device]) model_.Strike(extent);
      FreeAll(&aside_[device]);
    }
  }
  void FreeAll(std::vector<Extent>* extents) {
    for (const Extent& extent : std::exchange(*extents, {})) {
      model_.Move(extent, Model::State::kDoubtful, Model::State::kPending);
      pending_.push_back(extent);
    }
  }

  static bool OnePlace(const std::vector<Extent>& extents) {
    uint64_t first = UINT64_MAX;
    uint64_t end = 0;
    for (const Extent& extent : extents) {
      const uint64_t page = extent.run.block * uint64_t{kPagesPerBlock} + extent.run.page;
      first = std::min(first, page);
      end = std::max(end, page + extent.run.pages);
    }
    return extents.empty() || end <= first + kStripePages;
  }

  void SetInDoubt() {
    const std::optional<Extent> extent = TakeLive();
    if (!extent) return;
    std::optional<uint64_t> failed_at;
    if (*rc::gen::arbitrary<bool>()) failed_at = *rc::gen::inRange<uint64_t>(0, extent->run.size_bytes());
    uint64_t at = 0;
    for (const Extent& part : PartsOf(*extent)) {
      const uint64_t end = at + part.run.size_bytes();
      const bool failed = !failed_at || (at <= *failed_at && *failed_at < end);
      const bool doubtful = failed || !extent->scattered;
      model_.Move(part, Model::State::kLive, doubtful ? Model::State::kDoubtful : Model::State::kPending);
      doubtful ? doubtful_[part.device].push_back(part) : pending_.push_back(part);
      at = end;
    }
    store_.SetInDoubt(*extent, true, failed_at);
  }

  void EndDoubts() {
    const auto device = *rc::gen::inRange<uint16_t>(0, std::size(kBlocks));
    const auto doubt = *rc::gen::element(Doubt::kOfPlaces, Doubt::kOfDevice);
    const uint64_t quarantined = store_.space(device).quarantined;
    store_.EndDoubts(device, doubt);
    if (doubt == Doubt::kOfDevice) {
      FreeAll(&doubtful_[device]);
      FreeAll(&aside_[device]);
      RC_ASSERT(store_.space(device).quarantined == quarantined);
    }
    if (!OnePlace(doubtful_[device])) FreeAll(&doubtful_[device]);
    for (const Extent& extent : std::exchange(doubtful_[device], {})) {
      if (model_.TakeStrikes(extent)) {
        model_.Move(extent, Model::State::kDoubtful, Model::State::kQuarantined);
        quarantined_[device].push_back(extent);
      } else {
        aside_[device].push_back(extent);
      }
    }
  }

  // A part of it may be quarantined already.
  void QuarantineAtStart() {
    const auto page = *rc::gen::inRange<uint16_t>(0, kPagesPerBlock);
    const Extent place{.run = {.block = *rc::gen::inRange<uint32_t>(0, 6),
                               .page = page,
                               .pages = static_cast<uint16_t>(*rc::gen::inRange<int>(1, kPagesPerBlock - page + 1))},
                       .device = *rc::gen::inRange<uint16_t>(0, std::size(kBlocks))};
    store_.Quarantine(place.device, place.run);
    for (uint16_t i = 0; i < place.run.pages; ++i) {
      Extent one = place;
      one.run.page = static_cast<uint16_t>(page + i);
      one.run.pages = 1;
      if (!model_.AllFree(one)) continue;
      model_.Move(one, Model::State::kFree, Model::State::kQuarantined);
      quarantined_[place.device].push_back(one);
    }
  }

  void Retry() {
    const auto device = *rc::gen::inRange<uint16_t>(0, std::size(kBlocks));
    const bool any = !quarantined_[device].empty();
    (void)store_.TakeQuarantineChanges();
    store_.RetryQuarantined(device);
    RC_ASSERT(store_.any_quarantine_change() == any);
    for (const Extent& extent : std::exchange(quarantined_[device], {})) {
      model_.Move(extent, Model::State::kQuarantined, Model::State::kDoubtful);
      aside_[device].push_back(extent);
    }
  }

  void FreeAtTurnEnd() {
    const std::optional<Extent> extent = TakeLive();
    if (!extent) return;
    for (const Extent& part : PartsOf(*extent)) {
      model_.Move(part, Model::State::kLive, Model::State::kPending);
      pending_.push_back(part);
    }
    store_.FreeAtTurnEnd(*extent);
  }

  void Commit() {
    store_.OnTurnEnded();
    for (const Extent& extent : pending_) model_.Move(extent, Model::State::kPending, Model::State::kFree);
    pending_.clear();
  }

  void Take() {
    const auto device = *rc::gen::inRange<uint16_t>(0, 3);
    const auto count = *rc::gen::weightedElement<size_t>({{4, 1}, {2, 2}, {1, 3}, {1, 0}});
    const auto said_pages = *rc::gen::weightedElement<int>({{9, 0}, {1, 1}});
    std::vector<base::PageRun> runs;
    Extent extent{.device = device, .scattered = count > 1};
    bool possible = count != 0 && said_pages == 0;
    std::set<std::pair<uint32_t, uint32_t>> pages;
    for (size_t i = 0; i < count; ++i) {
      const base::PageRun run{.block = *rc::gen::inRange<uint32_t>(0, 6),
                              .page = *rc::gen::inRange<uint16_t>(0, kPagesPerBlock),
                              .pages = *rc::gen::inRange<uint16_t>(0, 40)};
      runs.push_back(run);
      if (i == 0) extent.run = {.block = run.block, .page = run.page, .pages = 0};
      extent.run.pages = static_cast<uint16_t>(extent.run.pages + run.pages);
      possible &=
          run.pages != 0 && run.page + run.pages <= kPagesPerBlock && model_.AllFree({.run = run, .device = device});
      for (uint32_t page = 0; page < run.pages; ++page) possible &= pages.insert({run.block, run.page + page}).second;
    }
    extent.run.pages = static_cast<uint16_t>(extent.run.pages + said_pages);
    const Status taken = store_.Take(extent, runs);
    RC_ASSERT(taken.has_value() == possible);
    if (taken) AddLive(extent);
  }

  void Drain() {
    const auto device = *rc::gen::inRange<uint16_t>(0, std::size(kBlocks));
    const bool draining = !draining_.contains(device);
    store_.SetDraining(device, draining);
    if (draining) {
      draining_.insert(device);
    } else {
      draining_.erase(device);
    }
  }

  void Compare() {
    store_.CheckInvariants();
    uint64_t room = 0;
    uint64_t coming = 0;
    for (uint16_t device = 0; device < std::size(kBlocks); ++device) {
      const DeviceSpace space = store_.space(device);
      RC_ASSERT(space.free == model_.Bytes(device, Model::State::kFree));
      RC_ASSERT(space.live == model_.Bytes(device, Model::State::kLive));
      RC_ASSERT(space.pending == model_.Bytes(device, Model::State::kPending));
      RC_ASSERT(space.doubtful == model_.Bytes(device, Model::State::kDoubtful));
      RC_ASSERT(space.quarantined == model_.Bytes(device, Model::State::kQuarantined));
      uint64_t listed = 0;
      for (const base::PageRun place : store_.quarantined(device)) listed += place.size_bytes();
      RC_ASSERT(listed == space.quarantined);
      RC_ASSERT(space.free + space.live + space.pending + space.doubtful + space.quarantined == space.capacity);
      if (draining_.contains(device)) continue;
      room += space.free + space.pending + space.doubtful;
      coming += space.pending;
    }
    RC_ASSERT(store_.RoomComes() == (coming != 0));
    RC_ASSERT(store_.HasRoom(room));
    RC_ASSERT(!store_.HasRoom(room + 1));
  }

  ExtentStore store_;
  Model model_;
  std::vector<Extent> live_;
  std::vector<Extent> pending_;
  std::map<uint16_t, std::vector<Extent>> doubtful_;
  std::map<uint16_t, std::vector<Extent>> aside_;
  std::map<uint16_t, std::vector<Extent>> quarantined_;
  std::set<uint16_t> draining_;
};

TEST(ExtentStoreProperty, AgreesWithAModelOfPages) {
  const bool holds = rc::check("extent store", [] {
    Program program;
    const auto steps = *rc::gen::inRange(1, 120);
    for (int i = 0; i < steps; ++i) program.Step();
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

}  // namespace
}  // namespace tier::storage
