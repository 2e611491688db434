// Pending: one request on its way, and the answer once it is there. Pooled by the channel, never freed before it, so
// that a late wake-up can never touch freed memory; buffers keep their capacity from one request to the next.
//
// The one who submitted owns it until Channel::Finish. `done` is written once by whichever thread drains the ring.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/message.h"
#include "proto/result.h"

namespace tier::client {

// Counts completions of several requests, so that one thread can wait for any of them.
struct Group {
  std::atomic<uint64_t> events{0};
};

class Pending {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }

  // The answer. REQUIRES: done().
  Code code() const { return static_cast<Code>(header().code); }
  uint64_t value() const { return header().value; }
  std::span<const proto::SpanRecord> spans() const {
    return {reinterpret_cast<const proto::SpanRecord*>(records()), code() == Code::kOk ? header().record_count : 0};
  }
  const proto::TensorRecord& tensor() const { return *reinterpret_cast<const proto::TensorRecord*>(records()); }
  bool has_record() const { return header().record_count > 0; }
  // OK, or the daemon's sentence.
  Status ToStatus() const;

 private:
  friend class Channel;
  const proto::CompletionHeader& header() const { return slots_.front().header; }
  const void* records() const { return &slots_.front().first; }

  std::atomic<bool> done_{false};
  bool detached_ = false;  // Nobody waits: the drainer finishes it.
  proto::Op op_ = proto::Op::kNone;
  std::chrono::milliseconds answer_by_{};  // By the channel's watch: unanswered then, the daemon hangs.
  Group* group_ = nullptr;
  uint64_t sequence_ = 0;
  std::vector<proto::CompletionSlot> slots_;  // The whole message as it came, copied out of shared memory.
};

// Open addressing from sequence to Pending, never more than half full: no allocation after construction.
class PendingTable {
 public:
  PendingTable();
  void Insert(uint64_t sequence, Pending* pending);
  Pending* Take(uint64_t sequence);  // Null when there is none.
  // Any of which `predicate` holds; null when there is none. Looks at all.
  template <typename Predicate>
  const Pending* Find(Predicate predicate) const {
    for (const Entry& entry : entries_) {
      if (entry.sequence != 0 && predicate(*entry.pending)) return entry.pending;
    }
    return nullptr;
  }

 private:
  static constexpr uint32_t kSlots = 2 * proto::kRequestsOutstandingMax;
  struct Entry {
    uint64_t sequence = 0;  // 0: empty
    Pending* pending = nullptr;
  };
  static uint32_t Home(uint64_t sequence) { return static_cast<uint32_t>(sequence) & (kSlots - 1); }
  void CloseGap(uint32_t gap);

  std::vector<Entry> entries_;
};

}  // namespace tier::client
