// See rewrite.h.
#include "daemon/tiering/leases/rewrite.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

std::optional<Refusal> Begin(Core& core, SessionState& session, const Rewrite& rewrite) {
  if (std::find(session.rewrites.begin(), session.rewrites.end(), rewrite) != session.rewrites.end()) return {};
  std::erase_if(session.rewrites, [&](const Rewrite& other) { return !core.Alive(other.tensor); });
  const uint32_t most = core.options.rewrites_per_session_max;
  if (session.rewrites.size() >= most) {
    return Refusal{Code::kInvalid,
                   fmt::format("the session has {} tensors half rewritten, at most that many", most),
                   {.tensor = core.tensors[rewrite.tensor.slot].id, .limit = most}};
  }
  session.rewrites.push_back(rewrite);
  core.tensors[rewrite.tensor.slot].set(kRewriting);
  return {};
}

}  // namespace

std::optional<Refusal> NoteRewrite(Core& core, SessionState& session, LeaseSlot slot, const proto::RequestItem& item,
                                   uint32_t flags) {
  const Lease& lease = core.leases[slot];
  const Tensor& tensor = core.tensors[lease.tensor];
  const bool more = (flags & proto::kFlagMore) != 0;
  if (item.length == 0 && item.offset == 0 && !more) return {};
  WaitItem all;
  const bool covers = item.length != 0 && SetRange(item, tensor.size, &all) && item.offset <= lease.offset &&
                      lease.offset + lease.length <= item.offset + item.length;
  if (!covers || !lease.exclusive()) {
    return Refusal{Code::kInvalid,
                   fmt::format("a lease of bytes {} + {} of tensor {:#x} is no part of a rewrite of {} + {}",
                               lease.offset, lease.length, tensor.id, item.offset, item.length),
                   {.tensor = tensor.id, .requested = item.offset, .available = item.length, .limit = tensor.size}};
  }
  if (!tensor.has(kVisible) || tensor.has(kDetached)) return {};
  const Rewrite rewrite{
      .tensor = core.RefOf(lease.tensor), .first_piece = all.first_piece, .piece_count = all.piece_count};
  if (more) return Begin(core, session, rewrite);
  std::erase(session.rewrites, rewrite);
  return {};
}

void EndRewrites(SessionState& session, const WaitItem& torn) {
  std::erase_if(session.rewrites, [&](const Rewrite& rewrite) {
    return rewrite.tensor == torn.tensor && rewrite.first_piece >= torn.first_piece &&
           rewrite.first_piece + rewrite.piece_count <= torn.first_piece + torn.piece_count;
  });
}

void EndAllRewrites(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (!tensor.has(kRewriting)) return;
  tensor.clear(kRewriting);
  for (SessionState* session : tensor.job->sessions) {
    std::erase_if(session->rewrites, [&](const Rewrite& rewrite) { return rewrite.tensor == core.RefOf(slot); });
  }
}

void TearRewrites(Core& core, SessionState& session) {
  const auto place = [](const Rewrite& rewrite) { return std::tuple(Value(rewrite.tensor.slot), rewrite.first_piece); };
  std::ranges::sort(session.rewrites, {}, place);
  TensorRef tensor;
  uint32_t next =
      0;  // Pieces of that tensor below it are torn, or stay: a client may name many ranges over each other.
  for (const Rewrite& rewrite : session.rewrites) {
    if (!core.Alive(rewrite.tensor)) continue;
    if (rewrite.tensor != tensor) next = 0;
    tensor = rewrite.tensor;
    const uint32_t end = rewrite.first_piece + rewrite.piece_count;
    for (uint32_t k = std::max(next, rewrite.first_piece); k < end; ++k) {
      TearPiece(core, core.tensors[tensor.slot].piece(k));
    }
    next = std::max(next, end);
  }
  session.rewrites.clear();
}

bool BeingRewritten(const Core& core, TensorRef tensor) {
  if (!core.tensors[tensor.slot].has(kRewriting)) return false;
  const auto rewrites = [&](const SessionState* session) {
    return std::ranges::any_of(session->rewrites, [&](const Rewrite& rewrite) { return rewrite.tensor == tensor; });
  };
  return std::ranges::any_of(core.tensors[tensor.slot].job->sessions, rewrites);
}

std::unordered_set<uint32_t> RewrittenTensors(const Core& core, const JobState& job) {
  std::unordered_set<uint32_t> tensors;
  for (const SessionState* session : job.sessions) {
    for (const Rewrite& rewrite : session->rewrites) {
      if (core.Alive(rewrite.tensor)) tensors.insert(Value(rewrite.tensor.slot));
    }
  }
  return tensors;
}

}  // namespace tier::tiering
