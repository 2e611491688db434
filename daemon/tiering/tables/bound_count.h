// BoundCount: how far the windows are counted that each of some sessions keeps by its leases, and which session keeps
// most beyond its part so far (jobs/forced_return.h). Engine thread only.
//
// A count takes several turns: a session may have millions of pieces under leases. Its leases are counted from the
// newest one on. One that comes meanwhile is newer still, and is not counted. Where the next one ends, the one after it
// is the next. So each lease that a session has from the beginning of its count to the end is counted once, and no
// lease that it took later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/lease_table.h"
#include "daemon/tiering/tables/window_set.h"

namespace tier::tiering {

struct BoundMost {
  SessionId session{};
  uint64_t bound_bytes = 0;   // Of windows that its leases keep for its job …
  uint64_t beyond_bytes = 0;  // … and of these, what lies beyond its part. 0: there is no such session.
};

class BoundCount {
 public:
  void Begin(std::vector<SessionId> sessions) {
    Stop();
    sessions_ = std::move(sessions);
    under_way_ = true;
  }
  void Stop() {
    NextSession();
    sessions_.clear();
    at_ = 0;
    most_ = {};
    under_way_ = false;
  }
  bool under_way() const { return under_way_; }

  bool all_counted() const { return at_ == sessions_.size(); }
  SessionId session() const { return sessions_[at_]; }
  bool begun() const { return begun_; }  // With that session.
  void BeginSession(LeaseIndex newest) {
    TIER_CHECK(under_way_ && !begun_ && bytes_ == 0, "a session is counted, {} bytes so far", bytes_);
    begun_ = true;
    NextLease(newest);
  }
  // What is counted next. kNoLease: the session has no more.
  LeaseIndex lease() const { return lease_; }
  uint32_t piece() const { return piece_; }  // Of the lease.
  void NextPiece() { ++piece_; }
  void NextLease(LeaseIndex next) {
    lease_ = next;
    piece_ = 0;
  }
  void OnLeaseEnded(LeaseIndex lease, LeaseIndex next) {
    if (lease == lease_) NextLease(next);
  }
  void Add(WindowIndex window, uint64_t window_bytes) {
    if (seen_.Contains(window)) return;
    seen_.Add(window);
    bytes_ += window_bytes;
  }
  // All of its leases were counted. What is beyond `part_bytes` is compared.
  void EndSession(uint64_t part_bytes) {
    if (bytes_ > part_bytes && bytes_ - part_bytes > most_.beyond_bytes) {
      most_ = {.session = session(), .bound_bytes = bytes_, .beyond_bytes = bytes_ - part_bytes};
    }
    SkipSession();
  }
  void SkipSession() {  // It is gone.
    ++at_;
    NextSession();
  }
  const BoundMost& most() const { return most_; }

 private:
  void NextSession() {
    if (bytes_ != 0) seen_.Clear();
    bytes_ = 0;
    begun_ = false;
    NextLease(kNoLease);
  }

  bool under_way_ = false;
  std::vector<SessionId> sessions_;
  size_t at_ = 0;
  bool begun_ = false;
  LeaseIndex lease_ = kNoLease;
  uint32_t piece_ = 0;
  WindowSet seen_;      // Those of the session so far, …
  uint64_t bytes_ = 0;  // … and their bytes.
  BoundMost most_;
};

}  // namespace tier::tiering
