// See bound_windows.h.
#include "daemon/tiering/leases/bound_windows.h"

#include <algorithm>
#include <utility>

namespace tier::tiering {
namespace {

bool IsBound(const WindowEntry& window) {
  return window.condition == WindowCondition::kReady && window.count(WindowUse::kBound) != 0;
}

// Windows, each counted once.
class Tally {
 public:
  explicit Tally(const WindowLedger& windows) : windows_(windows) {}
  void Add(WindowIndex window) {
    if (seen_.Contains(window)) return;
    seen_.Add(window);
    ++count_;
    bytes_ += windows_.SizeOf(window);
  }
  uint32_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const WindowLedger& windows_;
  WindowSet seen_;
  uint32_t count_ = 0;
  uint64_t bytes_ = 0;
};

// False: so many pieces are fewer than those of the lease.
bool AddWindows(const Tables& tables, const Lease& lease, uint32_t* pieces_left, Tally* tally) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    if (*pieces_left == 0) return false;
    --*pieces_left;
    const Piece& piece = tables.PieceOf(tensor, k);
    TIER_CHECK(piece.ram, "piece {} of tensor {} is leased, and not in RAM", k, tensor.id);
    for (const base::PageRun run : tables.RunsOf(piece)) tally->Add(tables.windows.WindowOf(run));
  }
  return true;
}

uint64_t BoundBytesMapped(const Tables& tables, const SessionState& session) {
  Tally tally(tables.windows);
  session.windows.mapped().ForEach([&](WindowIndex window) {
    if (IsBound(tables.windows[window])) tally.Add(window);
  });
  return tally.bytes();
}

// What leases that lie as close together as they can leave of the last window of each kind.
uint64_t UnfilledMost(const BoundWindows& bound) {
  uint64_t bytes = 0;
  for (const auto& [kind, unit] : {std::pair(WindowKind::kBlock, kBlockSize), {WindowKind::kSlot, kPageSize}}) {
    const uint64_t largest = bound.largest[static_cast<size_t>(kind)];
    bytes += largest - std::min(largest, unit);
  }
  return bytes;
}

}  // namespace

BoundWindows BoundWindowsOf(Tables& tables, const JobState& job) {
  BoundWindows bound;
  for (const WindowIndex index : job.windows.ready()) {
    const WindowEntry& window = tables.windows[index];
    TIER_CHECK(window.job == job.index, "window {} of job {}", tier::Value(index), job.key);
    if (!IsBound(window)) continue;
    bound.bytes += window.shape.size;
    ++bound.count;
    uint64_t& largest = bound.largest[static_cast<size_t>(window.shape.kind)];
    largest = std::max(largest, window.shape.size);
  }
  tables.work.Charge(static_cast<uint32_t>(job.windows.ready().size()));
  return bound;
}

bool BindsBeyondPromise(const Tables& tables, const JobState& job, const BoundWindows& bound) {
  const uint64_t part = AlignUp(tables.ledger.PromisedTo(job.entitlement), tables.windows.grain());
  if (bound.bytes <= part) return false;
  const uint64_t leased = tables.ledger.LeasedBy(job.entitlement);
  return leased > part || bound.bytes > leased + UnfilledMost(bound);
}

uint64_t BytesBoundBy(Tables& tables, const SessionState& session, const BoundWindows& bound, uint32_t pieces_max) {
  Tally tally(tables.windows);
  uint32_t pieces_left = pieces_max;
  bool all = true;
  LeaseIndex at = session.record.leases;
  for (; all && at != kNoLease && tally.count() < bound.count; at = tables.leases[at].next) {
    all = AddWindows(tables, tables.leases[at], &pieces_left, &tally);
  }
  tables.work.Charge(pieces_max - pieces_left);
  return all ? tally.bytes() : BoundBytesMapped(tables, session);
}

}  // namespace tier::tiering
