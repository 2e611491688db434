// Updates against a plain model: sets of piece numbers, by random programs of three sessions over one tensor.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "daemon/tiering/tables/piece_set.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint32_t kPieces = 4;
constexpr uint32_t kSessions = 3;
constexpr uint32_t kWrite = proto::kFlagShared | proto::kFlagWrite | proto::kFlagDiscard;

RC_GTEST_PROP(PieceSetProperty, HoldsWhatASetHolds, (uint8_t size, const std::vector<uint8_t>& numbers)) {
  const uint32_t capacity = uint32_t{size} + 1;
  PieceSets sets;
  PieceSet set;
  sets.Reset(&set, capacity);
  std::set<uint32_t> model;
  for (const uint8_t number : numbers) {
    RC_ASSERT(sets.Add(&set, number % capacity) == model.insert(number % capacity).second);
    RC_ASSERT(set.count == model.size());
  }
  for (uint32_t each = 0; each < capacity; ++each) RC_ASSERT(sets.Contains(set, each) == model.contains(each));
  sets.Reset(&set, capacity);
  RC_ASSERT(set.empty() && !sets.Contains(set, 0) && sets.nodes_used() == 0);
}

// What the rules of updates.h say, in sets.
struct Model {
  using Set = std::set<uint32_t>;
  std::array<Set, kSessions> changed;
  std::array<Set, kSessions> swapped;
  Set torn;
  struct Shard {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t number = 0;
  };
  bool sharded = false;
  std::map<uint32_t, Shard> shards;  // By session; kSessions: of those that have ended.
  std::array<uint64_t, kSessions> numbers{};
  uint64_t job_number = 0;

  void EndAll() {
    changed = {};
    swapped = {};
    torn.clear();
    shards.clear();
  }
  void Step(uint32_t session) {
    changed[session].clear();
    job_number = std::max(job_number, ++numbers[session]);
  }
  void AddToShard(uint32_t session, uint32_t begin, uint32_t end) {
    if (!sharded) return;
    Shard& own = shards.try_emplace(session, Shard{begin, end, 0}).first->second;
    own = {std::min(own.begin, begin), std::max(own.end, end), numbers[session]};
    for (auto& [other, shard] : shards) {
      if (other == session) continue;
      while (shard.begin < shard.end && begin <= shard.begin && shard.begin < end) ++shard.begin;
      while (shard.begin < shard.end && begin < shard.end && shard.end <= end) --shard.end;
    }
    std::erase_if(shards, [](const auto& entry) { return entry.second.begin == entry.second.end; });
  }
  // True: it is in step with all others, and stays.
  bool LeaveShard(uint32_t session) {
    const auto found = shards.find(session);
    if (found == shards.end()) return true;
    const Shard own = found->second;
    for (const auto& [other, shard] : shards) {
      if (shard.number != own.number) return false;
    }
    shards.erase(found);
    Shard& left = shards.try_emplace(kSessions, own).first->second;
    left = {std::min(left.begin, own.begin), std::max(left.end, own.end), own.number};
    return true;
  }
  bool OthersSwap(uint32_t session) const {
    for (uint32_t each = 0; each < kSessions; ++each) {
      if (each != session && !swapped[each].empty()) return true;
    }
    return false;
  }
  void Seal(uint32_t session, const Set& pieces, bool in_swap, bool more) {
    if (pieces.size() == kPieces && !more) return EndAll();
    for (const uint32_t piece : pieces) torn.erase(piece);
    AddToShard(session, *pieces.begin(), *pieces.rbegin() + 1);
    if (!in_swap) {
      changed[session].insert(pieces.begin(), pieces.end());
      if (changed[session].size() == kPieces) changed[session].clear();
      return;
    }
    if (!more && swapped[session].empty()) return;
    swapped[session].insert(pieces.begin(), pieces.end());
    if (more) return;
    if (swapped[session].size() == kPieces) return EndAll();
    swapped[session].clear();
  }
  void End(uint32_t session) {
    const bool unfinished = !changed[session].empty() || !swapped[session].empty();
    changed[session].clear();
    swapped[session].clear();
    numbers[session] = job_number;  // Of the session in its place.
    if (LeaveShard(session) && !unfinished) return;
    torn = {0, 1, 2, 3};
    shards.clear();
  }
  Code ReadBy(uint32_t session) const {
    if (!torn.empty()) return Code::kTorn;
    return OthersSwap(session) ? Code::kTimeout : Code::kOk;
  }
};

