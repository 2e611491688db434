#include "libclient/client/pending.h"

#include <string_view>

namespace tier::client {

Status Pending::ToStatus() const {
  if (code() == Code::kOk) return {};
  const char* text = reinterpret_cast<const char*>(slots_.data() + 1);
  std::string detail(header().detail_length > 0 ? std::string_view(text, header().detail_length) : std::string_view());
  if (detail.empty()) detail = std::string("the daemon answered ").append(CodeName(code())) + " without a reason";
  return Fail(code(), std::move(detail));
}

PendingTable::PendingTable() : entries_(kSlots) {}

void PendingTable::Insert(uint64_t sequence, Pending* pending) {
  uint32_t at = Home(sequence);
  while (entries_[at].sequence != 0) at = (at + 1) & (kSlots - 1);
  entries_[at] = {sequence, pending};
}

Pending* PendingTable::Take(uint64_t sequence) {
  if (sequence == 0) return nullptr;
  for (uint32_t at = Home(sequence); entries_[at].sequence != 0; at = (at + 1) & (kSlots - 1)) {
    if (entries_[at].sequence != sequence) continue;
    Pending* const found = entries_[at].pending;
    CloseGap(at);
    return found;
  }
  return nullptr;
}

// Moves later entries of the same run back, so that no search stops early at the emptied slot.
void PendingTable::CloseGap(uint32_t gap) {
  for (uint32_t at = (gap + 1) & (kSlots - 1); entries_[at].sequence != 0; at = (at + 1) & (kSlots - 1)) {
    const uint32_t from_home = (at - Home(entries_[at].sequence)) & (kSlots - 1);
    const uint32_t from_gap = (at - gap) & (kSlots - 1);
    if (from_home < from_gap) continue;
    entries_[gap] = entries_[at];
    gap = at;
  }
  entries_[gap] = {};
}

}  // namespace tier::client
