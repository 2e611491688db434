// How a SimClient uses its Link: what it sends, what it hears, and what it holds its channel to. See client.h.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "daemon/session/request_decoder.h"
#include "tests/sim/client.h"

namespace tier::tiering::sim {

using proto::Op;

namespace {

// Beyond its deadline, in which a request may still lie in its ring, and an answer on its way.
constexpr base::Duration kAnswerTime = std::chrono::milliseconds(50);
// A hostile client has a thousand requests that end at one time, and a turn ends some of them.
constexpr base::Duration kAnswerTimeAmongHostiles = std::chrono::milliseconds(1000);
// A turn with little work looks at one request or two, and others are before it.
constexpr base::Duration kAnswerTimeWithLittleWork = std::chrono::milliseconds(200);
constexpr base::Duration kRingTime = std::chrono::milliseconds(500);
constexpr uint64_t kSendsPerSleep = 4;  // Of all clients: somebody sleeps about half of the time.
constexpr base::Duration kLateCheckPeriod = std::chrono::seconds(1);

bool SameBytes(std::span<const proto::SpanRecord> a, std::span<const proto::SpanRecord> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// "… (and 3 more failed after it)": 3.
size_t MoreFailures(std::string_view text) {
  const size_t at = text.rfind(" (and ");
  return at == std::string_view::npos ? 0 : std::strtoull(text.data() + at + 6, nullptr, 10);
}

}  // namespace

SimClient::SimClient(Surroundings& surroundings, SessionId session, AttachedSession attached,
                     const LinkOptions& options)
    : world_(surroundings),
      session_(session),
      job_(attached.job),
      waiter_(surroundings.now, surroundings.chance,
              [this] {
                world_.step();
                if (world_.failed()) link_.channel().End(Code::kDisconnected, "the run has failed");
              }),
      link_(std::move(attached), options, waiter_),
      late_check_(surroundings.now) {}

void SimClient::Send(PendingRequest request) {
  const auto timeout_ms = static_cast<uint32_t>(world_.chance.Between(1, 200));
  request.timeout = std::chrono::milliseconds(timeout_ms);
  request.deadline = world_.now + request.timeout;
  const bool detached = request.released.has_value();  // As libtier sends all releases.
  const bool reads = detached && !request.released->write && (request.flags == 0);
  const client::Submission submission{.op = request.op,
                                      .flags = request.flags,
                                      .timeout_ms = timeout_ms,
                                      .items = request.items,
                                      .text = request.text,
                                      .can_wait = reads && request.released->tensor->space != 0};
  if (!Put(submission, detached)) return;
  const bool waits = request.op == Op::kCreate || request.op == Op::kAcquire || request.op == Op::kFree;
  pending_[sequence_] = std::move(request);
  const bool sleeps = waits && !world_.somebody_sleeps && world_.chance.OneIn(kSendsPerSleep * world_.plan.clients);
  if (sleeps) Sleep(sequence_);
}

bool SimClient::Put(const client::Submission& submission, bool detached) {
  client::Channel& channel = link_.channel();
  client::Pending* sent = nullptr;
  bool room = false;
  if (detached) {
    const auto put = channel.TrySubmitDetached(submission);
    if (!put) return false;
    room = *put;
  } else {
    const auto credit = world_.chance.OneIn(2) ? client::Credit::kCall : client::Credit::kStarted;
    const auto put = channel.TrySubmit(submission, credit, nullptr);
    if (!put) return false;
    sent = *put;
    room = sent != nullptr;
  }
  if (!room) {
    world_.fail(
        fmt::format("session {}: no room for a request, {} wait", static_cast<uint64_t>(session_), pending_.size()));
    return false;
  }
  on_channel_[++sequence_] = sent;
  if (sent != nullptr && sent->order().sequence != sequence_) world_.fail("the channel counts otherwise");
  return true;
}

void SimClient::Sleep(uint64_t sequence) {
  const client::Pending* const pending = on_channel_.at(sequence);
  const bool patient = !world_.chance.OneIn(4);
  const auto deadline =
      patient ? client::Clock::time_point::max() : waiter_.Now() + std::chrono::milliseconds(world_.chance.Below(50));
  asleep_ = world_.somebody_sleeps = true;
  const Status waited = link_.channel().Wait(pending, deadline);
  asleep_ = world_.somebody_sleeps = false;
  if (dead_ || world_.failed()) return;
  const bool in_time = waited ? pending->done() : waited.error().code == Code::kTimeout && waiter_.Now() >= deadline;
  if (!in_time) world_.fail(waited ? "a wait ended without an answer" : "a wait failed: " + waited.error().message);
}

void SimClient::OnSubmit(uint64_t sequence) {
  const auto found = pending_.find(sequence);
  if (found == pending_.end() || found->second.submitted) {
    world_.fail(fmt::format("session {}: the engine is given request {}, which was not sent",
                            static_cast<uint64_t>(session_), sequence));
    return;
  }
  PendingRequest& request = found->second;
  if (session::ShapeOf(static_cast<uint16_t>(request.op)) == nullptr) world_.fail("the engine is given no operation");
  request.submitted = true;
  request.turn = world_.turns;
  request.deadline = world_.now + request.timeout;
  for (const TensorPtr& tensor : request.tensors) {
    request.torn = request.torn || tensor->any_torn();
    request.early = request.early || tensor->coming;
    request.swaps.push_back(tensor->swaps);
  }
  if (request.effects) request.effects();
}

bool SimClient::heard() const {
  return std::all_of(pending_.begin(), pending_.end(), [](const auto& entry) { return entry.second.submitted; });
}

void SimClient::Expect(const PendingRequest& request, const Reply& reply) {
  const auto sent = on_channel_.find(reply.sequence);
  if (sent->second == nullptr) {
    if (reply.code != Code::kOk) release_failures_.emplace_back(reply.detail);
    on_channel_.erase(sent);
    return;
  }
  ExpectedAnswer& expected = expected_[reply.sequence];
  expected.code = reply.code;
  expected.value = reply.value;
  expected.spans.assign(reply.spans.begin(), reply.spans.end());
  expected.detail = reply.detail.substr(0, proto::kDetailLengthMax);
  if (request.op == Op::kStat && reply.tensor != nullptr) expected.tensor = *reply.tensor;
  expected.given = world_.now;
}

void SimClient::Listen() {
  if (dead_ || asleep_) return;
  while (link_.has_packets() && world_.chance.OneIn(2)) ServePacket();
  client::Channel& channel = link_.channel();
  channel.Poll();
  TakeAnswers();
  TakeFailures();
  if (channel.ended() && !world_.failed()) world_.fail("a channel ended: " + channel.end_reason().message);
  if (world_.chance.OneIn(16)) {
    if (const Status sound = channel.CheckInvariants(); !sound) world_.fail(sound.error().message);
  }
  const base::Duration elapsed = world_.now - late_check_;
  if (elapsed < kLateCheckPeriod) return;
  late_check_ = world_.now;
  const Status on_time = channel.CheckForLate(std::chrono::duration_cast<std::chrono::milliseconds>(elapsed));
  if (!on_time) world_.fail(on_time.error().message);
}

void SimClient::ServePacket() {
  const auto returned = link_.ServePacket();
  if (!returned) {
    world_.fail(fmt::format("session {}: {}", static_cast<uint64_t>(session_), returned.error().message));
  } else if (*returned) {
    world_.window_returned(session_, **returned);
  }
}

void SimClient::TakeAnswers() {
  for (auto at = on_channel_.begin(); at != on_channel_.end();) {
    const auto [sequence, pending] = *at;
    if (pending == nullptr || !pending->done()) {
      ++at;
      continue;
    }
    at = on_channel_.erase(at);
    Compare(sequence, *pending);
    link_.channel().Finish(pending);
    for (HeldLease& lease : leases_) {
      if (lease.request == sequence) TakeLease(&lease);
    }
  }
}

void SimClient::Compare(uint64_t sequence, const client::Pending& answer) {
  const auto found = expected_.find(sequence);
  if (found == expected_.end()) {
    world_.fail(fmt::format("session {}: request {} is answered, but not by the engine",
                            static_cast<uint64_t>(session_), sequence));
    return;
  }
  const ExpectedAnswer expected = std::move(found->second);
  expected_.erase(found);
  bool same = answer.code() == expected.code && answer.value() == expected.value;
  if (!expected.tensor) same = same && SameBytes(answer.spans(), expected.spans);
  if (const Status status = answer.ToStatus(); !status) same = same && status.error().message == expected.detail;
  if (same && expected.tensor) {
    const proto::TensorRecord record = answer.Tensor().value();
    same = std::memcmp(&record, &*expected.tensor, sizeof record) == 0;
  }
  if (!same) {
    world_.fail(fmt::format("session {}: request {} was answered {}, and {} came out of the channel",
                            static_cast<uint64_t>(session_), sequence, CodeName(expected.code),
                            CodeName(answer.code())));
  }
}

void SimClient::TakeFailures() {
  const auto failure = link_.channel().TakeReleaseFailure();
  if (!failure) return;
  const size_t count = 1 + MoreFailures(failure->message);
  if (count > release_failures_.size() || !failure->message.starts_with(release_failures_.front())) {
    world_.fail("a release failed, says the channel, and not the engine: " + failure->message);
    return;
  }
  release_failures_.erase(release_failures_.begin(), release_failures_.begin() + static_cast<ptrdiff_t>(count));
}

// From here on it works through its own mapping.
void SimClient::TakeLease(HeldLease* lease) {
  for (size_t i = 0; i < lease->spans.size(); ++i) {
    const proto::SpanRecord& span = lease->spans[i];
    if (!Maps(span)) {
      world_.fail(fmt::format("session {}: a lease in window {}, which the client does not have",
                              static_cast<uint64_t>(session_), span.window));
      return;
    }
    link_.windows().AddLease(span.window);
    lease->patches[i].memory = link_.windows().AddressOf(span.window, span.offset);
  }
  lease->delivered = true;
  if (!lease->write) VerifyRead(*lease, "when delivered");
}

void SimClient::GiveLease(const HeldLease& lease) {
  for (const proto::SpanRecord& span : lease.spans) link_.windows().DropLease(span.window);
}

// A window that a grant names may be on its way: libtier waits for it.
bool SimClient::Maps(const proto::SpanRecord& span) {
  constexpr std::chrono::milliseconds kAtOnce{0};
  while (!link_.windows().Await(span, kAtOnce)) {
    if (!link_.has_packets()) return false;
    ServePacket();
  }
  return true;
}

void SimClient::CheckDeadlines() {
  const tiering::WorkUnits usual;
  const tiering::WorkUnits& work = world_.plan.work;
  const bool little = work.wake < usual.wake || work.share < usual.share || work.look < usual.look;
  const base::Duration answer_time = world_.plan.hostiles != 0 ? kAnswerTimeAmongHostiles
                                     : little                  ? kAnswerTimeWithLittleWork
                                                               : kAnswerTime;
  const base::Duration ring_time = std::max(kRingTime, answer_time);
  for (const auto& [sequence, request] : pending_) {
    const base::Duration late = world_.now - request.deadline;
    if (late <= (request.submitted ? answer_time : ring_time)) continue;
    world_.fail(fmt::format("session {}: request {} (operation {}) is not {} {} ms after its deadline",
                            static_cast<uint64_t>(session_), sequence, static_cast<int>(request.op),
                            request.submitted ? "answered" : "taken from its ring", late.count() / 1'000'000));
  }
  for (const auto& [sequence, expected] : expected_) {
    const base::Duration late = world_.now - expected.given;
    if (late <= kRingTime) continue;
    world_.fail(fmt::format("session {}: the answer to request {} is not delivered after {} ms",
                            static_cast<uint64_t>(session_), sequence, late.count() / 1'000'000));
  }
}

}  // namespace tier::tiering::sim
