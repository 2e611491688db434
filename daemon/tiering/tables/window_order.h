// WindowOrder: of each job, the windows that can be taken from it, those with least to move first. Engine thread only.
//
// The idea: a window stands in the list of its rank, and its rank changes with what lies in it, so no search through
// windows finds those that cost least. Empty windows come first, the smaller ones before the larger. Others are
// ranked by the pages in use: exactly up to 16 pages, from there on in steps of an eighth; of the same step, windows of
// which every piece is on SSD as well come first. A change costs some nanoseconds, as it may come with each lease.
//
// Memory: 12 bytes a window, and kRanks × 4 bytes for each job that there is at a time. Only a new job allocates.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/units.h"

namespace tier::tiering {

inline constexpr uint32_t kExactPages = 16;       // Up to so many pages each number has a step of its own …
inline constexpr uint32_t kStepsPerDoubling = 8;  // … and each doubling from there on has so many.
constexpr uint32_t StepOfPages(uint32_t pages) {
  if (pages < kExactPages) return pages;
  const uint32_t doublings = static_cast<uint32_t>(std::bit_width(pages / kExactPages)) - 1;
  return kExactPages + doublings * kStepsPerDoubling + (pages >> (doublings + 1)) % kStepsPerDoubling;
}

class WindowOrder {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Ranks of empty windows, by their sizes, lie below; those of others from here on: of each step the first is that of
  // windows without dirty pieces.
  static constexpr uint32_t kFirstUsed = std::bit_width(kWindowSizeMax / kBlockSize);
  static constexpr uint32_t kRanks = kFirstUsed + 2 * StepOfPages(kWindowSizeMax / kPageSize);

  static constexpr uint32_t RankOfEmpty(uint64_t window_bytes) {
    return static_cast<uint32_t>(std::bit_width(window_bytes / kBlockSize)) - 1;
  }
  static constexpr uint32_t RankOfUsed(uint32_t pages, bool dirty) {
    return kFirstUsed + 2 * (StepOfPages(pages) - 1) + (dirty ? 1 : 0);
  }
  static constexpr bool IsDirty(uint32_t rank) { return rank >= kFirstUsed && (rank - kFirstUsed) % 2 == 1; }

  explicit WindowOrder(uint32_t windows_max) : links_(windows_max) {}

  uint32_t RankOf(WindowIndex window) const { return links_[tier::Value(window)].rank; }
  // The window has that rank among those of the job from now on; kNone: it cannot be taken. REQUIRES: while it has a
  // rank, always the same job.
  void Set(JobIndex job, WindowIndex window, uint32_t rank) {
    Link& link = links_[tier::Value(window)];
    if (link.rank == rank) return;
    if (link.rank != kNone) Unlink(&heads_[Value(job)], link);
    link.rank = rank;
    if (rank == kNone) return;
    if (Value(job) >= heads_.size()) heads_.resize(Value(job) + 1);
    LinkFirst(&heads_[Value(job)], tier::Value(window));
  }

  // Calls visit(window) for windows of the job with ranks in [first, end), those with least to move first, until it
  // returns false. `visit` may take that window out of the order, and change nothing else of it.
  template <typename Visit>
  void ForEach(JobIndex job, uint32_t first, uint32_t end, Visit visit) const {
    if (Value(job) >= heads_.size()) return;
    for (uint32_t rank = NextRank(job, first); rank < end; rank = NextRank(job, rank + 1)) {
      for (uint32_t at = heads_[Value(job)].first[rank]; at != kNone;) {
        const uint32_t next = links_[at].next;
        if (!visit(WindowIndex{at})) return;
        at = next;
      }
    }
  }

  uint64_t bytes() const { return links_.capacity() * sizeof(Link) + heads_.capacity() * sizeof(Heads); }
  void CheckInvariants() const {  // O(windows, and ranks of all jobs).
    uint64_t ranked = 0;
    for (const Link& link : links_) ranked += link.rank != kNone ? 1 : 0;
    uint64_t listed = 0;
    for (const Heads& heads : heads_) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        TIER_CHECK(heads.Marked(rank) == (heads.first[rank] != kNone), "rank {}", rank);
        for (uint32_t at = heads.first[rank]; at != kNone; at = links_[at].next, ++listed) {
          TIER_CHECK(links_[at].rank == rank, "window {} of rank {} is in list {}", at, links_[at].rank, rank);
        }
      }
    }
    TIER_CHECK(listed == ranked, "{} windows are listed of {}", listed, ranked);
  }

 private:
  struct Link {
    uint32_t next = kNone;
    uint32_t previous = kNone;
    uint32_t rank = kNone;
  };
  struct Heads {
    Heads() { first.fill(kNone); }
    bool Marked(uint32_t rank) const { return (marks[rank / 64] >> (rank % 64) & 1) != 0; }
    std::array<uint32_t, kRanks> first;
    std::array<uint64_t, (kRanks + 63) / 64> marks{};  // Bit n: list n has a window.
  };

  uint32_t NextRank(JobIndex job, uint32_t from) const {
    const Heads& heads = heads_[Value(job)];
    for (uint32_t word = from / 64; word < heads.marks.size(); ++word) {
      const uint64_t below = word == from / 64 ? (uint64_t{1} << (from % 64)) - 1 : 0;
      const uint64_t bits = heads.marks[word] & ~below;
      if (bits != 0) return word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
    }
    return kNone;
  }
  void LinkFirst(Heads* heads, uint32_t window) {
    Link& link = links_[window];
    uint32_t& first = heads->first[link.rank];
    link.previous = kNone;
    link.next = first;
    if (first != kNone) links_[first].previous = window;
    first = window;
    heads->marks[link.rank / 64] |= uint64_t{1} << (link.rank % 64);
  }
  void Unlink(Heads* heads, const Link& link) {
    if (link.next != kNone) links_[link.next].previous = link.previous;
    if (link.previous != kNone) {
      links_[link.previous].next = link.next;
      return;
    }
    heads->first[link.rank] = link.next;
    if (link.next == kNone) heads->marks[link.rank / 64] &= ~(uint64_t{1} << (link.rank % 64));
  }

  std::vector<Link> links_;   // By window.
  std::vector<Heads> heads_;  // By job.
};

}  // namespace tier::tiering
