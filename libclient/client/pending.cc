#include "libclient/client/pending.h"

#include <string_view>

namespace tier::client {

Status Pending::ToStatus() const {
  if (code() == Code::kOk) return {};
  const char* text = reinterpret_cast<const char*>(answer_.data() + 1);
  std::string detail(header().detail_length > 0 ? std::string_view(text, header().detail_length) : std::string_view());
  if (detail.empty()) detail = std::string("the daemon answered ").append(CodeName(code())) + " without a reason";
  return Fail(code(), std::move(detail));
}

Result<proto::TensorRecord> Pending::Tensor() const {
  if (auto answer = ToStatus(); !answer) return std::unexpected(answer.error());
  return *reinterpret_cast<const proto::TensorRecord*>(&answer_.front().first);
}

PendingTable::PendingTable() : entries_(kEntries) {}

void PendingTable::Insert(uint64_t sequence, Pending* pending) {
  uint32_t at = Home(sequence);
  while (entries_[at].sequence != 0) at = (at + 1) & (kEntries - 1);
  entries_[at] = {sequence, pending};
  ++count_;
}

Pending* PendingTable::Take(uint64_t sequence) {
  if (sequence == 0) return nullptr;
  for (uint32_t at = Home(sequence); entries_[at].sequence != 0; at = (at + 1) & (kEntries - 1)) {
    if (entries_[at].sequence != sequence) continue;
    Pending* const found = entries_[at].pending;
    CloseGap(at);
    --count_;
    return found;
  }
  return nullptr;
}

// Moves later entries of the same run back, so that no search stops early at the emptied entry.
void PendingTable::CloseGap(uint32_t gap) {
  for (uint32_t at = (gap + 1) & (kEntries - 1); entries_[at].sequence != 0; at = (at + 1) & (kEntries - 1)) {
    const uint32_t from_home = (at - Home(entries_[at].sequence)) & (kEntries - 1);
    const uint32_t from_gap = (at - gap) & (kEntries - 1);
    if (from_home < from_gap) continue;
    entries_[gap] = entries_[at];
    gap = at;
  }
  entries_[gap] = {};
}

}  // namespace tier::client
