// See update_table.h.
#include "daemon/tiering/tables/update_table.h"

#include <algorithm>
#include <utility>

#include "daemon/tiering/tables/job_table.h"
#include "daemon/tiering/tables/metadata_budget.h"

namespace tier::tiering {

static_assert(sizeof(Update) <= kUpdateSizeMax);

UpdateIndex UpdateTable::Find(TensorIndex tensor, uint16_t session) const {
  UpdateIndex index = FirstOf(tensor);
  while (index != kNoUpdate && !(updates_[index].open && updates_[index].session == session)) {
    index = updates_[index].next_of_tensor;
  }
  return index;
}

UpdateIndex UpdateTable::FindBroken(TensorIndex tensor) const {
  UpdateIndex index = FirstOf(tensor);
  while (index != kNoUpdate && updates_[index].torn.empty()) index = updates_[index].next_of_tensor;
  return index;
}

UpdateIndex UpdateTable::FindLeft(TensorIndex tensor) const {
  UpdateIndex index = FirstOf(tensor);
  while (index != kNoUpdate && (updates_[index].open || updates_[index].shard.empty())) {
    index = updates_[index].next_of_tensor;
  }
  return index;
}

bool UpdateTable::InStep(TensorIndex tensor) const {
  const Shard* first = nullptr;
  for (UpdateIndex index = FirstOf(tensor); index != kNoUpdate; index = updates_[index].next_of_tensor) {
    const Shard& shard = updates_[index].shard;
    if (shard.empty()) continue;
    if (first != nullptr && shard.number != first->number) return false;
    first = &shard;
  }
  return true;
}

UpdateIndex UpdateTable::Add(TensorIndex tensor_index) {
  const UpdateIndex index = updates_.Allocate();
  Update& update = updates_.Edit(index);
  Tensor& tensor = tensors_.Edit(tensor_index);
  update = Update{};
  update.tensor = tensor_index;
  sets_.Reset(&update.changed, tensor.piece_count);
  sets_.Reset(&update.swapped, tensor.piece_count);
  update.next_of_tensor = tensor.updates;
  if (tensor.updates != kNoUpdate) updates_.Edit(tensor.updates).previous_of_tensor = index;
  tensor.updates = index;
  jobs_.At(tensor.job).metadata->Charge(MetadataKind::kUpdates, UpdateCost(tensor.piece_count));
  return index;
}

UpdateTable::OfSession& UpdateTable::At(uint16_t session) {
  if (session >= sessions_.size()) sessions_.resize(size_t{session} + 1);
  return sessions_[session];
}

void UpdateTable::LinkToSession(UpdateIndex index, uint16_t session) {
  OfSession& all = At(session);
  Update& update = updates_.Edit(index);
  update.session = session;
  update.open = true;
  update.step = all.step;
  update.next_of_session = all.head;
  update.previous_of_session = kNoUpdate;
  if (all.head != kNoUpdate) updates_.Edit(all.head).previous_of_session = index;
  all.head = index;
  if (all.oldest == kNoUpdate) all.oldest = index;
}

void UpdateTable::UnlinkFromSession(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  OfSession& all = sessions_[update.session];
  if (all.oldest == index) all.oldest = update.previous_of_session;
  if (update.next_of_session != kNoUpdate)
    updates_.Edit(update.next_of_session).previous_of_session = update.previous_of_session;
  (update.previous_of_session == kNoUpdate ? all.head : updates_.Edit(update.previous_of_session).next_of_session) =
      update.next_of_session;
  update.open = false;
  if (all.head == kNoUpdate && std::exchange(all.ending, false)) --ending_sessions_;
}

void UpdateTable::ClearChanged(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  sets_.Reset(&update.changed, tensors_[update.tensor].piece_count);
  update.commit = 0;
}

// What was changed in an earlier step is finished: the record belongs to the present one, for what comes.
void UpdateTable::Refresh(UpdateIndex index) {
  const uint16_t session = updates_[index].session;
  if (updates_[index].step == sessions_[session].step) return;
  ClearChanged(index);
  UnlinkFromSession(index);
  LinkToSession(index, session);
}

void UpdateTable::EndStep(uint16_t session) {
  OfSession& all = At(session);
  ++all.step;
  if (all.oldest == kNoUpdate || all.settling) return;
  all.settling = true;
  settling_.push_back(session);
}

bool UpdateTable::SettleOne() {
  while (!settling_.empty()) {
    OfSession& all = sessions_[settling_.front()];
    const UpdateIndex oldest = all.ending ? kNoUpdate : all.oldest;
    if (oldest != kNoUpdate && updates_[oldest].step != all.step) {
      // One that stays is not moved: it would be settled again after every step.
      all.oldest = updates_[oldest].previous_of_session;
      ClearChanged(oldest);
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

UpdateIndex UpdateTable::Open(TensorIndex tensor, uint16_t session) {
  const UpdateIndex found = Find(tensor, session);
  if (found != kNoUpdate) return found;
  const UpdateIndex index = Add(tensor);
  LinkToSession(index, session);
  return index;
}

void UpdateTable::AddChanged(UpdateIndex index, PieceRange pieces) {
  Update& update = updates_.Edit(index);
  TIER_CHECK(update.open, "update {} is not open", static_cast<uint32_t>(index));
  Refresh(index);
  for (uint32_t k = pieces.first; k < pieces.end(); ++k) sets_.Add(&update.changed, k);
  update.commit = 0;
}

void UpdateTable::AddSwapped(UpdateIndex index, PieceRange range, PieceRange pieces) {
  Update& update = updates_.Edit(index);
  TIER_CHECK(update.open && (!update.swapping() || update.swap == range), "update {} swaps {} + {}",
             static_cast<uint32_t>(index), update.swap.first, update.swap.count);
  if (!update.swapping()) ++sessions_[update.session].swaps;
  update.swap = range;
  tensors_.Edit(update.tensor).set(kSwapping);
  for (uint32_t k = pieces.first; k < pieces.end(); ++k) sets_.Add(&update.swapped, k);
}

void UpdateTable::ClearSwap(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  if (!update.swapping()) return;
  Tensor& tensor = tensors_.Edit(update.tensor);
  --sessions_[update.session].swaps;
  update.swap = {};
  sets_.Reset(&update.swapped, tensor.piece_count);
  bool others = false;
  for (UpdateIndex each = tensor.updates; each != kNoUpdate; each = updates_[each].next_of_tensor) {
    others |= updates_[each].swapping();
  }
  if (!others) tensor.clear(kSwapping);
}

void UpdateTable::EndSwap(UpdateIndex index) {
  ClearSwap(index);
  RemoveIfEmpty(index);
}

void UpdateTable::EndChanged(UpdateIndex index) {
  TIER_CHECK(updates_[index].open, "update {} is not open", static_cast<uint32_t>(index));
  ClearChanged(index);
  RemoveIfEmpty(index);
}

void UpdateTable::EndBoth(UpdateIndex index) {
  ClearSwap(index);
  EndChanged(index);
}

// What the shard loses in its middle it keeps: then it says too much, never too little.
void UpdateTable::CutShard(UpdateIndex index, IntervalSet::Interval bytes) {
  Shard& shard = updates_.Edit(index).shard;
  auto& [begin, end] = shard.bytes;
  if (shard.empty()) return;
  if (bytes.begin <= begin) begin = std::max(begin, std::min(bytes.end, end));
  if (bytes.end >= end) end = std::min(end, std::max(bytes.begin, begin));
  if (!shard.empty()) return;
  shard = {};
  RemoveIfEmpty(index);
}

uint32_t UpdateTable::AddToShard(UpdateIndex index, uint64_t number, IntervalSet::Interval bytes) {
  Update& update = updates_.Edit(index);
  TIER_CHECK(update.open && tensors_[update.tensor].has(kSharded) && bytes.begin < bytes.end,
             "update {} of bytes {} to {}", static_cast<uint32_t>(index), bytes.begin, bytes.end);
  const bool more = !update.shard.empty();
  update.shard = {.number = number,
                  .bytes = {.begin = more ? std::min(update.shard.bytes.begin, bytes.begin) : bytes.begin,
                            .end = more ? std::max(update.shard.bytes.end, bytes.end) : bytes.end}};
  uint32_t count = 0;
  for (UpdateIndex each = FirstOf(update.tensor); each != kNoUpdate; ++count) {
    const UpdateIndex next = updates_[each].next_of_tensor;
    if (each != index) CutShard(each, bytes);
    each = next;
  }
  return count;
}

void UpdateTable::ClearShards(TensorIndex tensor) {
  for (UpdateIndex each = FirstOf(tensor); each != kNoUpdate;) {
    const UpdateIndex next = updates_[each].next_of_tensor;
    if (!updates_[each].shard.empty()) {
      updates_.Edit(each).shard = {};
      RemoveIfEmpty(each);
    }
    each = next;
  }
}

void UpdateTable::Leave(UpdateIndex index) {
  const Update& update = updates_[index];
  TIER_CHECK(update.open && (update.shard.empty() || InStep(update.tensor)), "update {} ends in step {}",
             static_cast<uint32_t>(index), update.shard.number);
  if (update.shard.empty()) return Remove(index);
  const UpdateIndex left = FindLeft(update.tensor);
  if (left == kNoUpdate) {
    ClearSwap(index);
    ClearChanged(index);
    return UnlinkFromSession(index);
  }
  auto& [begin, end] = updates_.Edit(left).shard.bytes;
  begin = std::min(begin, update.shard.bytes.begin);
  end = std::max(end, update.shard.bytes.end);
  Remove(index);
}

void UpdateTable::RemoveIfEmpty(UpdateIndex index) {
  const Update& update = updates_[index];
  if (update.changed.empty() && !update.swapping() && update.shard.empty()) Remove(index);
}

void UpdateTable::Remove(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  const Tensor& tensor = tensors_[update.tensor];
  jobs_.At(tensor.job).metadata->Release(MetadataKind::kUpdates, UpdateCost(tensor.piece_count));
  ClearSwap(index);
  if (update.open) UnlinkFromSession(index);
  if (update.next_of_tensor != kNoUpdate)
    updates_.Edit(update.next_of_tensor).previous_of_tensor = update.previous_of_tensor;
  (update.previous_of_tensor == kNoUpdate ? tensors_.Edit(update.tensor).updates
                                          : updates_.Edit(update.previous_of_tensor).next_of_tensor) =
      update.next_of_tensor;
  sets_.Reset(&update.changed, 0);
  sets_.Reset(&update.swapped, 0);
  update = Update{};
  updates_.Free(index);
}

bool UpdateTable::AddTorn(TensorIndex tensor, PieceRange pieces) {
  const UpdateIndex found = FindBroken(tensor);
  const UpdateIndex index = found == kNoUpdate ? Add(tensor) : found;
  Update& update = updates_.Edit(index);
  TIER_CHECK(!pieces.empty(), "nothing of tensor {} is torn", tensors_[tensor].id);
  const uint32_t first = found == kNoUpdate ? pieces.first : std::min(update.torn.first, pieces.first);
  const uint32_t end = found == kNoUpdate ? pieces.end() : std::max(update.torn.end(), pieces.end());
  update.torn = {first, end - first};
  sets_.Reset(&update.changed, tensors_[tensor].piece_count);
  return found == kNoUpdate;
}

bool UpdateTable::AddRewritten(UpdateIndex index, PieceRange pieces) {
  Update& update = updates_.Edit(index);
  TIER_CHECK(!update.open, "update {} is open", static_cast<uint32_t>(index));
  for (uint32_t k = std::max(pieces.first, update.torn.first); k < std::min(pieces.end(), update.torn.end()); ++k) {
    sets_.Add(&update.changed, k);
  }
  if (update.changed.count != update.torn.count) return false;
  Remove(index);
  return true;
}

void UpdateTable::CheckRecord(UpdateIndex index) const {
  const Update& update = updates_[index];
  const auto number = static_cast<uint32_t>(index);
  const Tensor& tensor = tensors_[update.tensor];
  const uint32_t pieces = tensor.piece_count;
  TIER_CHECK(update.changed.capacity == pieces && update.swap.end() <= pieces && update.torn.end() <= pieces,
             "update {} of a tensor of {} pieces", number, pieces);
  TIER_CHECK(!update.swapping() || (update.open && tensor.has(kSwapping) && !update.swapped.empty()),
             "update {} has swapped {} pieces", number, update.swapped.count);
  const auto& [begin, end] = update.shard.bytes;
  TIER_CHECK(begin <= end && end <= tensor.size && (update.shard.empty() || tensor.has(kSharded)),
             "update {} has bytes {} to {} of {}", number, begin, end, tensor.size);
  if (update.open) {
    TIER_CHECK(Find(update.tensor, update.session) == index, "update {} of session index {}", number, update.session);
    TIER_CHECK(update.changed.count < pieces && (update.swapping() || !update.changed.empty() || !update.shard.empty()),
               "update {} has changed {} of {} pieces", number, update.changed.count, pieces);
  } else if (!update.torn.empty()) {
    TIER_CHECK(FindBroken(update.tensor) == index && update.changed.count < update.torn.count && update.shard.empty(),
               "update {}: {} of {} pieces are rewritten", number, update.changed.count, update.torn.count);
  } else {
    TIER_CHECK(FindLeft(update.tensor) == index && update.changed.empty(), "update {} is nobody's", number);
  }
}

void UpdateTable::CheckSession(const OfSession& session) const {
  uint32_t swaps = 0;
  uint32_t step = session.step;
  UpdateIndex last = kNoUpdate;
  bool settled = session.oldest == kNoUpdate;
  for (UpdateIndex index = session.head; index != kNoUpdate; index = updates_[index].next_of_session) {
    const Update& update = updates_[index];
    swaps += update.swapping() ? 1 : 0;
    TIER_CHECK(update.step <= step && update.previous_of_session == last, "step {} behind {}", update.step, step);
    TIER_CHECK(!settled || update.changed.empty(), "{} changed pieces are settled", update.changed.count);
    settled |= index == session.oldest;
    step = update.step;
    last = index;
  }
  TIER_CHECK(settled, "the oldest record, {}, is not in its list", static_cast<uint32_t>(session.oldest));
  const uint32_t oldest = session.oldest == kNoUpdate ? session.step : updates_[session.oldest].step;
  TIER_CHECK(oldest == session.step || session.settling || session.ending, "records of step {} of {} are not settled",
             oldest, session.step);
  TIER_CHECK(swaps == session.swaps, "{} unfinished swap_outs of {}", swaps, session.swaps);
}

void UpdateTable::CheckInvariants() const {
  uint32_t linked = 0;
  for (uint32_t i = 0; i < updates_.capacity(); ++i) {
    if (updates_[UpdateIndex{i}].tensor == kNoTensor) continue;
    ++linked;
    CheckRecord(UpdateIndex{i});
  }
  TIER_CHECK(linked == updates_.used(), "{} updates of {}", linked, updates_.used());
  const auto ending = std::ranges::count_if(sessions_, [](const OfSession& session) { return session.ending; });
  TIER_CHECK(ending == ending_sessions_, "{} sessions end, not {}", ending, ending_sessions_);
  for (const OfSession& session : sessions_) CheckSession(session);
}

}  // namespace tier::tiering
