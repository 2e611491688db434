#include "tests/perf/held/node.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/base/check.h"

namespace tier::held {
namespace {

using tiering::JobId;
using tiering::SessionId;

constexpr uint32_t kSessionsMax = 1u << 16;  // Of one job.
constexpr int kTurnsMax = 1'000'000;
constexpr base::Duration kTurn = std::chrono::microseconds(50);
constexpr uint64_t kBytesForTurn = kMiB / 2;
constexpr base::Duration kStepMax = std::chrono::milliseconds(1);  // Of the clock, while a request waits.

SessionId IdOf(uint32_t job, uint32_t session) { return SessionId{uint64_t{job} * kSessionsMax + session + 1}; }

memory::ArenaSizes SizesOf(uint64_t arena_bytes) {
  const memory::HostReading host{.memory_total = 4 * arena_bytes, .memory_available = 4 * arena_bytes};
  return memory::ArenaSizing({.max_bytes = arena_bytes}, host).value();
}

memory::testing::FakeWindowOptions WindowsOf(const memory::ArenaSizes& sizes, uint32_t page_size) {
  return {.window_size = sizes.window_size_max,
          .window_size_min = sizes.window_size_min,
          .arena_max_bytes = sizes.max_bytes,
          .windows_max = sizes.windows_max,
          .page_size = page_size,
          .without_memory = true};
}

}  // namespace

void Node::Sink::OnReply(SessionId, const tiering::Reply& reply) {
  code = reply.code;
  detail = reply.detail;
  ++replies;
  leases.clear();
  for (const proto::SpanRecord& span : reply.spans) {
    if (leases.empty() || leases.back().value != span.lease) leases.push_back({0, 0, 0, span.lease});
  }
}

Node::Node(const NodeOptions& options)
    : sizes_(SizesOf(options.arena_bytes)), windows_(WindowsOf(sizes_, options.page_size)) {
  windows_.SetSizes(sizes_);
  for (const uint32_t blocks : options.devices) extents_.AddDevice(blocks);
  storage::TransferPort& transfers = options.transfers == nullptr ? instant_transfers_ : *options.transfers;
  engine_ = std::make_unique<tiering::Engine>(tiering::EngineOptions{},
                                              tiering::EnginePorts{.windows = windows_,
                                                                   .extents = extents_,
                                                                   .transfers = transfers,
                                                                   .manifests = nullptr,
                                                                   .replies = sink_,
                                                                   .copier = options.moves ? &copies_ : nullptr});
}

void Node::Open(uint32_t job, uint32_t uid, uint32_t sessions, uint64_t guarantee_bytes) {
  TIER_CHECK(sessions < kSessionsMax, "{} sessions", sessions);
  const Status opened =
      engine_->OpenJob(JobId{job}, {.key = std::to_string(job), .uid = uid, .guarantee_bytes = guarantee_bytes});
  TIER_CHECK(opened.has_value(), "job {}: {}", job, opened.error().message);
  for (uint32_t session = 0; session < sessions; ++session) {
    TIER_CHECK(engine_->OpenSession(IdOf(job, session), JobId{job}).has_value(), "session {}", session);
  }
}

bool Node::Turn() {
  now_ = now_ + std::chrono::microseconds(1);
  const bool progress = engine_->Turn(now_);
  for (const auto& [session, window] : std::exchange(sink_.asked_back, {})) engine_->WindowReturned(session, window);
  return progress;
}

Code Node::Ask(SessionId session, proto::Op op, std::span<const proto::RequestItem> items) {
  const uint64_t before = sink_.replies;
  engine_->Submit(session, {.sequence = ++sequence_, .op = op, .flags = 0, .items = items, .text = {}});
  for (int turn = 0; sink_.replies == before; ++turn) {
    TIER_CHECK(turn < kTurnsMax, "no answer after {} turns", turn);
    Turn();
    const auto deadline = engine_->NextDeadline();
    // Not to the request's own deadline at once: what it waits for may take turns that no deadline announces.
    if (sink_.replies == before && turn > 100 && deadline) now_ = std::max(now_, std::min(*deadline, now_ + kStepMax));
  }
  return sink_.code;
}

bool Node::Put(uint32_t job, uint32_t session, uint64_t tensor, uint64_t bytes) {
  const proto::RequestItem item{tensor, 0, 0, bytes};
  if (Ask(IdOf(job, session), proto::Op::kCreate, {&item, 1}) != Code::kOk) return false;
  const std::vector<proto::RequestItem> leases = std::exchange(sink_.leases, {});
  TIER_CHECK(Ask(IdOf(job, session), proto::Op::kRelease, leases) == Code::kOk, "tensor {}", tensor);
  return true;
}

Code Node::Read(uint32_t job, uint32_t session, uint64_t tensor) {
  std::vector<proto::RequestItem> leases;
  const Code code = Lease(job, session, tensor, &leases);
  if (code == Code::kOk) Release(job, session, leases);
  return code;
}

Code Node::Lease(uint32_t job, uint32_t session, uint64_t tensor, std::vector<proto::RequestItem>* leases) {
  const proto::RequestItem item{tensor, 0, 0, 0};
  const Code code = Ask(IdOf(job, session), proto::Op::kAcquire, {&item, 1});
  if (code == Code::kOk) *leases = std::exchange(sink_.leases, {});
  return code;
}

void Node::Release(uint32_t job, uint32_t session, const std::vector<proto::RequestItem>& leases) {
  TIER_CHECK(Ask(IdOf(job, session), proto::Op::kRelease, leases) == Code::kOk, "job {}", job);
}

void Node::FreeTensor(uint32_t job, uint32_t session, uint64_t tensor) {
  const proto::RequestItem item{tensor, 0, 0, 0};
  TIER_CHECK(Ask(IdOf(job, session), proto::Op::kFree, {&item, 1}) == Code::kOk, "tensor {}", tensor);
}

void Node::EndJob(uint32_t job) { engine_->EndSession(IdOf(job, 0), Code::kDisconnected, "it has ended", JobId{job}); }

void Node::TurnsFor(uint64_t bytes) {
  for (uint64_t turn = 0; turn < bytes / kBytesForTurn && Turn(); ++turn) now_ = now_ + kTurn;
}

void Node::Pass(base::Duration time) {
  now_ = now_ + time;
  Turn();
}

void Node::Settle() {
  bool progress = true;
  for (int turn = 0; turn < 300 || progress; ++turn) {
    TIER_CHECK(turn < kTurnsMax, "no end after {} turns", turn);
    progress = Turn();
    if (const auto deadline = engine_->NextDeadline()) now_ = std::max(now_, *deadline);
  }
}

}  // namespace tier::held
