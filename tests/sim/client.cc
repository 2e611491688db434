// See client.h.
#include "tests/sim/client.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/session/request_decoder.h"

namespace tier::tiering::sim {
namespace {

using proto::Op;
using proto::RequestItem;

constexpr size_t kPendingMax = 8;

uint64_t PiecesOf(const HeldLease& lease) {
  const Patch& last = lease.patches.back();
  return (last.offset + last.length - 1) / kBlockSize - lease.patches.front().offset / kBlockSize + 1;
}

void MakeWellFormed(const session::OpShape& shape, std::vector<RequestItem>* items) {
  items->resize(std::clamp<size_t>(items->size(), shape.items_min, shape.items_max));
  for (RequestItem& item : *items) {
    if (!shape.range) item.offset = item.length = 0;
    if (!shape.value) item.value = 0;
  }
}

}  // namespace

uint64_t SimClient::RandomSize() {
  const uint64_t max = world_.plan.tensor_max_bytes;
  switch (world_.chance.Below(4)) {
    case 0: return world_.chance.Between(1, 4096);
    case 1: return world_.chance.Between(1, std::min<uint64_t>(max, 64 * kKiB));
    case 2: return world_.chance.Between(1, 4) * kPageSize;
    default: return world_.chance.Between(1, max);
  }
}

void SimClient::Act() {
  if (dead_ || asleep_) return;
  if (world_.plan.hostile_one_in != 0 && world_.chance.OneIn(world_.plan.hostile_one_in)) Hostile();
  if (pending_.size() >= kPendingMax) return ReleaseSome();
  const bool full = leases_.size() >= world_.plan.leases_max;
  switch (world_.chance.Below(20)) {
    case 0:
    case 1:
    case 2: return full ? ReleaseSome() : Create();
    case 3:
    case 4:
    case 5:
    case 16:
    case 17: return full ? ReleaseSome() : Acquire(false);
    case 6:
    case 7: return full ? ReleaseSome() : Acquire(true);
    case 8: return GrowCreation();
    case 9: return world_.chance.OneIn(4) ? CreateDuplicate() : Free();
    case 10: return Name(world_.chance.OneIn(2) ? Op::kFlush : Op::kPrefetch);
    case 11: return Name(world_.chance.OneIn(2) ? Op::kDrop : Op::kStat);
    case 12: return world_.chance.OneIn(3) ? Step() : Name(Op::kAccept);
    case 18: return full ? ReleaseSome() : Replace();
    case 13: return world_.chance.OneIn(4) ? Name(Op::kPersist) : world_.chance.OneIn(3) ? Tear() : Intern();
    default: return ReleaseSome();
  }
}

void SimClient::Create() {
  const bool shared = world_.chance.OneIn(2);
  const bool many = world_.chance.OneIn(20);  // More than a turn makes.
  const uint64_t count = many                     ? world_.chance.Between(17, 40)
                         : world_.chance.OneIn(4) ? world_.chance.Between(2, 5)
                                                  : 1;
  PendingRequest request{.op = Op::kCreate, .flags = shared ? proto::kFlagShared : 0};
  if (world_.chance.OneIn(6)) request.flags |= proto::kFlagNoWaitOwn;
  if (world_.chance.OneIn(12)) request.flags |= proto::kFlagNoWait;
  const bool sharded = shared && world_.chance.OneIn(3);
  if (sharded) request.flags |= proto::kFlagSharded;
  for (uint64_t i = 0; i < count; ++i) {
    const TensorPtr tensor = NewTensorModel({.job = job_,
                                             .space = shared ? 0 : static_cast<uint64_t>(session_),
                                             .id = world_.next_tensor++,
                                             .size = many ? world_.chance.Between(1, 64 * kKiB) : RandomSize(),
                                             .creator = static_cast<uint64_t>(session_)});
    tensor->sharded = sharded;
    tensor->coming = many;
    uint64_t length = 0;
    if (tensor->page_count() > 2 && world_.chance.OneIn(3)) {
      length = world_.chance.Between(1, tensor->page_count() - 1) * kPageSize;
    }
    request.items.push_back({tensor->id, 0, length, tensor->size});
    request.tensors.push_back(tensor);
  }
  request.effects = [this, tensors = request.tensors] {
    for (const TensorPtr& tensor : tensors) world_.model.Add(tensor);
  };
  Send(std::move(request));
}

void SimClient::CreateDuplicate() {
  uint32_t flags = 0;
  const TensorPtr tensor = PickTensor(&flags);
  if (tensor == nullptr || tensor->freeing || tensor->coming) return;
  Send(
      {.op = Op::kCreate, .flags = flags, .tensors = {tensor}, .items = {{tensor->id, 0, 0, 4096}}, .duplicate = true});
}

// Whatever becomes of it, the old tensor is what the name means until the new one is granted.
void SimClient::Replace() {
  uint32_t flags = 0;
  const TensorPtr old = PickTensor(&flags);
  if (old == nullptr || old->freeing) return;
  if (!old->visible && old->creator != static_cast<uint64_t>(session_)) return;
  const TensorPtr tensor = NewTensorModel({.job = old->job,
                                           .space = old->space,
                                           .id = old->id,
                                           .size = world_.chance.OneIn(3) ? old->size : RandomSize(),
                                           .creator = static_cast<uint64_t>(session_)});
  if (world_.chance.OneIn(6)) flags |= proto::kFlagNoWaitOwn;
  if (world_.chance.OneIn(12)) flags |= proto::kFlagNoWait;
  uint64_t length = 0;
  if (tensor->page_count() > 2 && world_.chance.OneIn(3)) {
    length = world_.chance.Between(1, tensor->page_count() - 1) * kPageSize;
  }
  Send({.op = Op::kCreate,
        .flags = flags | proto::kFlagReplace,
        .tensors = {tensor},
        .items = {{tensor->id, 0, length, tensor->size}},
        .replaces = old,
        .effects = [this, tensor] {
          const TensorPtr present = world_.model.Find(tensor->job, tensor->space, tensor->id);
          if (present == nullptr || present->freeing) world_.model.AddWaiting(tensor);
        }});
}

// Its create was granted.
void SimClient::Replaced(const PendingRequest& request) {
  const TensorPtr& tensor = request.tensors.front();
  const TensorPtr old = world_.model.Find(tensor->job, tensor->space, tensor->id);
  for (const TensorPtr& gone : {old, Latest(request.replaces)}) {
    if (gone == nullptr || gone == tensor) continue;
    gone->freeing = true;
    gone->replaced_by = tensor;
  }
  world_.model.EndWaiting(*tensor, tensor->creator);
  world_.model.RemoveWaiting(tensor);
  tensor->freeing = false;  // It had not been named, or it would not be there.
  world_.model.Add(tensor);
}

TensorPtr SimClient::PickTensor(uint32_t* flags) {
  const bool shared = world_.chance.OneIn(2);
  *flags = shared ? proto::kFlagShared : 0;
  return world_.model.Pick(job_, shared ? 0 : static_cast<uint64_t>(session_), world_.chance.Any());
}

void SimClient::Acquire(bool write) {
  uint32_t flags = 0;
  const TensorPtr first = PickTensor(&flags);
  if (first == nullptr) return;
  PendingRequest request{.op = Op::kAcquire, .flags = flags | (write ? proto::kFlagWrite : 0)};
  if (write && world_.chance.OneIn(3)) request.flags |= proto::kFlagDiscard;
  if (world_.chance.OneIn(6)) request.flags |= proto::kFlagNoWaitOwn;
  if (world_.chance.OneIn(12)) request.flags |= proto::kFlagNoWait;
  if (world_.chance.OneIn(4)) request.flags |= proto::kFlagContiguous;
  const uint64_t count = world_.chance.OneIn(3) ? world_.chance.Between(2, 4) : 1;
  for (uint64_t i = 0; i < count; ++i) {
    const TensorPtr tensor = i == 0 ? first : world_.model.Pick(job_, first->space, world_.chance.Any());
    const bool named = std::find(request.tensors.begin(), request.tensors.end(), tensor) != request.tensors.end();
    if (write && (named || !tensor->visible)) continue;  // Creations grow by GrowCreation; a piece twice is INVALID.
    uint64_t offset = 0;
    uint64_t length = 0;
    if (world_.chance.OneIn(3)) {
      const uint64_t page = world_.chance.Below(tensor->page_count());
      offset = page * kPageSize;
      length = std::min(world_.chance.Between(1, tensor->page_count() - page) * kPageSize, tensor->size - offset);
    }
    request.items.push_back({tensor->id, offset, length, 0});
    request.tensors.push_back(tensor);
  }
  if (!request.items.empty()) Send(std::move(request));
}

void SimClient::GrowCreation() {
  uint32_t flags = 0;
  const TensorPtr tensor = PickTensor(&flags);
  if (tensor == nullptr || tensor->visible || tensor->creator != static_cast<uint64_t>(session_)) return;
  if (HasUnsubmitted(tensor)) return;  // It may seal what is missing.
  const auto missing = std::find(tensor->sealed.begin(), tensor->sealed.end(), false);
  const auto page = static_cast<uint64_t>(missing - tensor->sealed.begin());
  if (page == tensor->page_count()) return;
  const uint64_t offset = page * kPageSize;
  const uint64_t length =
      std::min(world_.chance.Between(1, tensor->page_count() - page) * kPageSize, tensor->size - offset);
  Send({.op = Op::kAcquire,
        .flags = flags | proto::kFlagWrite,
        .tensors = {tensor},
        .items = {{tensor->id, offset, length, 0}}});
}

// A lease that it knows of, of a tensor that the engine and the model agree on.
bool SimClient::MayRelease(const HeldLease& lease) const { return lease.delivered && !HasUnsubmitted(lease.tensor); }

bool SimClient::HasUnsubmitted(const TensorPtr& tensor) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const auto& entry) {
    const auto& [sequence, request] = entry;
    return !request.submitted &&
           std::find(request.tensors.begin(), request.tensors.end(), tensor) != request.tensors.end();
  });
}

