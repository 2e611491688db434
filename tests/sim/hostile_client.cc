// See hostile_client.h.
#include "tests/sim/hostile_client.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tier::tiering::sim {
namespace {

using proto::Op;

constexpr uint64_t kNames = 8;  // Of its tensors.
constexpr size_t kPendingMax = 64;
constexpr std::array kOps = {Op::kCreate, Op::kAcquire, Op::kRelease, Op::kRelease, Op::kFree,
                             Op::kStat,   Op::kStep,    Op::kDrop,    Op::kPrefetch};

}  // namespace

HostileClient::HostileClient(const base::TimePoint& now, Chance& chance, std::function<uint64_t()> some_lease,
                             AttachedSession attached, const LinkOptions& options)
    : chance_(chance),
      some_lease_(std::move(some_lease)),
      waiter_(now, chance, [] {}),
      link_(std::move(attached), options, waiter_),
      by_hand_(chance.OneIn(2)),
      requests_(proto::RequestRing(link_.region())),
      completions_(proto::CompletionRing(link_.region())) {}

void HostileClient::Act() {
  ServePackets();
  if (chance_.OneIn(200)) wants_to_die_ = true;
  if (chance_.OneIn(30)) {
    for (uint64_t i = chance_.Below(200); i != 0; --i) link_.RingDoorbell();
  }
  if (by_hand_) return WriteByHand();
  for (uint64_t i = chance_.Below(4); i != 0; --i) Ask();
  if (chance_.OneIn(12)) FlipSomewhere();
  link_.channel().Poll();
  if (link_.channel().ended()) wants_to_die_ = true;  // A program cannot go on then.
  std::erase_if(pending_, [this](client::Pending* pending) {
    if (!pending->done()) return false;
    link_.channel().Finish(pending);
    return true;
  });
}

// It answers what the daemon asks back, or it does not.
void HostileClient::ServePackets() {
  while (link_.has_packets() && !chance_.OneIn(8)) (void)link_.ServePacket();
}

proto::RequestItem HostileClient::Item() {
  const uint64_t lease = chance_.OneIn(2) ? some_lease_() : chance_.Any();
  return {.tensor = chance_.Between(1, kNames), .offset = 0, .length = 0, .value = lease};
}

void HostileClient::Ask() {
  const Op op = kOps[chance_.Below(kOps.size())];
  proto::RequestItem item = Item();
  if (op == Op::kCreate) item.value = chance_.Between(1, 64 * kKiB);
  if (op != Op::kCreate && op != Op::kRelease) item.value = 0;
  client::Submission submission{
      .op = op, .timeout_ms = static_cast<uint32_t>(chance_.Between(1, 100)), .items = {&item, 1}, .text = {}};
  if (op == Op::kStep) submission.items = {};
  if (op == Op::kAcquire && chance_.OneIn(2)) submission.flags = proto::kFlagWrite;
  if (op == Op::kRelease && chance_.OneIn(2)) {
    (void)link_.channel().TrySubmitDetached(submission);
    return;
  }
  if (pending_.size() >= kPendingMax) return;
  const auto put = link_.channel().TrySubmit(submission, client::Credit::kCall, nullptr);
  if (put && *put != nullptr) pending_.push_back(*put);
}

void HostileClient::Flip(uint64_t first, uint64_t bytes) {
  for (uint64_t i = chance_.Between(1, 4); i != 0; --i) {
    link_.region()[first + chance_.Below(bytes)] ^= std::byte{static_cast<uint8_t>(1u << chance_.Below(8))};
  }
}

// In the header page, in the positions of the rings, in the message that was published last, or anywhere.
void HostileClient::FlipSomewhere() {
  const proto::RingView requests = proto::RequestRing(link_.region());
  const uint64_t last = requests.control->tail.load() - 1;
  switch (chance_.Below(5)) {
    case 0: return Flip(0, sizeof(proto::SessionHeader));
    case 1: return Flip(proto::kControlOffset, 2 * sizeof(proto::RingControl));
    case 2:
    case 3: return Flip(static_cast<uint64_t>(requests.Entry(last) - link_.region()), proto::kEntrySize);
    default: return Flip(0, proto::kSessionRegionSize);
  }
}

std::vector<proto::RequestEntry> HostileClient::Message() {
  const Op op = kOps[chance_.Below(kOps.size())];
  const uint32_t count = op == Op::kStep ? 0 : op == Op::kStat ? 1 : static_cast<uint32_t>(chance_.Between(1, 40));
  std::vector<proto::RequestEntry> entries(proto::EntriesForRecords(count));
  entries[0].header = {.sequence = ++sequence_,
                       .op = static_cast<uint16_t>(op),
                       .entries = static_cast<uint16_t>(entries.size()),
                       .flags = 0,
                       .item_count = count,
                       .timeout_ms = static_cast<uint32_t>(chance_.Between(1, 100)),
                       .argument = 0};
  proto::RequestItem* const items = &entries[0].first;
  for (uint32_t i = 0; i < count; ++i) {
    proto::RequestItem item = Item();
    if (op == Op::kCreate) item.value = chance_.Between(1, 64 * kKiB);
    if (op != Op::kCreate && op != Op::kRelease) item.value = 0;
    std::memcpy(static_cast<void*>(items + i), &item, sizeof item);
  }
  return entries;
}

// The first `count` entries, if there is room; a hostile client does not care about credits.
void HostileClient::Publish(const std::vector<proto::RequestEntry>& entries, size_t count) {
  uint32_t room = 0;
  if (!requests_.Free(&room) || room < count) {
    --sequence_;
    return;
  }
  requests_.Stage(entries.data(), static_cast<uint32_t>(count));
  requests_.Publish();
  if (!chance_.OneIn(8)) link_.RingDoorbell();
}

void HostileClient::WriteByHand() {
  uint32_t ready = 0;
  if (chance_.OneIn(3) && completions_.Ready(&ready)) completions_.Consume(ready);
  switch (chance_.Below(60)) {
    case 0: {  // Part of a message; what comes next looks like the rest of it, or nothing comes.
      const std::vector<proto::RequestEntry> entries = Message();
      Publish(entries, 1 + chance_.Below(entries.size()));
      wants_to_die_ = chance_.OneIn(2);
      return;
    }
    case 1: {  // A field is wrong.
      std::vector<proto::RequestEntry> entries = Message();
      auto* const bytes = reinterpret_cast<std::byte*>(entries.data());
      bytes[chance_.Below(sizeof(proto::RequestEntry))] ^= std::byte{static_cast<uint8_t>(1u << chance_.Below(8))};
      return Publish(entries, entries.size());
    }
    case 2: return FlipSomewhere();
    case 3: {  // A position that cannot be.
      std::atomic<uint64_t>& position = chance_.OneIn(2) ? proto::RequestRing(link_.region()).control->tail
                                                         : proto::CompletionRing(link_.region()).control->head;
      position.store(chance_.OneIn(2) ? chance_.Any() : position.load() + chance_.Between(1, 3000));
      return;
    }
    case 4:
    case 5: {  // All that the ring holds.
      for (uint32_t i = 0; i < proto::kRequestEntries; ++i) {
        const std::vector<proto::RequestEntry> entries = Message();
        Publish(entries, entries.size());
      }
      return;
    }
    default: {
      for (uint64_t i = chance_.Below(20); i != 0; --i) {
        const std::vector<proto::RequestEntry> entries = Message();
        Publish(entries, entries.size());
      }
    }
  }
}

}  // namespace tier::tiering::sim
