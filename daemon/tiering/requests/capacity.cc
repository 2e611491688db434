// See capacity.h.
#include "daemon/tiering/requests/capacity.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

uint64_t CapacityOf(const Tables& tables, const JobState& job) {
  const storage::DeviceSpace space = tables.ports.extents.total();
  return tables.ledger.FirmBytes(job.entitlement) + space.capacity - space.quarantined;
}

}  // namespace

Refusal ExistsRefusal(const Tensor& present, uint64_t requested_bytes) {
  return {Code::kAlreadyExists,
          fmt::format("tensor {:#x} exists, of {} bytes{}; free it first, or acquire it for writing", present.id,
                      present.size, present.has(kVisible) ? "" : ", still being created"),
          {.tensor = present.id, .requested = requested_bytes, .limit = present.size}};
}

std::optional<Refusal> QueueRefusal(const Tables& tables, const JobState& job, const Wanted& wanted) {
  const uint64_t capacity = CapacityOf(tables, job);
  const uint64_t waiting = job.pages.unnamed() * kPageSize;
  if (waiting + AlignUp(wanted.size, kPageSize) <= capacity) return std::nullopt;
  return Refusal{Code::kTimeout,
                 fmt::format("tensors of {} wait to replace others of the job already, which may hold {} in all: try "
                             "again when some of them have",
                             FormatBytes(waiting), FormatBytes(capacity)),
                 {.tensor = wanted.tensor,
                  .requested = wanted.size,
                  .available = capacity - std::min(capacity, waiting),
                  .limit = capacity}};
}

std::optional<Refusal> CapacityRefusal(const Tables& tables, const JobState& job, const Wanted& wanted,
                                       uint64_t pages_held) {
  const storage::DeviceSpace space = tables.ports.extents.total();
  const uint64_t ram = tables.ledger.FirmBytes(job.entitlement);
  const uint64_t capacity = CapacityOf(tables, job);
  const uint64_t held = pages_held * kPageSize;
  if (wanted.size <= capacity && held + AlignUp(wanted.size, kPageSize) <= capacity) return std::nullopt;
  return Refusal{Code::kNoSpace,
                 fmt::format("tensor {:#x} of {} does not fit: the job may hold {} in RAM, SSD devices hold {}, its "
                             "tensors take {} of both",
                             wanted.tensor, FormatBytes(wanted.size), FormatBytes(ram), FormatBytes(space.capacity),
                             FormatBytes(held)),
                 {.tensor = wanted.tensor,
                  .requested = wanted.size,
                  .available = capacity - std::min(capacity, held),
                  .limit = capacity}};
}

}  // namespace tier::tiering