void SimClient::ReleaseSome() {
  if (leases_.empty()) return;
  const size_t index = world_.chance.Below(leases_.size());
  if (!MayRelease(leases_[index])) return;
  uint32_t flags = 0;
  if (leases_[index].write && world_.chance.OneIn(10)) {
    const bool untouched = leases_[index].tensor->visible && !leases_[index].touched;
    flags = untouched ? proto::kFlagUntouched : proto::kFlagAbandon;
  }
  if (!leases_[index].write && world_.chance.OneIn(12)) flags = proto::kFlagFreeAfter;
  Release(index, flags);
}

void SimClient::ReleaseAll() {
  for (size_t index = leases_.size(); index > 0 && !dead_; --index) {
    if (index <= leases_.size() && MayRelease(leases_[index - 1])) Release(index - 1, 0);
  }
}

void SimClient::Seal(const HeldLease& lease) {
  TensorModel& tensor = *lease.tensor;
  if (PiecesOf(lease) == tensor.torn.size()) tensor.FinishWrites();
  for (const Patch& patch : lease.patches) {
    for (uint64_t piece = patch.offset / kBlockSize; piece * kBlockSize < patch.offset + patch.length; ++piece) {
      tensor.torn[piece] = false;
    }
    for (uint64_t page = (patch.offset + kPageSize - 1) / kPageSize; page < tensor.page_count(); ++page) {
      const uint64_t end = std::min((page + 1) * kPageSize, tensor.size);
      if (end > patch.offset + patch.length) break;
      tensor.seeds[page] = lease.seed;
      tensor.sealed[page] = true;
    }
  }
  tensor.visible =
      tensor.visible || std::find(tensor.sealed.begin(), tensor.sealed.end(), false) == tensor.sealed.end();
}