struct Tensor {
  World world;
  JobId job = world.OpenJob();
  std::array<SessionId, kSessions> sessions{};
  Model model;

  explicit Tensor(bool sharded) {
    model.sharded = sharded;
    for (SessionId& session : sessions) session = world.OpenSession(job);
    world.Put(sessions[0], 1, kPieces * kBlockSize, 1,
              sharded ? proto::kFlagShared | proto::kFlagSharded : proto::kFlagShared);
  }
  void Seal(uint32_t session, uint32_t first, uint32_t count, uint32_t kind) {
    const Answer granted =
        world.Acquire(sessions[session], 1, kWrite | proto::kFlagNoWait, first * kBlockSize, count * kBlockSize);
    RC_ASSERT((granted.code == Code::kOk) == !model.OthersSwap(session));
    if (granted.code != Code::kOk) return;
    const bool in_swap = kind != 0;
    const bool more = kind == 1;
    const proto::RequestItem item{0, 0, in_swap ? kPieces * kBlockSize : 0, World::LeaseOf(granted)};
    const Answer sealed = world.Ask(sessions[session], Op::kRelease, {item}, more ? proto::kFlagMore : 0);
    RC_ASSERT(sealed.code == Code::kOk);
    Model::Set pieces;
    for (uint32_t k = first; k < first + count; ++k) pieces.insert(k);
    model.Seal(session, pieces, in_swap, more);
  }
  void Do(uint32_t what, uint32_t session, uint32_t first, uint32_t count) {
    switch (what) {
      case 0:
        world.Wait(sessions[session], world.SendArgument(sessions[session], Op::kStep, UINT64_MAX));
        model.Step(session);
        break;
      case 1:
        world.EndSession(sessions[session], "gone");
        sessions[session] = world.OpenSession(job);
        model.End(session);
        break;
      case 2:
        world.Ask(sessions[session], Op::kAccept, {{1, 0, 0, 0}}, proto::kFlagShared);
        model.EndAll();
        break;
      default: Seal(session, first, count, what % 3);
    }
  }
  void Check() {
    for (uint32_t session = 0; session < kSessions; ++session) {
      const Answer read = world.Acquire(sessions[session], 1, proto::kFlagShared | proto::kFlagNoWait, 0, 1);
      RC_ASSERT(read.code == model.ReadBy(session));
      if (read.code == Code::kOk) world.Release(sessions[session], World::LeaseOf(read));
    }
    const Answer stat = world.Ask(sessions[0], Op::kStat, {{1, 0, 0, 0}}, proto::kFlagShared);
    RC_ASSERT(((stat.value & proto::kTensorTorn) != 0) == !model.torn.empty());
    world.engine->CheckInvariants();
  }
};

using Program = std::vector<std::tuple<uint8_t, uint8_t, uint8_t>>;

void Run(const Program& program, Tensor* tensor) {
  for (const auto& [what, session, range] : program) {
    const uint32_t first = range % kPieces;
    tensor->Do(what % 12, session % kSessions, first, 1 + (range / kPieces) % (kPieces - first));
    tensor->Check();
  }
}

RC_GTEST_PROP(UpdatesProperty, AreWhatSetsOfPiecesAre, (const Program& program)) {
  Tensor tensor(false);
  Run(program, &tensor);
}

RC_GTEST_PROP(UpdatesProperty, OfAShardedTensorAreWhatSetsAndStepsAre, (const Program& program)) {
  Tensor tensor(true);
  Run(program, &tensor);
}

}  // namespace
}  // namespace tier::tiering::testing
