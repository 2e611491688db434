// Pending: one request on its way, and its answer once that has come. Pooled by the RequestTable and never freed before
// it, so that a late wake-up can never touch freed memory; buffers keep their capacity from one request to the next.
//
// The thread that submitted a request owns it until Channel::Finish. `done` is written once, by whichever thread drains
// the completion ring.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/message.h"
#include "proto/result.h"

namespace tier::client {

// The class whose quota a request's room on the rings is taken from. Each class has a fixed quota, so that no class
// waits for another: a release may be sent under the caller's locks, a call must be possible whatever was started
// before, and a started request keeps its credit until its caller collects the answer, which may be never.
enum class Credit : uint8_t { kCall, kRelease, kStarted };
inline constexpr size_t kCreditClasses = 3;
inline constexpr std::array<uint32_t, kCreditClasses> kCreditQuota = {
    320,  // kCall: 192 for the ranges of swaps (two each of 64 active ones, and a full byte budget of blocks), and one
          // for each of 128 threads inside a call.
    192,  // kRelease: releases that the daemon has not read yet. When half of them are unread, the doorbell is rung.
    512,  // kStarted: one for each started call whose outcome is not collected.
};
constexpr uint32_t QuotaOf(Credit credit) { return kCreditQuota[static_cast<size_t>(credit)]; }
static_assert(kCreditQuota[0] + kCreditQuota[1] + kCreditQuota[2] == proto::kRequestsOutstandingMax);

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
    return {reinterpret_cast<const proto::SpanRecord*>(&answer_.front().first),
            code() == Code::kOk ? header().record_count : 0};
  }
  // OK, or the daemon's sentence.
  Status ToStatus() const;
  // The record that answers a kStat (the channel has checked that there is one), or the reason why there is none.
  Result<proto::TensorRecord> Tensor() const;

  // ---- For the channel ----
  struct Order {  // One request, as it was sent.
    proto::Op op = proto::Op::kNone;
    Credit credit = Credit::kCall;
    bool detached = false;  // No thread waits: the thread that drains the ring finishes it.
    Group* group = nullptr;
    uint64_t sequence = 0;
    std::chrono::milliseconds answer_by{};  // By the channel's own clock. If it is unanswered then, the daemon hangs.
  };
  void Begin(const Order& order) {
    done_.store(false, std::memory_order_relaxed);
    order_ = order;
  }
  const Order& order() const { return order_; }
  void Leave() { order_.sequence = 0; }  // Back in the pool.
  // Room for an answer of so many ring entries, copied out of shared memory.
  std::span<proto::CompletionEntry> AnswerBuffer(uint32_t entries) {
    if (answer_.size() < entries) answer_.resize(entries);
    return std::span(answer_).first(entries);
  }
  void End(std::memory_order order) { done_.store(true, order); }

 private:
  const proto::CompletionHeader& header() const { return answer_.front().header; }

  std::atomic<bool> done_{false};
  Order order_;
  std::vector<proto::CompletionEntry> answer_;  // The whole message as it came.
};

// Open addressing from sequence to Pending, never more than half full: no allocation after construction.
class PendingTable {
 public:
  PendingTable();
  void Insert(uint64_t sequence, Pending* pending);
  Pending* Take(uint64_t sequence);  // Null when there is none.
  uint32_t count() const { return count_; }
  // A request for which `predicate` holds; null when there is none. Looks at all.
  template <typename Predicate>
  const Pending* Find(Predicate predicate) const {
    for (const Entry& entry : entries_) {
      if (entry.sequence != 0 && predicate(*entry.pending)) return entry.pending;
    }
    return nullptr;
  }

 private:
  static constexpr uint32_t kEntries = 2 * proto::kRequestsOutstandingMax;
  struct Entry {
    uint64_t sequence = 0;  // 0: empty
    Pending* pending = nullptr;
  };
  static uint32_t Home(uint64_t sequence) { return static_cast<uint32_t>(sequence) & (kEntries - 1); }
  void CloseGap(uint32_t gap);

  std::vector<Entry> entries_;
  uint32_t count_ = 0;
};

}  // namespace tier::client