void SimClient::Abandon(const HeldLease& lease) {
  TensorModel& tensor = *lease.tensor;
  if (!tensor.visible) {
    tensor.freeing = true;
    world_.model.Remove(lease.tensor);
    return;
  }
  tensor.tainted = true;
  tensor.BreakWrites(static_cast<uint64_t>(session_));
  const uint64_t first = lease.patches.front().offset / kBlockSize;
  const uint64_t last = (lease.patches.back().offset + lease.patches.back().length - 1) / kBlockSize;
  for (uint64_t piece = first; piece <= last; ++piece) tensor.doubtful[piece] = true;
}

void SimClient::VerifyRead(const HeldLease& lease, const char* when) {
  for (const Patch& patch : lease.patches) {
    const auto wrong = FindWrongPage(*lease.tensor, patch);
    if (!wrong) continue;
    world_.fail(fmt::format("session {}: tensor {} page {} does not hold seed {} {}", static_cast<uint64_t>(session_),
                            lease.tensor->id, *wrong, lease.tensor->seeds[*wrong], when));
  }
}

void SimClient::Release(size_t index, uint32_t flags) {
  const HeldLease lease = leases_[index];
  leases_.erase(leases_.begin() + static_cast<ptrdiff_t>(index));
  if (!lease.write) {
    VerifyRead(lease, "at the end of its lease");
  } else if ((flags & proto::kFlagUntouched) == 0) {
    for (const Patch& patch : lease.patches) Stamp(*lease.tensor, patch, lease.seed);
  }
  GiveLease(lease);
  RequestItem item{0, 0, 0, lease.id};
  const bool in_place = lease.write && flags == 0 && lease.tensor->visible;
  if (in_place) flags = PartOfASwap(lease, &item);
  PendingRequest request{.op = Op::kRelease, .flags = flags, .tensors = {lease.tensor}, .items = {item}};
  request.effects = [this, lease, flags, in_place, in_swap = item.length != 0] {
    OnReleased(lease, flags);
    if (in_swap) OnRewritten(lease, flags);
    if (in_place && !in_swap) Change(lease);
  };
  if (world_.chance.OneIn(4)) request.flags |= proto::kFlagEvictFirst;  // A hint: nothing else changes.
  request.released = lease;
  Send(std::move(request));
}

