// Creating, acquiring, reading and ending leases.
#include <algorithm>
#include <array>

#include "libclient/abi/failure.h"
#include "libclient/abi/handle.h"
#include "libclient/client/tensor_name.h"
#include "libclient/swap/request_handle.h"

namespace tier::abi {
namespace {

using client::Lease;
using proto::Op;

constexpr uint32_t kGrantFlags =
    TIER_WRITE | TIER_SHARED | TIER_NO_WAIT_OWN | TIER_DISCARD | TIER_NO_WAIT | TIER_SCATTERED_OK;
constexpr uint32_t kCreateFlags = kGrantFlags | TIER_SHARDED | TIER_TRANSIENT;
constexpr uint32_t kReleaseFlags = TIER_ABANDON | TIER_UNTOUCHED | TIER_FREE_AFTER | TIER_EVICT_FIRST;

static_assert(TIER_WRITE == proto::kFlagWrite && TIER_SHARED == proto::kFlagShared);
static_assert(TIER_ABANDON == proto::kFlagAbandon && TIER_NO_WAIT_OWN == proto::kFlagNoWaitOwn);
static_assert(TIER_DISCARD == proto::kFlagDiscard && TIER_NO_WAIT == proto::kFlagNoWait);
static_assert(TIER_FREE_AFTER == proto::kFlagFreeAfter && TIER_UNTOUCHED == proto::kFlagUntouched);
static_assert(TIER_EVICT_FIRST == proto::kFlagEvictFirst && TIER_TRANSIENT == proto::kFlagTransient);
static_assert(TIER_SHARDED == proto::kFlagSharded && TIER_SCATTERED_OK > proto::kFlagsKnown);

struct Grant {
  tier_client* client;
  const tier_range* ranges;
  size_t count;
  uint32_t flags;
  uint32_t timeout_ms;
  tier_lease** leases;
};

Status CheckGrant(Op op, const Grant& grant) {
  const char* const call = op == Op::kCreate ? "create" : "acquire";
  const uint32_t allowed = op == Op::kCreate ? kCreateFlags : kGrantFlags;
  if (auto ok = Begin(grant.client, call, grant.flags, allowed); !ok) return ok;
  if (grant.ranges == nullptr || grant.leases == nullptr || grant.count == 0 ||
      grant.count > proto::kItemsPerRequestMax) {
    return Fail(Code::kInvalid, std::string(call) + " takes 1 to " + std::to_string(proto::kItemsPerRequestMax) +
                                    " ranges and a place for as many leases, got " + std::to_string(grant.count));
  }
  for (size_t i = 0; i < grant.count; ++i) {
    const tier_range& range = grant.ranges[i];
    if (op == Op::kCreate && range.size == 0) {
      return Fail(Code::kInvalid, client::TensorName(range.tensor) + " cannot have a size of 0 bytes");
    }
    if (range.offset + range.length < range.offset) {
      return Fail(Code::kInvalid, "the range of " + client::TensorName(range.tensor) + " ends beyond 2^64");
    }
  }
  return {};
}

void FillItems(Op op, const Grant& grant, std::span<proto::RequestItem> items) {
  for (size_t i = 0; i < grant.count; ++i) {
    const tier_range& range = grant.ranges[i];
    items[i] = {range.tensor, range.offset, range.length, op == Op::kCreate ? range.size : 0};
  }
}

client::Submission SubmissionOf(Op op, const Grant& grant, std::span<const proto::RequestItem> items) {
  uint32_t flags = grant.flags & proto::kFlagsKnown;
  const bool as_one_range = op == Op::kAcquire && (grant.flags & TIER_SCATTERED_OK) == 0;
  if (as_one_range && grant.client->session->mappings_run_short()) flags |= proto::kFlagContiguous;
  return {.op = op, .flags = flags, .timeout_ms = grant.timeout_ms, .items = items};
}

Status Acquire(Op op, const Grant& grant) {
  if (auto ok = CheckGrant(op, grant); !ok) return ok;
  std::array<proto::RequestItem, proto::kItemsPerRequestMax> items;
  std::array<Lease*, proto::kItemsPerRequestMax> leases;
  FillItems(op, grant, items);
  for (size_t i = 0; i < grant.count; ++i) grant.leases[i] = nullptr;
  auto submission = SubmissionOf(op, grant, std::span(items).first(grant.count));
  // What this client is still swapping is granted behind the swap, as if it had been quick.
  if (auto free = grant.client->scheduler->WaitForTurn(&submission); !free) return free;
  const auto wanted = std::span(leases).first(grant.count);
  auto status = grant.client->session->Acquire(submission, wanted);
  for (size_t i = 0; i < grant.count; ++i) grant.leases[i] = status ? Wrap(leases[i]) : nullptr;
  return status;
}

Status Start(Op op, const Grant& grant, tier_op** op_handle) {
  if (op_handle == nullptr) return Fail(Code::kInvalid, "a started call needs a place for its operation");
  *op_handle = nullptr;
  if (auto ok = CheckGrant(op, grant); !ok) return ok;
  std::vector<proto::RequestItem> items(grant.count);
  FillItems(op, grant, items);
  auto** const leases = reinterpret_cast<Lease**>(grant.leases);
  auto started = swap::StartRequest(grant.client->scheduler, SubmissionOf(op, grant, items), {leases, grant.count});
  if (!started) return std::unexpected(started.error());
  *op_handle = new tier_op{grant.client->session, std::move(*started)};
  return {};
}

Status CheckLease(const tier_lease* lease) {
  if (lease == nullptr) return Fail(Code::kInvalid, "the lease handle is NULL");
  return {};
}

Status Data(tier_lease* handle, void** address, uint64_t* length) {
  if (auto ok = CheckLease(handle); !ok) return ok;
  Lease& lease = *Unwrap(handle);
  if (auto alive = lease.session->Alive(); !alive) return alive;
  if (!lease.open.load()) return Fail(Code::kStale, "this lease was released before");
  auto data = lease.session->Data(lease);
  if (!data) return std::unexpected(data.error());
  if (address != nullptr) *address = *data;
  if (length != nullptr) *length = lease.length;
  return {};
}

Status Segments(tier_lease* handle, std::span<tier_segment> segments, size_t* count) {
  if (auto ok = CheckLease(handle); !ok) return ok;
  Lease& lease = *Unwrap(handle);
  if (auto alive = lease.session->Alive(); !alive) return alive;
  if (count == nullptr) return Fail(Code::kInvalid, "tier_lease_segments needs a place for the count");
  *count = lease.runs.size();
  uint64_t offset = lease.offset;
  for (size_t i = 0; i < std::min(segments.size(), lease.runs.size()); ++i) {
    const client::Run& run = lease.runs[i];
    segments[i] = {lease.session->windows().AddressOf(run.window, run.offset), run.length, offset};
    offset += run.length;
  }
  return {};
}

// Leases of one session go in one request; a caller may mix sessions.
Status Release(std::span<tier_lease* const> handles, uint32_t flags) {
  if (auto ok = CheckFlags("release", flags, kReleaseFlags); !ok) return ok;
  if (handles.data() == nullptr && !handles.empty()) return Fail(Code::kInvalid, "tier_release_batch got no leases");
  if (std::ranges::count(handles, static_cast<tier_lease*>(nullptr)) > 0)
    return Fail(Code::kInvalid, "a lease handle is NULL");
  const std::span<Lease* const> leases(reinterpret_cast<Lease* const*>(handles.data()), handles.size());
  Status status;
  for (size_t first = 0; first < leases.size();) {
    client::Session* const session = leases[first]->session;
    size_t last = first + 1;
    while (last < leases.size() && leases[last]->session == session) last++;
    if (session->forked()) return session->Alive();
    if (auto part = session->Release(leases.subspan(first, last - first), flags); !part) status = part;
    first = last;
  }
  return status;
}

}  // namespace
}  // namespace tier::abi

