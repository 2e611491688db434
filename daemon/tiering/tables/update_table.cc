// See update_table.h.
#include "daemon/tiering/tables/update_table.h"

#include <algorithm>
#include <utility>

#include "daemon/tiering/tables/job_table.h"
#include "daemon/tiering/tables/metadata_budget.h"

namespace tier::tiering {

static_assert(sizeof(Update) <= kUpdateSizeMax && sizeof(UpdateList) <= kUpdateListSizeMax);

const UpdateList UpdateTable::kEmptyList;

uint64_t UpdateTable::HashOf(UpdateListIndex list, uint16_t session) const {
  uint64_t hash = (uint64_t{static_cast<uint32_t>(list)} << 16 | session) ^ seed_;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;  // MurmurHash3's finalizer.
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

UpdateIndex UpdateTable::Find(TensorIndex tensor, uint16_t session) const {
  const UpdateListIndex list = tensors_[tensor].updates;
  if (list == kNoUpdateList) return kNoUpdate;
  return open_.Find(HashOf(list, session), [&](UpdateIndex index) {
    ++visits_;
    return updates_[index].list == list && updates_[index].session == session;
  });
}

UpdateIndex UpdateTable::Add(TensorIndex tensor_index) {
  Tensor& tensor = tensors_.Edit(tensor_index);
  if (tensor.updates == kNoUpdateList) {
    tensor.updates = lists_.Allocate();
    lists_.Edit(tensor.updates) = {.tensor = tensor_index, .job = tensor.job, .piece_count = tensor.piece_count};
  }
  const UpdateIndex index = updates_.Allocate();
  Update& update = updates_.Edit(index);
  update = Update{};
  update.list = tensor.updates;
  update.clears = lists_[tensor.updates].clears;
  sets_.Reset(&update.changed, tensor.piece_count);
  sets_.Reset(&update.swapped, tensor.piece_count);
  LinkLast(index);
  ++lists_.Edit(tensor.updates).count;
  jobs_.At(tensor.job).metadata->Charge(MetadataKind::kUpdates, UpdateCost(tensor.piece_count));
  return index;
}

void UpdateTable::LinkFirst(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  UpdateList& list = lists_.Edit(update.list);
  update.previous_of_tensor = kNoUpdate;
  update.next_of_tensor = list.head;
  (list.head == kNoUpdate ? list.tail : updates_.Edit(list.head).previous_of_tensor) = index;
  list.head = index;
}

void UpdateTable::LinkLast(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  UpdateList& list = lists_.Edit(update.list);
  update.next_of_tensor = kNoUpdate;
  update.previous_of_tensor = list.tail;
  (list.tail == kNoUpdate ? list.head : updates_.Edit(list.tail).next_of_tensor) = index;
  list.tail = index;
}

void UpdateTable::Unlink(UpdateIndex index) {
  const Update& update = updates_[index];
  UpdateList& list = lists_.Edit(update.list);
  const UpdateIndex next = update.next_of_tensor;
  const UpdateIndex previous = update.previous_of_tensor;
  (next == kNoUpdate ? list.tail : updates_.Edit(next).previous_of_tensor) = previous;
  (previous == kNoUpdate ? list.head : updates_.Edit(previous).next_of_tensor) = next;
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
  if (all.head != kNoUpdate || !std::exchange(all.ending, false)) return;
  const uint16_t last = ending_.back();
  ending_[all.ending_at] = last;
  sessions_[last].ending_at = all.ending_at;
  ending_.pop_back();
}

// The record loses its session.
void UpdateTable::Close(UpdateIndex index) {
  open_.Remove(index, HashOf(index));
  UnlinkFromSession(index);
}

void UpdateTable::ClearChanged(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  sets_.Reset(&update.changed, lists_[update.list].piece_count);
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
  if (all.head == kNoUpdate || std::exchange(all.ending, true)) return;
  all.ending_at = static_cast<uint32_t>(ending_.size());
  ending_.push_back(session);
}

UpdateIndex UpdateTable::Open(TensorIndex tensor, uint16_t session) {
  const UpdateIndex found = Find(tensor, session);
  if (found != kNoUpdate) return found;
  const UpdateIndex index = Add(tensor);
  LinkToSession(index, session);
  open_.Add(index, HashOf(index), [&](UpdateIndex each) { return HashOf(each); });
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
  UpdateList& list = lists_.Edit(update.list);
  if (!update.swapping()) {
    ++sessions_[update.session].swaps;
    ++list.swaps;
    Unlink(index);
    LinkFirst(index);
    tensors_.Edit(list.tensor).set(kSwapping);
  }
  update.swap = range;
  for (uint32_t k = pieces.first; k < pieces.end(); ++k) sets_.Add(&update.swapped, k);
}

// Where the record is in its list the caller says.
void UpdateTable::DropSwap(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  if (!update.swapping()) return;
  UpdateList& list = lists_.Edit(update.list);
  --sessions_[update.session].swaps;
  update.swap = {};
  if (--list.swaps == 0 && !list.ended()) tensors_.Edit(list.tensor).clear(kSwapping);
}

void UpdateTable::ClearSwap(UpdateIndex index) {
  Update& update = updates_.Edit(index);
  if (!update.swapping()) return;
  DropSwap(index);
  sets_.Reset(&update.swapped, lists_[update.list].piece_count);
  Unlink(index);
  LinkLast(index);
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

void UpdateTable::DropShard(UpdateIndex index) {
  if (!HasShard(index)) return;
  UpdateList& list = lists_.Edit(updates_[index].list);
  updates_.Edit(index).shard = {};
  if (--list.shards == 0) list.in_step = true;
}

// What the shard loses in its middle it keeps: then it says too much, never too little.
void UpdateTable::CutShard(UpdateIndex index, IntervalSet::Interval bytes) {
  auto [begin, end] = updates_[index].shard.bytes;
  if (bytes.begin <= begin) begin = std::max(begin, std::min(bytes.end, end));
  if (bytes.end >= end) end = std::min(end, std::max(bytes.begin, begin));
  if (begin != end) {
    updates_.Edit(index).shard.bytes = {.begin = begin, .end = end};
    return;
  }
  DropShard(index);
  RemoveIfEmpty(index);
}

void UpdateTable::AddToShard(UpdateIndex index, uint64_t number, IntervalSet::Interval bytes) {
  Update& update = updates_.Edit(index);
  UpdateList& list = lists_.Edit(update.list);
  TIER_CHECK(update.open && tensors_[list.tensor].has(kSharded) && bytes.begin < bytes.end,
             "update {} of bytes {} to {}", static_cast<uint32_t>(index), bytes.begin, bytes.end);
  const bool more = HasShard(index);
  update.shard = {.number = number,
                  .bytes = {.begin = more ? std::min(update.shard.bytes.begin, bytes.begin) : bytes.begin,
                            .end = more ? std::max(update.shard.bytes.end, bytes.end) : bytes.end}};
  update.clears = list.clears;
  if (!more) ++list.shards;
  bool in_step = true;
  for (UpdateIndex each = list.shards == 1 ? kNoUpdate : list.head; each != kNoUpdate;) {
    ++visits_;
    const UpdateIndex next = updates_[each].next_of_tensor;
    if (each != index && HasShard(each)) {
      const bool same = updates_[each].shard.number == number;
      const uint32_t before = list.shards;
      CutShard(each, bytes);
      in_step &= same || list.shards != before;
    }
    each = next;
  }
  list.in_step = in_step;
}

void UpdateTable::ClearShards(TensorIndex tensor) {
  if (ListOf(tensor).shards == 0) return;
  UpdateList& list = lists_.Edit(tensors_[tensor].updates);
  ++list.clears;
  list.shards = 0;
  list.in_step = true;
  if (list.left != kNoUpdate) Remove(list.left);  // It has nothing else.
}

void UpdateTable::Leave(UpdateIndex index) {
  const Update& update = updates_[index];
  UpdateList& list = lists_.Edit(update.list);
  TIER_CHECK(update.open && (!HasShard(index) || list.in_step), "update {} ends in step {}",
             static_cast<uint32_t>(index), update.shard.number);
  if (!HasShard(index)) return Remove(index);
  if (list.left == kNoUpdate) {
    ClearSwap(index);
    ClearChanged(index);
    list.left = index;
    return Close(index);
  }
  auto& [begin, end] = updates_.Edit(list.left).shard.bytes;
  begin = std::min(begin, update.shard.bytes.begin);
  end = std::max(end, update.shard.bytes.end);
  Remove(index);
}

void UpdateTable::RemoveIfEmpty(UpdateIndex index) {
  const Update& update = updates_[index];
  const bool empty = update.changed.empty() && !update.swapping() && !HasShard(index);
  if (empty || lists_[update.list].ended()) Remove(index);
}

void UpdateTable::Remove(UpdateIndex index) {
  ++visits_;
  Update& update = updates_.Edit(index);
  const UpdateListIndex list_index = update.list;
  UpdateList& list = lists_.Edit(list_index);
  jobs_.At(list.job).metadata->Release(MetadataKind::kUpdates, UpdateCost(list.piece_count));
  DropSwap(index);
  DropShard(index);
  if (update.open) Close(index);
  Unlink(index);
  if (list.broken == index) list.broken = kNoUpdate;
  if (list.left == index) list.left = kNoUpdate;
  sets_.Reset(&update.changed, 0);
  sets_.Reset(&update.swapped, 0);
  update = Update{};
  updates_.Free(index);
  if (--list.count != 0 || list.ended()) return;
  tensors_.Edit(list.tensor).updates = kNoUpdateList;
  lists_.Free(list_index);
}

UpdateListIndex UpdateTable::EndList(TensorIndex tensor_index) {
  Tensor& tensor = tensors_.Edit(tensor_index);
  const UpdateListIndex index = std::exchange(tensor.updates, kNoUpdateList);
  TIER_CHECK(index != kNoUpdateList, "tensor {} has no updates", tensor.id);
  tensor.clear(kSwapping);
  lists_.Edit(index).tensor = kNoTensor;
  return index;
}

bool UpdateTable::RemoveEnded(UpdateListIndex index) {
  const UpdateList& list = lists_[index];
  TIER_CHECK(list.ended(), "the updates of tensor index {} have not ended", Value(list.tensor));
  if (list.head != kNoUpdate) Remove(list.head);
  if (list.head != kNoUpdate) return true;
  lists_.Free(index);
  return false;
}

bool UpdateTable::AddTorn(TensorIndex tensor, PieceRange pieces) {
  const UpdateIndex found = FindBroken(tensor);
  const UpdateIndex index = found == kNoUpdate ? Add(tensor) : found;
  lists_.Edit(tensors_[tensor].updates).broken = index;
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
  const UpdateList& list = lists_[update.list];
  const auto number = static_cast<uint32_t>(index);
  const uint32_t pieces = list.piece_count;
  TIER_CHECK(update.changed.capacity == pieces && update.swap.end() <= pieces && update.torn.end() <= pieces,
             "update {} of a tensor of {} pieces", number, pieces);
  TIER_CHECK(update.swapping() == !update.swapped.empty() && (update.open || !update.swapping()),
             "update {} has swapped {} pieces", number, update.swapped.count);
  if (update.open) {
    const auto same = [&](UpdateIndex each) {
      return updates_[each].list == update.list && updates_[each].session == update.session;
    };
    TIER_CHECK(open_.Find(HashOf(index), same) == index, "update {} of session index {}", number, update.session);
  }
  if (list.ended()) return;
  const Tensor& tensor = tensors_[list.tensor];
  const auto& [begin, end] = update.shard.bytes;
  TIER_CHECK(begin <= end && end <= tensor.size && (update.shard.empty() || tensor.has(kSharded)),
             "update {} has bytes {} to {} of {}", number, begin, end, tensor.size);
  if (update.open) {
    TIER_CHECK(update.changed.count < pieces && (update.swapping() || !update.changed.empty() || !update.shard.empty()),
               "update {} has changed {} of {} pieces", number, update.changed.count, pieces);
  } else if (!update.torn.empty()) {
    TIER_CHECK(list.broken == index && update.changed.count < update.torn.count && update.shard.empty(),
               "update {}: {} of {} pieces are rewritten", number, update.changed.count, update.torn.count);
  } else {
    TIER_CHECK(list.left == index && update.changed.empty() && HasShard(index), "update {} has no session", number);
  }
}

// Returns how many records it has.
uint32_t UpdateTable::CheckList(UpdateListIndex index) const {
  const UpdateList& list = lists_[index];
  const auto number = static_cast<uint32_t>(index);
  uint32_t count = 0;
  uint32_t swaps = 0;
  uint32_t shards = 0;
  bool in_step = true;
  UpdateIndex last = kNoUpdate;
  const Shard* shard = nullptr;
  for (UpdateIndex each = list.head; each != kNoUpdate; each = updates_[each].next_of_tensor) {
    const Update& update = updates_[each];
    TIER_CHECK(update.list == index && update.previous_of_tensor == last && (!update.swapping() || swaps == count),
               "update {} in list {}", static_cast<uint32_t>(each), number);
    ++count;
    swaps += update.swapping() ? 1 : 0;
    last = each;
    if (!HasShard(each)) continue;
    ++shards;
    in_step &= shard == nullptr || shard->number == update.shard.number;
    shard = &update.shard;
  }
  TIER_CHECK(last == list.tail && count == list.count && swaps == list.swaps && shards == list.shards,
             "list {}: {} records of {}, {} swap_outs of {}, {} shards of {}", number, count, list.count, swaps,
             list.swaps, shards, list.shards);
  if (list.ended()) return count;
  const Tensor& tensor = tensors_[list.tensor];
  TIER_CHECK(tensor.updates == index && count != 0 && tensor.has(kSwapping) == (swaps != 0) &&
                 in_step == list.in_step && tensor.job == list.job && tensor.piece_count == list.piece_count,
             "list {} of tensor {} with {} records", number, tensor.id, count);
  for (const UpdateIndex each : {list.broken, list.left}) {
    TIER_CHECK(each == kNoUpdate || (updates_[each].list == index && !updates_[each].open), "update {} of list {}",
               static_cast<uint32_t>(each), number);
  }
  return count;
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
  updates_.CheckInvariants();
  lists_.CheckInvariants();
  uint32_t linked = 0;
  uint32_t open = 0;
  std::vector<bool> lists(lists_.capacity());
  for (uint32_t i = 0; i < updates_.capacity(); ++i) {
    const Update& update = updates_[UpdateIndex{i}];
    if (update.list == kNoUpdateList) continue;
    ++linked;
    open += update.open ? 1 : 0;
    lists[static_cast<uint32_t>(update.list)] = true;
    CheckRecord(UpdateIndex{i});
  }
  TIER_CHECK(linked == updates_.used() && open == open_.size(), "{} updates of {}, {} open ones of {}", linked,
             updates_.used(), open, open_.size());
  open_.CheckInvariants([&](UpdateIndex index) { return HashOf(index); });
  uint32_t listed = 0;
  for (uint32_t i = 0; i < lists_.capacity(); ++i) listed += lists[i] ? CheckList(UpdateListIndex{i}) : 0;
  TIER_CHECK(listed == linked, "{} updates in lists of {}", listed, linked);
  const auto ending = std::ranges::count_if(sessions_, [](const OfSession& session) { return session.ending; });
  TIER_CHECK(std::cmp_equal(ending, ending_.size()), "{} sessions end, not {}", ending, ending_.size());
  for (size_t i = 0; i < ending_.size(); ++i) {
    const OfSession& session = sessions_[ending_[i]];
    TIER_CHECK(session.ending && session.ending_at == i, "session index {} ends at {}", ending_[i], session.ending_at);
  }
  for (const OfSession& session : sessions_) CheckSession(session);
}

}  // namespace tier::tiering