void SimClient::OnReleased(const HeldLease& lease, uint32_t flags) {
  if (lease.write && (flags & proto::kFlagUntouched) == 0) {
    if ((flags & proto::kFlagAbandon) != 0) {
      Abandon(lease);
    } else {
      Seal(lease);
    }
  }
  if ((flags & proto::kFlagFreeAfter) == 0) return;
  lease.tensor->freeing = true;
  world_.model.Remove(lease.tensor);
}

// What it sealed by hand belongs to what it sealed before, until it says that a step has ended.
void SimClient::Change(const HeldLease& lease) {
  TensorModel& tensor = *lease.tensor;
  const auto me = static_cast<uint64_t>(session_);
  if (PiecesOf(lease) == tensor.torn.size()) return;
  std::set<uint32_t>& changed = tensor.changed[me];
  const uint64_t first = lease.patches.front().offset / kBlockSize;
  for (uint64_t piece = first; piece < first + PiecesOf(lease); ++piece) changed.insert(static_cast<uint32_t>(piece));
  if (changed.size() == tensor.torn.size()) tensor.changed.erase(me);
  tensor.perhaps_changed.insert(me);
}

// Of a swap over all of the tensor, if it says anything of one.
uint32_t SimClient::PartOfASwap(const HeldLease& lease, RequestItem* item) {
  const TensorModel& tensor = *lease.tensor;
  const bool whole = PiecesOf(lease) == tensor.torn.size();  // It ends all swaps.
  const bool begun = !whole && tensor.swaps.contains(static_cast<uint64_t>(session_));
  if (!begun && !world_.chance.OneIn(4)) return 0;
  item->length = tensor.size;
  return begun && world_.chance.OneIn(2) ? 0 : proto::kFlagMore;
}

void SimClient::OnRewritten(const HeldLease& lease, uint32_t flags) {
  TensorModel& tensor = *lease.tensor;
  const auto me = static_cast<uint64_t>(session_);
  if ((flags & proto::kFlagMore) == 0) {
    tensor.swaps.erase(me);
    tensor.changed.clear();  // If it wrote all of the tensor: the model does not count that.
    return;
  }
  const bool alone = tensor.swaps.empty() || tensor.swaps.contains(me);
  if (alone && PiecesOf(lease) != tensor.torn.size()) tensor.swaps.emplace(me, world_.next_swap++);
  tensor.tainted = true;
  tensor.perhaps_changed.insert(me);
}

void SimClient::Free() {
  uint32_t flags = 0;
  const TensorPtr tensor = PickTensor(&flags);
  if (tensor == nullptr || tensor->freeing) return;
  tensor->freeing = true;
  if (world_.chance.OneIn(2)) flags |= proto::kFlagNoWaitOwn;
  Send({.op = Op::kFree, .flags = flags, .tensors = {tensor}, .items = {{tensor->id, 0, 0, 0}}});
}

void SimClient::Name(Op op) {
  uint32_t flags = 0;
  const TensorPtr tensor = PickTensor(&flags);
  if (op == Op::kPersist) {
    // What it changed until the manifest is made is finished, if that is committed.
    if (world_.plan.manifests) Send({.op = op, .effects = [this] { FinishChanges(); }});
    return;
  }
  if (tensor == nullptr || (op == Op::kFlush && world_.chance.OneIn(4))) {
    if (op == Op::kFlush) Send({.op = op});
    return;
  }
  PendingRequest request{.op = op, .flags = flags, .tensors = {tensor}, .items = {{tensor->id, 0, 0, 0}}};
  if (op == Op::kAccept) request.effects = [this, tensor] { OnAccepted(*Latest(tensor)); };
  Send(std::move(request));
}

