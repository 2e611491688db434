// Windows go from jobs that hold more than their guarantee to jobs that wait within theirs. See room.h.
//
// Only what is not leased is taken: empty windows first, then windows whose pieces can all be evicted (dirty ones are
// written out first, and looked at again later). Forced return of leased memory is not done here.
#include <algorithm>
#include <unordered_map>

#include "daemon/tiering/residency.h"
#include "daemon/tiering/room.h"
#include "daemon/tiering/tenancy.h"
#include "daemon/tiering/transfers.h"

namespace tier::tiering {
namespace {

// How the pieces in one window stand.
struct WindowUse {
  std::vector<PieceId> clean;
  std::vector<PieceId> dirty;
  bool bound = false;  // Something in it is leased, pinned, in transfer or being created.
};
using WindowUses = std::unordered_map<uint32_t, WindowUse>;

void NotePiece(Core& core, PieceId id, WindowUses* uses) {
  const Piece& piece = core.pieces[id];
  if (!piece.ram) return;
  WindowUse& use = (*uses)[tier::Value(core.windows.WindowOf(piece.ram))];
  const bool idle = piece.activity == Activity::kNone && piece.read_leases == 0 && piece.pins == 0;
  if (idle && piece.copies == Copies::kRamSsd) {
    use.clean.push_back(id);
  } else if (idle && piece.copies == Copies::kRam) {
    use.dirty.push_back(id);
  } else {
    use.bound = true;
  }
}

void NoteSpace(Core& core, TensorSlot head, WindowUses* uses) {
  for (TensorSlot slot = head; slot != kNoTensor; slot = core.tensors[slot].next) {
    const Tensor& tensor = core.tensors[slot];
    for (uint32_t k = 0; k < tensor.piece_count; ++k) NotePiece(core, tensor.piece(k), uses);
  }
}

WindowUses UsesOf(Core& core, JobState& job) {
  WindowUses uses;
  NoteSpace(core, job.shared_tensors, &uses);
  NoteSpace(core, job.inherited_tensors, &uses);
  for (const SessionState* session : job.sessions) NoteSpace(core, session->tensors, &uses);
  return uses;
}

uint32_t ReturnEmpty(Core& core, JobState& job, uint32_t wanted) {
  uint32_t returned = 0;
  const std::vector<WindowIndex> windows = job.windows;
  for (const WindowIndex window : windows) {
    if (returned == wanted) break;
    if (!job.pool.RegionEmpty(core.windows.FirstBlock(window))) continue;
    ReturnWindow(core, window);
    ++returned;
  }
  return returned;
}

// Evicts windows that hold nothing but clean pieces; starts the writes that make others so.
uint32_t EmptyWindows(Core& core, JobState& job, uint32_t wanted) {
  WindowUses uses = UsesOf(core, job);
  std::vector<std::pair<size_t, WindowIndex>> candidates;  // Fewest dirty pieces first.
  for (const WindowIndex window : job.windows) {
    const auto use = uses.find(tier::Value(window));
    if (use == uses.end() || use->second.bound) continue;
    candidates.emplace_back(use->second.dirty.size(), window);
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, tier::Value(a.second)) < std::pair(b.first, tier::Value(b.second));
  });
  uint32_t returned = 0;
  for (const auto& [dirty, window] : candidates) {
    if (returned == wanted) break;
    const WindowUse& use = uses.at(tier::Value(window));
    for (const PieceId id : use.dirty) {
      if (CanStartWrite(core, job)) StartWrite(core, id);
    }
    ++returned;
    if (dirty != 0) continue;  // On its way: looked at again when the writes have ended.
    for (const PieceId id : use.clean) Evict(core, id);
    // A detached tensor's transfer may still use a corner of it.
    if (job.pool.RegionEmpty(core.windows.FirstBlock(window))) ReturnWindow(core, window);
  }
  return returned;
}

// Windows it waits for and is entitled to.
uint32_t WindowsOwed(const Core& core, const JobState& job) {
  if (job.shortage_pages == 0 || WindowBytes(core, job) >= GuaranteeOf(core, job)) return 0;
  if (!MayGrow(core, job, job.shortage_pages * kPageSize)) return 0;
  const uint64_t window_pages = core.windows.window_pages();
  const uint64_t free_pages = std::min(job.pool.free_pages(), job.shortage_pages);
  return static_cast<uint32_t>((job.shortage_pages - free_pages) / window_pages + 1);
}

uint32_t ReturningWindows(const Core& core) {
  uint32_t returning = 0;
  for (const auto& [id, job] : core.jobs) returning += job->windows_returning;
  return returning;
}

}  // namespace

void HandOver(Core& core) {
  uint32_t owed = 0;
  std::vector<JobState*> holders;
  for (const auto& [id, job] : core.jobs) {
    owed += WindowsOwed(core, *job);
    if (WindowBytes(core, *job) > GuaranteeOf(core, *job)) holders.push_back(job.get());
  }
  const uint64_t arena_max = core.ports.windows.arena_max_bytes();
  const uint64_t spare = arena_max - std::min(arena_max, core.ports.windows.arena_bytes());
  const uint64_t coming = ReturningWindows(core) + spare / core.windows.window_size();
  if (owed <= coming) return;
  owed -= static_cast<uint32_t>(coming);
  const auto excess = [&](const JobState* job) { return WindowBytes(core, *job) - GuaranteeOf(core, *job); };
  std::sort(holders.begin(), holders.end(), [&](const JobState* a, const JobState* b) {
    return std::pair(excess(b), static_cast<uint64_t>(a->id)) < std::pair(excess(a), static_cast<uint64_t>(b->id));
  });
  for (JobState* holder : holders) {
    if (owed == 0) return;
    // A job that itself waits for room keeps what it needs for that.
    if (holder->shortage_pages != 0 && WindowBytes(core, *holder) <= core.windows.window_size()) continue;
    const auto most = static_cast<uint32_t>(std::max<uint64_t>(excess(holder) / core.windows.window_size(), 1));
    const uint32_t wanted = std::min(owed, most);
    uint32_t given = ReturnEmpty(core, *holder, wanted);
    if (given < wanted) given += EmptyWindows(core, *holder, wanted - given);
    owed -= given;
  }
}

}  // namespace tier::tiering
