// See bound_windows.h.
#include "daemon/tiering/leases/bound_windows.h"

#include <algorithm>
#include <span>
#include <utility>

namespace tier::tiering {
namespace {

constexpr uint32_t kWindowsClearedPerUnit = 4096;

bool IsBound(const WindowEntry& window) {
  return window.condition == WindowCondition::kReady && window.count(WindowUse::kBound) != 0;
}

// Counts pieces of the lease. False: no units are left for the next one.
bool CountLease(Tables& tables, const Lease& lease, BoundCount* count) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  for (; count->piece() < lease.piece_count; count->NextPiece()) {
    const uint32_t k = lease.first_piece + count->piece();
    const Piece& piece = tables.PieceOf(tensor, k);
    TIER_CHECK(piece.ram, "piece {} of tensor {} is leased, and not in RAM", k, tensor.id);
    const std::span<const base::PageRun> runs = tables.RunsOf(piece);
    if (!tables.work.TrySpend(static_cast<uint32_t>(runs.size()))) return false;
    for (const base::PageRun run : runs) {
      const WindowIndex window = tables.windows.WindowOf(run);
      count->Add(window, tables.windows.SizeOf(window));
    }
  }
  return true;
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

bool CountSession(Tables& tables, const SessionState& session, BoundCount* count) {
  if (!count->begun()) {
    // The set of windows is cleared for it.
    if (!tables.work.TrySpend(1 + tables.windows.capacity() / kWindowsClearedPerUnit)) return false;
    count->BeginSession(session.record.leases);
  }
  while (count->lease() != kNoLease) {
    const Lease& lease = tables.leases[count->lease()];
    TIER_CHECK(lease.kind != LeaseKind::kNone && lease.session == session.index, "lease {} of session {} is counted",
               Value(count->lease()), static_cast<uint64_t>(session.id));
    if (!CountLease(tables, lease, count) || !tables.work.TrySpend()) return false;
    count->NextLease(lease.next);
  }
  return true;
}

}  // namespace tier::tiering
