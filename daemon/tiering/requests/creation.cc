// See creation.h.
#include "daemon/tiering/requests/creation.h"

#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/capacity.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/requests/resolve.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;
using proto::RequestItem;

// `pages_held`: with all tensors that are asked for before this one.
std::optional<Refusal> RefusalOfNew(Tables& tables, const JobState& job, const RequestItem& asked, uint64_t pages_held,
                                    uint64_t replaced_pages) {
  if (asked.value == 0) return Refusal{Code::kInvalid, "a tensor has at least one byte", {.tensor = asked.tensor}};
  const Wanted wanted{.tensor = asked.tensor, .size = asked.value, .replaced_pages = replaced_pages};
  if (std::optional<Refusal> refusal = CapacityRefusal(tables, job, wanted, pages_held)) return refusal;
  if (PieceCountOf(asked.value) <= kPiecesPerTensorMax) return std::nullopt;
  return Refusal{Code::kInvalid,
                 fmt::format("tensor {:#x} of {} is larger than {}: use several", asked.tensor,
                             FormatBytes(asked.value), FormatBytes(kPiecesPerTensorMax * kBlockSize)),
                 {.tensor = asked.tensor, .requested = asked.value, .limit = kPiecesPerTensorMax * kBlockSize}};
}

}  // namespace

uint64_t MetadataOf(std::span<const RequestItem> items) {
  uint64_t bytes = 0;
  for (const RequestItem& item : items) {
    bytes += TensorCost(PieceCountOf(item.value)) + LeaseCost(true, PieceCountOf(item.value));
  }
  return bytes;
}

std::optional<RefusedItem> CheckNewTensors(Tables& tables, JobState& job, const NewTensors& wanted) {
  tables.scratch.items.clear();
  const uint64_t held = job.record.counters.tensor_count;
  if (held - wanted.replaced + wanted.items.size() > tables.options.tensors_per_job_max) {
    return RefusedItem{{Code::kNoMemory,
                        fmt::format("the job has {} tensors, at most {}", held, tables.options.tensors_per_job_max),
                        {.requested = wanted.items.size(), .limit = tables.options.tensors_per_job_max}}};
  }
  uint64_t pages = job.pages.logical() - wanted.replaced_pages;
  for (const RequestItem& asked : wanted.items) {
    const size_t index = tables.scratch.items.size();
    if (auto refusal = RefusalOfNew(tables, job, asked, pages, wanted.replaced_pages)) {
      return RefusedItem{*std::move(refusal), index};
    }
    WaitItem item{.id = asked.tensor};
    if (!SetRange(asked, asked.value, &item)) return RefusedItem{BadRange(asked, asked.value), index};
    tables.scratch.items.push_back(item);
    pages += PagesFor(asked.value);
  }
  return std::nullopt;
}

std::optional<RefusedItem> AddTensors(Tables& tables, SessionState& session, uint32_t flags,
                                      std::span<const RequestItem> items) {
  JobState& job = *session.job;
  const uint64_t space = (flags & proto::kFlagShared) != 0 ? 0 : static_cast<uint64_t>(session.id);
  for (size_t i = 0; i < tables.scratch.items.size(); ++i) {
    const RequestItem& asked = items[i];
    const TensorIndex present = tables.names.Find({job.index, space, asked.tensor});
    if (present == kNoTensor) {
      tables.scratch.items[i].tensor = tables.RefOf(AddTensor(tables, job,
                                                              {.space = space,
                                                               .id = asked.tensor,
                                                               .size = asked.value,
                                                               .creator = &session,
                                                               .sharded = (flags & proto::kFlagSharded) != 0,
                                                               .transient = (flags & proto::kFlagTransient) != 0}));
      continue;
    }
    Refusal refusal = ExistsRefusal(tables.tensors[present], asked.value);
    for (size_t added = 0; added < i; ++added) Detach(tables, tables.scratch.items[added].tensor.index);
    return RefusedItem{std::move(refusal), i};
  }
  return std::nullopt;
}

bool TryReserveNow(Tables& tables, const Ask& ask) {
  AddPieces(tables, ask);
  if (tables.waits.anybody_waits_for_room(*ask.session->job) || !LeasesFit(tables, ask)) return false;
  if (AwaitsPlace(tables, ask) && ReserveInPlace(tables, ask)) return true;
  return Reserve(tables, ask, true) == Reserved::kAll && CheckConflicts(tables, ask).outcome == ConflictOutcome::kReady;
}

void ReleaseUnused(Tables& tables, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (tables.PieceOf(tensor, k).has(kReserved) && Pin(tables, tables.tensors.PieceOf(tensor, k)))
        Unpin(tables, tables.tensors.PieceOf(tensor, k));
    }
  }
}

}  // namespace tier::tiering