using tier::abi::Guarded;
using tier::proto::Op;

extern "C" {

int tier_create(tier_client* client, const tier_range* range, uint32_t flags, uint32_t timeout_ms, tier_lease** lease) {
  return tier_create_batch(client, range, 1, flags, timeout_ms, lease);
}

int tier_acquire(tier_client* client, const tier_range* range, uint32_t flags, uint32_t timeout_ms,
                 tier_lease** lease) {
  return tier_acquire_batch(client, range, 1, flags, timeout_ms, lease);
}

int tier_create_batch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags, uint32_t timeout_ms,
                      tier_lease** leases) {
  return Guarded([&] { return tier::abi::Acquire(Op::kCreate, {client, ranges, count, flags, timeout_ms, leases}); });
}

int tier_acquire_batch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags, uint32_t timeout_ms,
                       tier_lease** leases) {
  return Guarded([&] { return tier::abi::Acquire(Op::kAcquire, {client, ranges, count, flags, timeout_ms, leases}); });
}

int tier_create_start(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags, uint32_t timeout_ms,
                      tier_lease** leases, tier_op** op) {
  return Guarded([&] { return tier::abi::Start(Op::kCreate, {client, ranges, count, flags, timeout_ms, leases}, op); });
}

int tier_acquire_start(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags, uint32_t timeout_ms,
                       tier_lease** leases, tier_op** op) {
  return Guarded(
      [&] { return tier::abi::Start(Op::kAcquire, {client, ranges, count, flags, timeout_ms, leases}, op); });
}

int tier_lease_data(tier_lease* lease, void** address, uint64_t* length) {
  return Guarded([&] { return tier::abi::Data(lease, address, length); });
}

int tier_lease_segments(tier_lease* lease, tier_segment* segments, size_t max, size_t* count) {
  return Guarded([&] { return tier::abi::Segments(lease, {segments, segments == nullptr ? 0 : max}, count); });
}

int tier_seal(tier_lease* lease) { return tier_release_batch(&lease, 1, 0); }

int tier_release(tier_lease* lease, uint32_t flags) { return tier_release_batch(&lease, 1, flags); }

int tier_release_batch(tier_lease* const* leases, size_t count, uint32_t flags) {
  return Guarded([&] { return tier::abi::Release({leases, count}, flags); });
}

}  // extern "C"
