// Creation: the tensors that a create asks for, and room for them at once. Engine thread only.
#pragma once

#include <optional>
#include <span>

#include "daemon/tiering/leases/conflicts.h"

namespace tier::tiering {

// Why a create is refused, and the item that this is about.
struct RefusedItem {
  Refusal refusal;
  uint64_t item = 0;
};

struct NewTensors {
  std::span<const proto::RequestItem> items;
  uint64_t replaced = 0;        // Tensors whose place one of these takes.
  uint64_t replaced_pages = 0;  // Of these.
};
// What they add to their user's metadata.
uint64_t MetadataOf(std::span<const proto::RequestItem> items);
// Puts the ranges of the items into tables.scratch.items. None: the job may have such tensors.
std::optional<RefusedItem> CheckNewTensors(Tables& tables, JobState& job, const NewTensors& wanted);
// Adds the tensors of tables.scratch.items, whose ranges these are. On a duplicate none of them is there afterwards.
std::optional<RefusedItem> AddTensors(Tables& tables, SessionState& session, uint32_t flags,
                                      std::span<const proto::RequestItem> items);
// Room for what a create asks for, at once: with it the create can be granted.
bool TryReserveNow(Tables& tables, const Ask& ask);
// Pieces that were given room but are not waited for after all lose it again.
void ReleaseUnused(Tables& tables, const Ask& ask);

}  // namespace tier::tiering
