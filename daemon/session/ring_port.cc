#include "daemon/session/ring_port.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/request_decoder.h"

namespace tier::session {
namespace {

using proto::CompletionEntry;
using proto::CompletionHeader;

// How many entries a reply takes.
uint32_t EntriesFor(const tiering::Reply& reply) {
  if (reply.code != Code::kOk) {
    const auto length = static_cast<uint32_t>(std::min<size_t>(reply.detail.size(), proto::kDetailLengthMax));
    return proto::EntriesForText(length);
  }
  if (reply.tensor != nullptr) return 1;
  return proto::EntriesForRecords(static_cast<uint32_t>(reply.spans.size()));
}

// Writes a reply's entries; padding is zeroed so that no bytes of another session's answer leave by it.
void Encode(const tiering::Reply& reply, uint32_t entries, CompletionEntry* out) {
  std::memset(static_cast<void*>(out), 0, size_t{entries} * sizeof(CompletionEntry));
  CompletionHeader& header = out->header;
  header.sequence = reply.sequence;
  header.code = static_cast<uint16_t>(reply.code);
  header.entries = static_cast<uint16_t>(entries);
  header.value = reply.value;
  if (reply.code != Code::kOk) {
    header.record_count = 1;
    if (reply.error != nullptr) out->first.error = *reply.error;
    header.detail_length = static_cast<uint32_t>(std::min<size_t>(reply.detail.size(), proto::kDetailLengthMax));
    if (!reply.detail.empty()) std::memcpy(static_cast<void*>(out + 1), reply.detail.data(), header.detail_length);
    return;
  }
  if (reply.tensor != nullptr) {
    header.record_count = 1;
    out->first.tensor = *reply.tensor;
    return;
  }
  header.record_count = static_cast<uint32_t>(reply.spans.size());
  // Records follow the header without a gap.
  if (!reply.spans.empty()) std::memcpy(static_cast<void*>(&out->first), reply.spans.data(), reply.spans.size_bytes());
}

}  // namespace

RingScratch::RingScratch() : requests(proto::kRequestEntries), completion(proto::kCompletionEntriesPerMessageMax) {}

RingPort::RingPort(tiering::SessionId session, proto::Mapping region)
    : session_(session),
      region_(std::move(region)),
      requests_(proto::RequestRing(region_.data())),
      completions_(proto::CompletionRing(region_.data())),
      completion_control_(proto::CompletionRing(region_.data()).control) {
  TIER_CHECK(region_.size() == proto::kSessionRegionSize, "region of {} bytes", region_.size());
  TIER_CHECK(reinterpret_cast<uintptr_t>(region_.data()) % kPageSize == 0, "region at {}", fmt::ptr(region_.data()));
  TIER_CHECK(static_cast<uint64_t>(session_) != 0, "session 0");
}

bool RingPort::HasRequests() const {
  uint32_t ready = 0;
  // An impossible tail counts as something to look at: Receive then ends the session.
  if (!requests_.Ready(&ready)) return true;
  return ready > 0 && backlog_.empty() && outstanding_ < proto::kRequestsOutstandingMax;
}

template <typename TakeNext>
Result<uint32_t> RingPort::Take(tiering::EnginePort& engine, RingScratch& scratch, uint32_t messages_max,
                                TakeNext take_next) {
  uint32_t ready = 0;
  if (!requests_.Ready(&ready)) {
    return Fail(Code::kRevoked, fmt::format("the request ring's tail is impossible (head {})", requests_.head()));
  }
  if (ready == 0 || !backlog_.empty()) return 0;
  TIER_CHECK(outstanding_ <= proto::kRequestsOutstandingMax, "outstanding {}", outstanding_);
  TIER_CHECK(scratch.requests.size() >= proto::kRequestEntries, "scratch of {} entries", scratch.requests.size());
  messages_max = std::min(messages_max, proto::kRequestsOutstandingMax - outstanding_);
  if (messages_max == 0) return 0;
  // What `messages_max` short messages take, and room for one of the longest.
  const uint32_t copied = std::min(ready, messages_max - 1 + proto::kRequestEntriesPerMessageMax);
  requests_.Peek(scratch.requests.data(), copied);
  uint32_t taken = 0;
  uint32_t messages = 0;
  while (messages < messages_max && taken < copied && take_next()) {
    // The copy may end in the middle of a message of which all was published: that one is for the next call.
    if (copied < ready && copied - taken < proto::kRequestEntriesPerMessageMax) break;
    tiering::Request request;
    const auto entries = DecodeRequest({scratch.requests.data() + taken, copied - taken}, sequence_ + 1, &request);
    if (!entries) return std::unexpected(entries.error());
    taken += *entries;
    ++messages;
    ++sequence_;
    ++outstanding_;
    engine.Submit(session_, request);
  }
  TIER_CHECK(taken <= copied && messages <= messages_max, "took {} of {} entries, {} of {} messages", taken, copied,
             messages, messages_max);
  requests_.Consume(taken);
  return messages;
}

Result<uint32_t> RingPort::Receive(tiering::EnginePort& engine, RingScratch& scratch, uint32_t messages_max) {
  return Take(engine, scratch, messages_max, [&] { return engine.TakesRequests() && !engine.HoldsBackNext(session_); });
}

Status RingPort::ReceiveLast(tiering::EnginePort& engine, RingScratch& scratch) {
  const auto taken = Take(engine, scratch, kLastMessagesMax, [] { return true; });
  if (!taken) return std::unexpected(taken.error());
  return {};
}

void RingPort::SubmitInternal(tiering::EnginePort& engine, const tiering::Request& request) {
  TIER_CHECK(request.sequence >= kInternalSequenceFirst, "sequence {}", request.sequence);
  engine.Submit(session_, request);
}

void RingPort::Send(const tiering::Reply& reply, RingScratch& scratch) {
  TIER_CHECK(outstanding_ > 0 && reply.sequence <= sequence_, "session {} outstanding {} sequence {} last {}",
             static_cast<uint64_t>(session_), outstanding_, reply.sequence, sequence_);
  TIER_CHECK(reply.spans.size() <= proto::kSpansPerCompletionMax, "spans {}", reply.spans.size());
  TIER_CHECK(reply.code != Code::kOk || reply.error == nullptr, "an error record with OK");
  TIER_CHECK(reply.tensor == nullptr || reply.spans.empty(), "a tensor record and {} spans", reply.spans.size());
  --outstanding_;
  const uint32_t entries = EntriesFor(reply);
  TIER_CHECK(entries >= 1 && entries <= scratch.completion.size(), "entries {} of {}", entries,
             scratch.completion.size());
  Encode(reply, entries, scratch.completion.data());
  Stage(scratch.completion.data(), entries);
}

void RingPort::Stage(const CompletionEntry* entries, uint32_t count) {
  uint32_t room = 0;
  impossible_head_ |= !completions_.Free(&room);
  if (backlog_.empty() && !impossible_head_ && room >= count) {
    completions_.Stage(entries, count);
    return;
  }
  // Beyond the limit Flush ends the session; what it is not going to read need not be kept.
  if (backlog_.size() * proto::kEntrySize <= kBacklogBytesMax)
    backlog_.insert(backlog_.end(), entries, entries + count);
}

bool RingPort::MoveBacklog() {
  if (backlog_.empty()) return true;
  while (backlog_taken_ < backlog_.size()) {
    const CompletionEntry* message = backlog_.data() + backlog_taken_;
    const size_t left = backlog_.size() - backlog_taken_;
    TIER_CHECK(message->header.entries >= 1 && message->header.entries <= left, "entries {} of {}",
               message->header.entries, left);
    uint32_t room = 0;
    if (!completions_.Free(&room)) return false;
    if (room < message->header.entries) return true;
    completions_.Stage(message, message->header.entries);
    backlog_taken_ += message->header.entries;
  }
  decltype(backlog_)().swap(backlog_);  // Its memory counts as the user's for as long as it is held.
  backlog_taken_ = 0;
  return true;
}

Status RingPort::Flush() {
  if (impossible_head_ || !MoveBacklog()) {
    return Fail(Code::kRevoked, fmt::format("the completion ring's head is impossible (tail {})", completions_.tail()));
  }
  if (backlog_.size() * proto::kEntrySize > kBacklogBytesMax) {
    return Fail(Code::kRevoked,
                fmt::format("{} bytes of answers wait because the completions are not read; the limit is {}",
                            backlog_.size() * proto::kEntrySize, kBacklogBytesMax));
  }
  if (completions_.tail() == published_) return {};
  TIER_CHECK(completions_.tail() > published_, "tail {} published {}", completions_.tail(), published_);
  published_ = completions_.tail();
  completions_.Publish();
  WakeClient();
  return {};
}

void RingPort::WakeClient() {
  // Pairs with the client's fence between setting consumer_waiting and its last look at the tail.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (completion_control_->consumer_waiting.load(std::memory_order_relaxed) == 0) return;
  completion_control_->consumer_waiting.store(0, std::memory_order_relaxed);
  completion_control_->wake_sequence.fetch_add(1, std::memory_order_release);
  ++wakes_;
  (void)::syscall(SYS_futex, &completion_control_->wake_sequence, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Result<SessionRegion> MakeSessionRegion(uint64_t epoch, tiering::SessionId session) {
  auto descriptor = proto::CreateMemoryFile("tierd-session", proto::kSessionRegionSize);
  if (!descriptor) return std::unexpected(std::move(descriptor.error()));
  auto mapping = proto::Mapping::Map(descriptor->get(), 0, proto::kSessionRegionSize, proto::Access::kReadWrite);
  if (!mapping) return std::unexpected(std::move(mapping.error()));
  const proto::SessionHeader header = {.magic = proto::kSessionMagic,
                                       .layout_version = proto::kRingLayoutVersion,
                                       .request_entries = proto::kRequestEntries,
                                       .completion_entries = proto::kCompletionEntries,
                                       .reserved = 0,
                                       .epoch = epoch,
                                       .session = static_cast<uint64_t>(session),
                                       .request_offset = proto::kRequestOffset,
                                       .completion_offset = proto::kCompletionOffset,
                                       .region_size = proto::kSessionRegionSize};
  std::memcpy(mapping->data(), &header, sizeof(header));
  return SessionRegion{std::move(*descriptor), std::move(*mapping)};
}

}  // namespace tier::session