void SimClient::OnAccepted(TensorModel& tensor) {
  tensor.torn.assign(tensor.torn.size(), false);
  tensor.FinishWrites();
  for (uint32_t page = 0; page < tensor.page_count(); ++page) {
    if (world_.punched || tensor.doubtful[page / kPagesPerBlock]) tensor.seeds[page] = kUnknown;
  }
}

// As a writer does that cannot go on. The bytes stay what they were: accepted, they are read as before.
void SimClient::Tear() {
  uint32_t flags = 0;
  const TensorPtr tensor = PickTensor(&flags);
  if (tensor == nullptr || !tensor->visible || tensor->freeing) return;
  RequestItem item{tensor->id, 0, 0, 0};
  if (world_.chance.OneIn(2)) {
    item.offset = world_.chance.Below(tensor->size);
    item.length = world_.chance.Between(1, tensor->size - item.offset);
  }
  PendingRequest request{.op = Op::kTear, .flags = flags, .tensors = {tensor}, .items = {item}};
  request.effects = [this, tensor, item] { OnTorn(*Latest(tensor), item); };
  Send(std::move(request));
}

void SimClient::OnTorn(TensorModel& tensor, const RequestItem& item) {
  // The tensor that it named was replaced, and this one is smaller, or not sealed yet: refused.
  if (!tensor.visible || item.offset + item.length > tensor.size) return;
  tensor.tainted = true;
  const uint64_t end = item.length == 0 ? tensor.size : item.offset + item.length;
  for (uint64_t piece = item.offset / kBlockSize; piece * kBlockSize < end; ++piece) tensor.torn[piece] = true;
  if (item.offset < kBlockSize && end > (tensor.torn.size() - 1) * kBlockSize) {
    tensor.swaps.erase(static_cast<uint64_t>(session_));
  }
}

void SimClient::FinishChanges() {
  for (const auto& [key, tensor] : world_.model.tensors()) tensor->changed.erase(static_cast<uint64_t>(session_));
}

void SimClient::Step() {
  Send({.op = Op::kStep, .effects = [this] { FinishChanges(); }});
}

void SimClient::Intern() { Send({.op = Op::kIntern, .text = fmt::format("key-{}", world_.chance.Below(50))}); }

// Requests that no honest client sends. Whatever the answer, nothing may break; free and the like are left out of it,
// since a guess that hits would surprise the model, not the engine.
void SimClient::Hostile() {
  static constexpr Op kOps[] = {Op::kNone,     Op::kCreate, Op::kAcquire, Op::kRelease,
                                Op::kPrefetch, Op::kStat,   Op::kFlush};
  PendingRequest request{.op = kOps[world_.chance.Below(std::size(kOps))], .hostile = true};
  if (world_.chance.OneIn(8)) request.op = static_cast<Op>(world_.chance.Any());
  const bool known = static_cast<uint16_t>(request.op) < proto::kOpCount;
  if (!known || request.op == Op::kNone) request.flags = static_cast<uint32_t>(world_.chance.Any());
  for (uint64_t i = world_.chance.Below(4); i != 0; --i) {
    uint32_t flags = 0;
    const TensorPtr tensor = PickTensor(&flags);
    const uint64_t huge = world_.chance.OneIn(2) ? UINT64_MAX - world_.chance.Below(3) : world_.chance.Any();
    RequestItem item{tensor == nullptr ? huge : tensor->id, huge, world_.chance.OneIn(2) ? huge : 1, huge};
    if (request.op == Op::kCreate)
      item = {huge, world_.chance.Any(), world_.chance.Any(), world_.chance.OneIn(3) ? 0 : huge};
    request.items.push_back(item);
  }
  broke_protocol_ = true;
  // Most are what a broken program would send by libtier: the daemon's decoder takes them.
  if (const session::OpShape* shape = session::ShapeOf(static_cast<uint16_t>(request.op)); shape != nullptr) {
    if (!world_.chance.OneIn(6)) MakeWellFormed(*shape, &request.items);
  }
  // Half of the acquires name no size: their ranges are looked at.
  for (RequestItem& item : request.items) {
    if (request.op == Op::kAcquire && item.value % 2 == 0) item.value = 0;
  }
  Send(std::move(request));
}

}  // namespace tier::tiering::sim
