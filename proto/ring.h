// The shared memory of one session: a header page, two single-producer single-consumer rings of 64-byte entries, and
// the read-only engine page that every client of a daemon maps.
//
//   session region (memfd made by the daemon, sealed against resizing, mapped read-write by both sides)
//     0      SessionHeader         written once by the daemon before the client sees it, never read back by it
//     4096   RingControl requests, RingControl completions
//     8192   request entries, then completion entries (both page-aligned)
//
// Positions count entries since the session began and never wrap (2^64 entries outlast any machine); entry index =
// position mod ring size. The producer publishes `tail` with release order, the consumer `head`. Neither side may crash
// or hang on what it finds in the other's position: it checks `head <= tail <= head + entries` and ends the session
// otherwise.
//
// Sleeping. The daemon looks at the rings of sessions with a message a moment ago, and at others when they ring their
// doorbell. Two words say so: `consumer_waiting` of a session's request ring is set while the daemon does not look at
// that ring, EnginePage::sleeping while it looks at none. The daemon sets either, fences, and looks once more at the
// rings concerned; it sleeps on its eventfds. A client that publishes fences, reads both, and writes its doorbell
// eventfd if one is set (NeedsBell); for releases of its own read leases not while the page says kSleepingPatiently,
// unless half of its ring is used. Client: reads wake_sequence, sets `consumer_waiting`, fences, looks once more,
// FUTEX_WAITs on wake_sequence. The daemon, after publishing: fences, and if consumer_waiting is set clears it,
// increments wake_sequence and FUTEX_WAKEs all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/message.h"
#include "proto/units.h"

namespace tier::proto {

inline constexpr uint64_t kSessionMagic = 0x5353455352454954;  // "TIERSESS"
inline constexpr uint64_t kEngineMagic = 0x45474e4552454954;   // "TIERENGE"
inline constexpr uint32_t kRingLayoutVersion = 2;

struct alignas(64) RingControl {
  alignas(64) std::atomic<uint64_t> tail;           // Producer.
  alignas(64) std::atomic<uint64_t> head;           // Consumer.
  alignas(64) std::atomic<uint32_t> wake_sequence;  // Futex word; completions only.
  std::atomic<uint32_t> consumer_waiting;           // 1 while the consumer has to be woken.
};
static_assert(sizeof(RingControl) == 192 && std::atomic<uint64_t>::is_always_lock_free);
static_assert(offsetof(RingControl, head) == 64 && offsetof(RingControl, wake_sequence) == 128);

struct SessionHeader {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t request_entries;
  uint32_t completion_entries;
  uint32_t reserved;
  uint64_t epoch;
  uint64_t session;
  uint64_t request_offset;  // Bytes from the start of the region.
  uint64_t completion_offset;
  uint64_t region_size;
};
static_assert(sizeof(SessionHeader) == 64);

struct EnginePage {  // One page, mapped read-only by clients (F_SEAL_FUTURE_WRITE).
  uint64_t magic;
  uint64_t epoch;
  alignas(64) std::atomic<uint32_t> sleeping;  // One of kAwake, kSleeping, kSleepingPatiently.
};
inline constexpr uint32_t kAwake = 0;     // Only clients whose ring is not looked at need to ring.
inline constexpr uint32_t kSleeping = 1;  // Ring the doorbell after publishing.
// The same, and no request waits for a read lease to end: such a release may lie in its ring until another event wakes
// the engine, which looks by itself every kReleaseLatenessMaxMs while leases are open.
inline constexpr uint32_t kSleepingPatiently = 2;
inline constexpr uint32_t kReleaseLatenessMaxMs = 100;

// Whether a client that has published, and fenced, has to ring. `can_wait`: all that it published may be found later.
constexpr bool NeedsBell(uint32_t sleeping, bool consumer_waiting, bool can_wait) {
  if (sleeping == kSleepingPatiently) return !can_wait;
  return sleeping != kAwake || consumer_waiting;
}

inline constexpr uint64_t kControlOffset = kPageSize;
inline constexpr uint64_t kRequestOffset = 2 * kPageSize;
inline constexpr uint64_t kCompletionOffset = kRequestOffset + uint64_t{kRequestEntries} * kEntrySize;
inline constexpr uint64_t kSessionRegionSize = kCompletionOffset + uint64_t{kCompletionEntries} * kEntrySize;
static_assert(kCompletionOffset % kPageSize == 0 && kSessionRegionSize % kPageSize == 0);

// One side's view of a ring: pointers into the region, which the view does not own.
struct RingView {
  RingControl* control = nullptr;
  std::byte* entries = nullptr;
  uint32_t entry_count = 0;  // A power of two.
  std::byte* Entry(uint64_t position) const { return entries + (position & (entry_count - 1)) * kEntrySize; }
};
inline RingView RequestRing(std::byte* region) {
  return {reinterpret_cast<RingControl*>(region + kControlOffset), region + kRequestOffset, kRequestEntries};
}
inline RingView CompletionRing(std::byte* region) {
  return {reinterpret_cast<RingControl*>(region + kControlOffset) + 1, region + kCompletionOffset, kCompletionEntries};
}

// The producing side. It keeps its own tail: the one in shared memory is for the other side only. REQUIRES: one thread
// at a time.
class RingProducer {
 public:
  explicit RingProducer(RingView ring) : ring_(ring) {}
  // False if the consumer's head is impossible; else sets *entries_free.
  [[nodiscard]] bool Free(uint32_t* entries_free) const {
    const uint64_t head = ring_.control->head.load(std::memory_order_acquire);
    if (head > tail_ || tail_ - head > ring_.entry_count) return false;
    *entries_free = ring_.entry_count - static_cast<uint32_t>(tail_ - head);
    return true;
  }
  // Copies 64-byte entries behind the tail without publishing them. REQUIRES: Free() said there is room.
  void Stage(const void* source, uint32_t entries);
  // Makes all staged entries visible.
  void Publish() { ring_.control->tail.store(tail_, std::memory_order_release); }
  uint64_t tail() const { return tail_; }
  bool consumer_waiting() const { return ring_.control->consumer_waiting.load(std::memory_order_relaxed) != 0; }

 private:
  RingView ring_;
  uint64_t tail_ = 0;
};

// The consuming side. It keeps its own head. REQUIRES: one thread at a time.
class RingConsumer {
 public:
  explicit RingConsumer(RingView ring) : ring_(ring) {}
  // False if the producer's tail is impossible; else sets *entries_ready.
  [[nodiscard]] bool Ready(uint32_t* entries_ready) const {
    const uint64_t tail = ring_.control->tail.load(std::memory_order_acquire);
    if (tail < head_ || tail - head_ > ring_.entry_count) return false;
    *entries_ready = static_cast<uint32_t>(tail - head_);
    return true;
  }
  // Copies `entries` entries starting `skip` entries behind the head out of shared memory. REQUIRES: that many are
  // ready.
  void Peek(void* target, uint32_t entries, uint32_t skip = 0) const;
  // Gives entries back to the producer, visible at once.
  void Consume(uint32_t entries) {
    head_ += entries;
    ring_.control->head.store(head_, std::memory_order_release);
  }
  uint64_t head() const { return head_; }
  // Setting it is followed by a full fence: a message that Ready() then does not see was published after the fence.
  void SetWaiting(bool waiting) {
    ring_.control->consumer_waiting.store(waiting ? 1 : 0, std::memory_order_relaxed);
    if (waiting) std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  RingView ring_;
  uint64_t head_ = 0;
};

}  // namespace tier::proto
