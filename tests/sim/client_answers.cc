// What a SimClient makes of its answers, and of its own death. See client.h.
#include <algorithm>

#include <fmt/format.h>

#include "tests/sim/client.h"

namespace tier::tiering::sim {

using proto::Op;
using proto::RequestItem;

void SimClient::TakeLeases(const PendingRequest& request, const Reply& reply) {
  std::vector<HeldLease> taken(request.items.size());
  for (const proto::SpanRecord& span : reply.spans) {
    HeldLease& lease = taken.at(span.item);
    uint64_t offset = request.items[span.item].offset;
    for (const Patch& patch : lease.patches) offset += patch.length;
    lease.id = span.lease;
    lease.request = reply.sequence;
    lease.spans.push_back(span);
    lease.patches.push_back({offset, world_.address(span.window, span.offset), span.length});
  }
  const bool write = request.op == Op::kCreate || (request.flags & proto::kFlagWrite) != 0;
  for (size_t i = 0; i < taken.size(); ++i) {
    HeldLease& lease = taken[i];
    lease.tensor = Latest(request.tensors[i]);  // Replaced before it was granted: the name meant the new one by then.
    lease.write = write;
    lease.create = !lease.tensor->visible;
    if (request.op == Op::kCreate) request.tensors[i]->coming = false;
    lease.seed = world_.next_seed++;
    uint64_t length = 0;
    for (const Patch& patch : lease.patches) length += patch.length;
    const RequestItem& asked = request.items[i];
    const uint64_t expected = asked.length == 0 ? lease.tensor->size - asked.offset : asked.length;
    if (length != expected) world_.fail(fmt::format("a lease of {} bytes covers {}", expected, length));
    const bool old_bytes = !write || (lease.tensor->visible && (request.flags & proto::kFlagDiscard) == 0);
    if (old_bytes) VerifyRead(lease, "when granted");
    if (old_bytes && !write && i == 0) CheckContent(lease, reply.value);
    if (old_bytes && request.torn && lease.tensor->any_torn()) {
      world_.fail(fmt::format("tensor {} was torn, and is granted for reading", lease.tensor->id));
    }
    if (lease.tensor->visible && lease.tensor == request.tensors[i]) CheckNoSwap(request, i);
    // Half the writers begin at once, so that what dies has left its traces.
    lease.touched = write && world_.chance.OneIn(2);
    if (lease.touched) {
      for (const Patch& patch : lease.patches) Stamp(*lease.tensor, patch, lease.seed);
    }
    leases_.push_back(std::move(lease));
  }
}

void SimClient::CheckContent(const HeldLease& lease, uint64_t content) {
  for (const Patch& patch : lease.patches) {
    const auto other = world_.contents.FindOther(content, *lease.tensor, patch);
    if (!other) continue;
    world_.fail(fmt::format("session {}: tensor {} page {} was of content {} before, with other bytes",
                            static_cast<uint64_t>(session_), lease.tensor->id, *other, content));
  }
}

// A swap of somebody else that was unfinished when the request was sent, and is so still.
void SimClient::CheckNoSwap(const PendingRequest& request, size_t index) {
  const TensorModel& tensor = *request.tensors[index];
  for (const auto& [session, number] : request.swaps[index]) {
    const auto found = tensor.swaps.find(session);
    if (session == static_cast<uint64_t>(session_) || found == tensor.swaps.end() || found->second != number) continue;
    world_.fail(fmt::format("session {}: tensor {} is granted in the middle of a swap of session {}",
                            static_cast<uint64_t>(session_), tensor.id, session));
  }
}

bool SimClient::ExplainedByTensor(const TensorModel& tensor, Code code) const {
  if (code == Code::kNotFound || code == Code::kStale) return tensor.freeing;
  if (code == Code::kTorn) return tensor.tainted || tensor.sharded || world_.punched;
  // Its place was taken, before the request but told after it, by one that ends earlier or is not sealed yet.
  if (code == Code::kInvalid) return tensor.freeing;
  return false;
}

bool SimClient::Explained(const PendingRequest& request, const Reply& reply) const {
  if (request.hostile) return true;
  const Plan& plan = world_.plan;
  switch (reply.code) {
    case Code::kTimeout: return request.op != Op::kRelease;
    // Of two that begin a swap one comes second.
    case Code::kWouldDeadlock: return request.op != Op::kRelease || (request.flags & proto::kFlagMore) != 0;
    case Code::kNoMemory:
      if (plan.metadata_bytes != 0 && request.op != Op::kRelease) return true;
      [[fallthrough]];
    case Code::kNoSpace:
      return request.op == Op::kCreate || request.op == Op::kAcquire || request.op == Op::kFlush ||
             request.op == Op::kPersist;
    case Code::kIoError:
      if (plan.lost_commit_turn != 0 && request.op == Op::kPersist) return true;
      return plan.write_errors + plan.read_errors + plan.no_space + plan.device_fault_one_in != 0;
    case Code::kCorrupt: return plan.corruptions != 0;
    case Code::kAlreadyExists: return request.duplicate || (request.replaces != nullptr && request.replaces->freeing);
    case Code::kDenied: return request.op == Op::kPersist;
    case Code::kNotFound:
      if (request.early) return true;
      break;
    default: break;
  }
  if (request.op == Op::kPersist && reply.code == Code::kInvalid) return true;
  if (request.tensors.empty() && reply.code == Code::kTorn) return true;  // Flush of everything.
  return std::any_of(request.tensors.begin(), request.tensors.end(), [&](const TensorPtr& tensor) {
    return ExplainedByTensor(*tensor, reply.code) || ExplainedByTensor(*Latest(tensor), reply.code);
  });
}

// Nobody knows whether the old tensor is still there.
void SimClient::Doubt(const PendingRequest& request) {
  const TensorModel& tensor = *request.tensors.front();
  if (const TensorPtr old = world_.model.Find(tensor.job, tensor.space, tensor.id)) {
    old->freeing = true;
    world_.model.Remove(old);
  }
}

// The tensor stays, unless another session has freed or replaced it since: the answer is told at the end of the turn,
// and what others ask for in between counts at once.
void SimClient::FreeRefused(const TensorPtr& tensor) {
  if (world_.model.Find(tensor->job, tensor->space, tensor->id) == tensor) tensor->freeing = false;
}

void SimClient::OnRefusal(const PendingRequest& request, const Reply& reply) {
  if (!Explained(request, reply)) {
    world_.fail(fmt::format("session {}: operation {} was refused with {}: {}", static_cast<uint64_t>(session_),
                            static_cast<int>(request.op), CodeName(reply.code), reply.detail));
  }
  if (reply.detail.empty() || reply.error == nullptr) world_.fail("a refusal without a sentence");
  if (request.hostile || request.duplicate) return;
  if (request.op == Op::kRelease && reply.code == Code::kWouldDeadlock) {
    request.tensors[0]->swaps.erase(static_cast<uint64_t>(session_));
  }
  if (request.op == Op::kCreate) {
    for (const TensorPtr& tensor : request.tensors) {
      tensor->freeing = true;
      world_.model.Remove(tensor);
      world_.model.RemoveWaiting(tensor);
    }
  }
  if (request.op == Op::kFree && reply.code != Code::kNotFound) FreeRefused(request.tensors[0]);
}

void SimClient::OnReply(const Reply& reply) {
  const auto found = pending_.find(reply.sequence);
  if (found == pending_.end()) {
    world_.fail(fmt::format("session {}: an answer to {}, which was not asked", static_cast<uint64_t>(session_),
                            reply.sequence));
    return;
  }
  const PendingRequest request = std::move(found->second);
  pending_.erase(found);
  ++answered_;
  Expect(request, reply);
  if (reply.code != Code::kOk) return OnRefusal(request, reply);
  if (request.hostile) return;
  if (request.duplicate && !request.tensors[0]->freeing) world_.fail("a taken name was created again");
  if (request.duplicate) return;
  if (request.op == Op::kCreate || request.op == Op::kAcquire) {
    ++granted_;
    if (request.replaces != nullptr) Replaced(request);
    TakeLeases(request, reply);
  }
  if (request.op == Op::kAccept) Latest(request.tensors[0])->FinishWrites();  // Also what began while it went on.
  if (request.op == Op::kPersist) {
    for (const auto& [key, tensor] : world_.model.tensors()) tensor->changed.erase(static_cast<uint64_t>(session_));
  }
  if (request.op != Op::kFree) return;
  const TensorPtr freed = Latest(request.tensors[0]);
  freed->freeing = true;
  world_.model.Remove(freed);
  world_.model.EndWaiting(*freed, 0);
}

void SimClient::Die() {
  dead_ = true;
  for (const auto& [sequence, request] : pending_) {
    if (!request.submitted && request.released) leases_.push_back(*request.released);
  }
  for (const HeldLease& lease : leases_) {
    if (lease.write) Abandon(lease);
  }
  leases_.clear();
  for (const auto& [key, tensor] : world_.model.tensors()) {
    tensor->BreakWrites(static_cast<uint64_t>(session_));
  }
  for (const auto& [sequence, request] : pending_) {
    // Granted since the last answers were told, perhaps: then the creation went with the client, and took the old one.
    const bool just_sent = request.turn == world_.turns || (world_.punched && request.turn + 1 == world_.turns);
    if (request.replaces != nullptr && request.submitted && just_sent) Doubt(request);
    for (const TensorPtr& tensor : request.tensors) world_.model.RemoveWaiting(tensor);
  }
  pending_.clear();
  std::vector<TensorPtr> creations;
  for (const auto& [key, tensor] : world_.model.tensors()) {
    if (!tensor->visible && tensor->creator == static_cast<uint64_t>(session_)) creations.push_back(tensor);
  }
  for (const TensorPtr& tensor : creations) {
    tensor->freeing = true;
    world_.model.Remove(tensor);
  }
  world_.model.RemoveSpace(job_, static_cast<uint64_t>(session_));
}

}  // namespace tier::tiering::sim
