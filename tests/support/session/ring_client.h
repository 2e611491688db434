// RingClient: the client's end of a session region, for tests: honest by default, and able to write any nonsense.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::session::testing {

struct ReceivedCompletion {
  proto::CompletionHeader header{};
  std::vector<proto::SpanRecord> spans;  // With OK.
  proto::ErrorRecord error{};            // Otherwise.
  proto::TensorRecord tensor{};          // The first record, taken as one.
  std::string detail;
};

class RingClient {
 public:
  // `descriptor` is the session region.
  explicit RingClient(int descriptor)
      : mapping_(proto::Mapping::Map(descriptor, 0, proto::kSessionRegionSize, proto::Access::kReadWrite).value()),
        requests_(proto::RequestRing(mapping_.data())),
        completions_(proto::CompletionRing(mapping_.data())) {}

  std::byte* region() { return mapping_.data(); }
  proto::RingControl& request_control() { return *proto::RequestRing(mapping_.data()).control; }
  proto::RingControl& completion_control() { return *proto::CompletionRing(mapping_.data()).control; }
  uint64_t next_sequence() const { return sequence_ + 1; }

  // A well-formed message of `items`, staged and published. False: no room.
  bool Send(proto::Op op, std::span<const proto::RequestItem> items, uint32_t flags = 0, uint64_t argument = 0) {
    const auto count = static_cast<uint32_t>(items.size());
    std::vector<proto::RequestEntry> entries(proto::EntriesForRecords(count));
    entries[0].header = {.sequence = sequence_ + 1,
                         .op = static_cast<uint16_t>(op),
                         .entries = static_cast<uint16_t>(entries.size()),
                         .flags = flags,
                         .item_count = count,
                         .timeout_ms = 0,
                         .argument = argument};
    if (count > 0) std::memcpy(static_cast<void*>(&entries[0].first), items.data(), items.size_bytes());
    return SendEntries(entries);
  }
  bool SendText(const std::string& text) {
    std::vector<proto::RequestEntry> entries(proto::EntriesForText(static_cast<uint32_t>(text.size())));
    entries[0].header = {.sequence = sequence_ + 1,
                         .op = static_cast<uint16_t>(proto::Op::kIntern),
                         .entries = static_cast<uint16_t>(entries.size()),
                         .item_count = static_cast<uint32_t>(text.size())};
    if (!text.empty()) std::memcpy(static_cast<void*>(entries.data() + 1), text.data(), text.size());
    return SendEntries(entries);
  }
  // Entries as they are: counts as one message.
  bool SendEntries(std::span<const proto::RequestEntry> entries) {
    uint32_t room = 0;
    if (!requests_.Free(&room) || room < entries.size()) return false;
    requests_.Stage(entries.data(), static_cast<uint32_t>(entries.size()));
    requests_.Publish();
    ++sequence_;
    return true;
  }

  // All that is there now.
  std::vector<ReceivedCompletion> Receive(size_t max = SIZE_MAX) {
    std::vector<ReceivedCompletion> received;
    uint32_t ready = 0;
    while (received.size() < max && completions_.Ready(&ready) && ready > 0) {
      proto::CompletionEntry first;
      completions_.Peek(&first, 1);
      std::vector<proto::CompletionEntry> entries(first.header.entries);
      completions_.Peek(entries.data(), first.header.entries);
      received.push_back(Decode(entries));
      completions_.Consume(first.header.entries);
    }
    return received;
  }

 private:
  static ReceivedCompletion Decode(const std::vector<proto::CompletionEntry>& entries) {
    ReceivedCompletion completion;
    completion.header = entries[0].header;
    completion.error = entries[0].first.error;
    completion.tensor = entries[0].first.tensor;
    if (completion.header.code != 0) {
      completion.detail.assign(reinterpret_cast<const char*>(entries.data() + 1), completion.header.detail_length);
      return completion;
    }
    completion.spans.resize(completion.header.record_count);
    const size_t bytes = completion.spans.size() * sizeof(proto::SpanRecord);
    if (bytes != 0) std::memcpy(completion.spans.data(), &entries[0].first, bytes);
    return completion;
  }

  proto::Mapping mapping_;
  proto::RingProducer requests_;
  proto::RingConsumer completions_;
  uint64_t sequence_ = 0;
};

}  // namespace tier::session::testing
