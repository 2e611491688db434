// See update_table.h.
#include "daemon/tiering/tables/update_table.h"

#include <algorithm>
#include <utility>

#include "daemon/tiering/tables/job_table.h"
#include "daemon/tiering/tables/metadata_budget.h"

namespace tier::tiering {

static_assert(sizeof(Update) <= kUpdateSizeMax);

UpdateSlot UpdateTable::Find(TensorSlot tensor, uint16_t session) const {
  UpdateSlot slot = FirstOf(tensor);
  while (slot != kNoUpdate && !(updates_[slot].open && updates_[slot].session == session)) {
    slot = updates_[slot].next_of_tensor;
  }
  return slot;
}

UpdateSlot UpdateTable::FindBroken(TensorSlot tensor) const {
  UpdateSlot slot = FirstOf(tensor);
  while (slot != kNoUpdate && updates_[slot].open) slot = updates_[slot].next_of_tensor;
  return slot;
}

UpdateSlot UpdateTable::Add(TensorSlot tensor_slot) {
  const UpdateSlot slot = updates_.Allocate();
  Update& update = updates_.Edit(slot);
  Tensor& tensor = tensors_.Edit(tensor_slot);
  update = Update{};
  update.tensor = tensor_slot;
  sets_.Reset(&update.changed, tensor.piece_count);
  sets_.Reset(&update.swapped, tensor.piece_count);
  update.next_of_tensor = tensor.updates;
  if (tensor.updates != kNoUpdate) updates_.Edit(tensor.updates).previous_of_tensor = slot;
  tensor.updates = slot;
  jobs_.At(tensor.job).metadata->Charge(MetadataKind::kUpdates, UpdateCost(tensor.piece_count));
  return slot;
}

UpdateTable::OfSession& UpdateTable::At(uint16_t session) {
  if (session >= sessions_.size()) sessions_.resize(size_t{session} + 1);
  return sessions_[session];
}

void UpdateTable::LinkToSession(UpdateSlot slot, uint16_t session) {
  OfSession& all = At(session);
  Update& update = updates_.Edit(slot);
  update.session = session;
  update.open = true;
  update.step = all.step;
  update.next_of_session = all.head;
  update.previous_of_session = kNoUpdate;
  (all.head == kNoUpdate ? all.tail : updates_.Edit(all.head).previous_of_session) = slot;
  all.head = slot;
}

void UpdateTable::UnlinkFromSession(UpdateSlot slot) {
  Update& update = updates_.Edit(slot);
  OfSession& all = sessions_[update.session];
  (update.next_of_session == kNoUpdate ? all.tail : updates_.Edit(update.next_of_session).previous_of_session) =
      update.previous_of_session;
  (update.previous_of_session == kNoUpdate ? all.head : updates_.Edit(update.previous_of_session).next_of_session) =
      update.next_of_session;
  update.open = false;
  if (all.head == kNoUpdate && std::exchange(all.ending, false)) --ending_sessions_;
}

// What was changed in an earlier step is finished: it belongs to the present one, with its swap_out or for what comes.
void UpdateTable::Refresh(UpdateSlot slot) {
  Update& update = updates_.Edit(slot);
  const uint16_t session = update.session;
  if (update.step == sessions_[session].step) return;
  sets_.Reset(&update.changed, tensors_[update.tensor].piece_count);
  update.commit = 0;
  UnlinkFromSession(slot);
  LinkToSession(slot, session);
}

void UpdateTable::EndStep(uint16_t session) {
  OfSession& all = At(session);
  ++all.step;
  if (all.tail == kNoUpdate || all.settling) return;
  all.settling = true;
  settling_.push_back(session);
}

bool UpdateTable::SettleOne() {
  while (!settling_.empty()) {
    OfSession& all = sessions_[settling_.front()];
    const UpdateSlot oldest = all.ending ? kNoUpdate : all.tail;
    if (oldest != kNoUpdate && updates_[oldest].step != all.step) {
      Refresh(oldest);
      RemoveIfEmpty(oldest);
      return true;
    }
    all.settling = false;
    settling_.pop_front();
  }
  return false;
}

void UpdateTable::BeginEnding(uint16_t session) {
  OfSession& all = At(session);
  if (all.head != kNoUpdate && !std::exchange(all.ending, true)) ++ending_sessions_;
}

UpdateSlot UpdateTable::Open(TensorSlot tensor, uint16_t session) {
  const UpdateSlot found = Find(tensor, session);
  if (found != kNoUpdate) return found;
  const UpdateSlot slot = Add(tensor);
  LinkToSession(slot, session);
  return slot;
}

void UpdateTable::AddChanged(UpdateSlot slot, PieceRange pieces) {
  Update& update = updates_.Edit(slot);
  TIER_CHECK(update.open, "update {} is not open", static_cast<uint32_t>(slot));
  Refresh(slot);
  for (uint32_t k = pieces.first; k < pieces.end(); ++k) sets_.Add(&update.changed, k);
  update.commit = 0;
}

void UpdateTable::AddSwapped(UpdateSlot slot, PieceRange range, PieceRange pieces) {
  Update& update = updates_.Edit(slot);
  TIER_CHECK(update.open && (!update.swapping() || update.swap == range), "update {} swaps {} + {}",
             static_cast<uint32_t>(slot), update.swap.first, update.swap.count);
  if (!update.swapping()) ++sessions_[update.session].swaps;
  update.swap = range;
  tensors_.Edit(update.tensor).set(kSwapping);
  for (uint32_t k = pieces.first; k < pieces.end(); ++k) sets_.Add(&update.swapped, k);
}

void UpdateTable::ClearSwap(UpdateSlot slot) {
  Update& update = updates_.Edit(slot);
  if (!update.swapping()) return;
  Tensor& tensor = tensors_.Edit(update.tensor);
  --sessions_[update.session].swaps;
  update.swap = {};
  sets_.Reset(&update.swapped, tensor.piece_count);
  bool others = false;
  for (UpdateSlot each = tensor.updates; each != kNoUpdate; each = updates_[each].next_of_tensor) {
    others |= updates_[each].swapping();
  }
  if (!others) tensor.clear(kSwapping);
}

void UpdateTable::EndSwap(UpdateSlot slot) {
  ClearSwap(slot);
  RemoveIfEmpty(slot);
}

void UpdateTable::EndChanged(UpdateSlot slot) {
  Update& update = updates_.Edit(slot);
  TIER_CHECK(update.open, "update {} is not open", static_cast<uint32_t>(slot));
  sets_.Reset(&update.changed, tensors_[update.tensor].piece_count);
  update.commit = 0;
  RemoveIfEmpty(slot);
}

void UpdateTable::RemoveIfEmpty(UpdateSlot slot) {
  if (updates_[slot].changed.empty() && !updates_[slot].swapping()) Remove(slot);
}

void UpdateTable::Remove(UpdateSlot slot) {
  Update& update = updates_.Edit(slot);
  const Tensor& tensor = tensors_[update.tensor];
  jobs_.At(tensor.job).metadata->Release(MetadataKind::kUpdates, UpdateCost(tensor.piece_count));
  ClearSwap(slot);
  if (update.open) UnlinkFromSession(slot);
  if (update.next_of_tensor != kNoUpdate)
    updates_.Edit(update.next_of_tensor).previous_of_tensor = update.previous_of_tensor;
  (update.previous_of_tensor == kNoUpdate ? tensors_.Edit(update.tensor).updates
                                          : updates_.Edit(update.previous_of_tensor).next_of_tensor) =
      update.next_of_tensor;
  sets_.Reset(&update.changed, 0);
  sets_.Reset(&update.swapped, 0);
  update = Update{};
  updates_.Free(slot);
}

bool UpdateTable::AddTorn(TensorSlot tensor, PieceRange pieces) {
  const UpdateSlot found = FindBroken(tensor);
  const UpdateSlot slot = found == kNoUpdate ? Add(tensor) : found;
  Update& update = updates_.Edit(slot);
  TIER_CHECK(!pieces.empty(), "nothing of tensor {} is torn", tensors_[tensor].id);
  const uint32_t first = found == kNoUpdate ? pieces.first : std::min(update.torn.first, pieces.first);
  const uint32_t end = found == kNoUpdate ? pieces.end() : std::max(update.torn.end(), pieces.end());
  update.torn = {first, end - first};
  sets_.Reset(&update.changed, tensors_[tensor].piece_count);
  return found == kNoUpdate;
}

bool UpdateTable::AddRewritten(UpdateSlot slot, PieceRange pieces) {
  Update& update = updates_.Edit(slot);
  TIER_CHECK(!update.open, "update {} is open", static_cast<uint32_t>(slot));
  for (uint32_t k = std::max(pieces.first, update.torn.first); k < std::min(pieces.end(), update.torn.end()); ++k) {
    sets_.Add(&update.changed, k);
  }
  if (update.changed.count != update.torn.count) return false;
  Remove(slot);
  return true;
}

void UpdateTable::CheckInvariants() const {
  uint32_t linked = 0;
  for (uint32_t i = 0; i < updates_.capacity(); ++i) {
    const Update& update = updates_[UpdateSlot{i}];
    if (update.tensor == kNoTensor) continue;
    ++linked;
    const Tensor& tensor = tensors_[update.tensor];
    const uint32_t pieces = tensor.piece_count;
    TIER_CHECK(update.changed.capacity == pieces && update.swap.end() <= pieces && update.torn.end() <= pieces,
               "update {} of a tensor of {} pieces", i, pieces);
    TIER_CHECK(!update.swapping() || (update.open && tensor.has(kSwapping) && !update.swapped.empty()),
               "update {} has swapped {} pieces", i, update.swapped.count);
    if (update.open) {
      TIER_CHECK(Find(update.tensor, update.session) == UpdateSlot{i}, "update {} of session slot {}", i,
                 update.session);
      TIER_CHECK(update.changed.count < pieces && (update.swapping() || !update.changed.empty()),
                 "update {} has changed {} of {} pieces", i, update.changed.count, pieces);
    } else {
      TIER_CHECK(FindBroken(update.tensor) == UpdateSlot{i} && update.changed.count < update.torn.count,
                 "update {}: {} of {} pieces are rewritten", i, update.changed.count, update.torn.count);
    }
  }
  TIER_CHECK(linked == updates_.used(), "{} updates of {}", linked, updates_.used());
  const auto ending = std::ranges::count_if(sessions_, [](const OfSession& session) { return session.ending; });
  TIER_CHECK(ending == ending_sessions_, "{} sessions end, not {}", ending, ending_sessions_);
  for (const OfSession& session : sessions_) {
    uint32_t swaps = 0;
    uint32_t step = session.step;
    UpdateSlot last = kNoUpdate;
    for (UpdateSlot slot = session.head; slot != kNoUpdate; slot = updates_[slot].next_of_session) {
      swaps += updates_[slot].swapping() ? 1 : 0;
      TIER_CHECK(updates_[slot].step <= step && updates_[slot].previous_of_session == last, "step {} behind {}",
                 updates_[slot].step, step);
      step = updates_[slot].step;
      last = slot;
    }
    TIER_CHECK(session.tail == last && (step == session.step || session.settling || session.ending),
               "records of step {} of {} are not settled", step, session.step);
    TIER_CHECK(swaps == session.swaps, "{} unfinished swap_outs of {}", swaps, session.swaps);
  }
}

}  // namespace tier::tiering
