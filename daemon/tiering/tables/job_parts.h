// What a job holds and has under way, each kind with one owner: its attached sessions, its resume, its windows, its
// transfers and the writes that failed, pages of its tensors. All of it is rebuilt from records. Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/api/pool_view.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/job_windows.h"
#include "daemon/tiering/tables/read_priority.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/result.h"

namespace tier::tiering {

class SessionState;
struct ManifestReplay;

// Its sessions that are attached, in the order of their ids: those in teardown are not among them.
class JobSessions {
 public:
  bool empty() const { return sessions_.empty(); }
  size_t size() const { return sessions_.size(); }
  auto begin() const { return std::views::values(sessions_).begin(); }
  auto end() const { return std::views::values(sessions_).end(); }
  std::vector<SessionState*> list() const { return {begin(), end()}; }
  // The one that comes after `id`. Null: none.
  const SessionState* NextAfter(SessionId id) const {
    const auto next = sessions_.upper_bound(id);
    return next == sessions_.end() ? nullptr : next->second;
  }

  void Attach(SessionId id, SessionState& session) {
    TIER_CHECK(sessions_.emplace(id, &session).second, "session {} is attached twice", static_cast<uint64_t>(id));
  }
  // One of them asked for something, or came.
  void NoteRequest(base::TimePoint now) { requested_at_ = now; }
  base::TimePoint requested_at() const { return requested_at_; }
  void Detach(SessionId id) {
    TIER_CHECK(sessions_.erase(id) == 1, "session {} is none of {} that are attached", static_cast<uint64_t>(id),
               sessions_.size());
  }

 private:
  std::map<SessionId, SessionState*> sessions_;
  base::TimePoint requested_at_;
};

// Its resume: from the load of its manifest until all of that is put back, or until the job is closed.
class JobReplay {
 public:
  bool under_way() const { return replay_ != nullptr; }
  ManifestReplay& operator*() const {
    TIER_CHECK(under_way(), "use count {}", replay_.use_count());
    return *replay_;
  }

  void Start(std::shared_ptr<ManifestReplay> replay) {
    TIER_CHECK(!under_way() && replay != nullptr, "use counts {} and {}", replay_.use_count(), replay.use_count());
    replay_ = std::move(replay);
  }
  std::shared_ptr<ManifestReplay> End() {
    TIER_CHECK(under_way(), "use count {}", replay_.use_count());
    return std::exchange(replay_, nullptr);
  }

 private:
  std::shared_ptr<ManifestReplay> replay_;
};

// The one of its persists that captures its manifest, turn by turn.
class JobCapture {
 public:
  uint64_t waiter() const { return waiter_; }  // 0: none.
  void Start(uint64_t waiter) {
    TIER_CHECK(waiter_ == 0 && waiter != 0, "request {} captures while {} does", waiter, waiter_);
    waiter_ = waiter;
  }
  void End() {
    TIER_CHECK(waiter_ != 0, "no request captures: {}", waiter_);
    waiter_ = 0;
  }

 private:
  uint64_t waiter_ = 0;
};

// What is on its way to and from devices, in pages of RAM.
class JobTransfers {
 public:
  uint64_t count() const { return count_; }
  uint32_t writes() const { return writes_; }
  uint64_t writing_pages() const { return writing_pages_; }  // Of dirty pieces.
  uint64_t reading_pages() const { return std::accumulate(reading_.begin(), reading_.end(), uint64_t{0}); }
  uint64_t reading_pages(ReadPriority priority) const { return reading_[Value(priority)]; }

  void StartRead(uint32_t pages, ReadPriority priority) {
    ++count_;
    reading_[Value(priority)] += pages;
  }
  void EndRead(uint32_t pages, ReadPriority priority) {
    uint64_t& reading = reading_[Value(priority)];
    TIER_CHECK(count_ != 0 && reading >= pages, "{} pages of {} in {} transfers", pages, reading, count_);
    --count_;
    reading -= pages;
  }
  // A read of this priority has become one that a request waits for.
  void PromoteRead(uint32_t pages, ReadPriority from) {
    EndRead(pages, from);
    StartRead(pages, ReadPriority::kDemand);
  }
  void StartWrite(uint32_t dirty_pages) {
    ++count_;
    ++writes_;
    writing_pages_ += dirty_pages;
  }
  void EndWrite(uint32_t dirty_pages) {
    TIER_CHECK(count_ != 0 && writes_ != 0 && writing_pages_ >= dirty_pages, "{} pages of {} in {} writes", dirty_pages,
               writing_pages_, writes_);
    --count_;
    --writes_;
    writing_pages_ -= dirty_pages;
  }

 private:
  uint64_t count_ = 0;
  uint32_t writes_ = 0;
  uint64_t writing_pages_ = 0;
  ByReadPriority<uint64_t> reading_{};
};

// Why the last write of its bytes failed, for refusals.
struct WriteFailure {
  Code code = Code::kOk;
  uint64_t tensor = 0;
  std::string message;
};

class WriteFailures {
 public:
  uint64_t count() const { return count_; }
  uint32_t in_a_row() const { return in_a_row_; }
  const WriteFailure& last() const { return last_; }

  // Those of one turn count as one in the row: they failed together.
  void Note(WriteFailure failure, uint64_t turn) {
    ++count_;
    if (std::exchange(last_turn_, turn) != turn) ++in_a_row_;
    last_ = std::move(failure);
  }
  // Another device takes what this one failed: it is no failure of the job.
  void NoteElsewhere(WriteFailure failure) { last_ = std::move(failure); }
  void NoteSuccess() { in_a_row_ = 0; }

 private:
  uint64_t count_ = 0;
  uint32_t in_a_row_ = 0;
  uint64_t last_turn_ = 0;  // Of a failure.
  WriteFailure last_;
};

// Bytes of its pieces that have RAM, to the byte.
class JobRequested {
 public:
  const ByRamClass<uint64_t>& bytes() const { return bytes_; }
  void Add(RamClass piece, uint64_t bytes) { bytes_[static_cast<size_t>(piece)] += bytes; }
  void Remove(RamClass piece, uint64_t bytes) {
    uint64_t& sum = bytes_[static_cast<size_t>(piece)];
    TIER_CHECK(sum >= bytes, "{} of {} bytes in RAM", bytes, sum);
    sum -= bytes;
  }

 private:
  ByRamClass<uint64_t> bytes_{};
};

// Pages of its tensors: of their sizes, rounded up to pages for each piece, and of what is where.
class TensorPages {
 public:
  // Of all that have their name, or were freed and are still under leases.
  uint64_t logical() const { return logical_; }
  uint64_t unnamed() const { return unnamed_; }  // Of those that wait to take another's place.
  uint64_t dirty() const { return dirty_; }      // Sealed, in RAM only.
  uint64_t ssd() const { return ssd_; }
  // Of pieces under write leases that have a copy on SSD, which a manifest may keep.
  uint64_t rewriting() const { return rewriting_; }

  void AddUnnamed(uint64_t pages) { unnamed_ += pages; }
  void RemoveUnnamed(uint64_t pages) { Remove(&unnamed_, pages); }
  void AddLogical(uint64_t pages) { logical_ += pages; }
  void RemoveLogical(uint64_t pages) { Remove(&logical_, pages); }
  void AddDirty(uint64_t pages) { dirty_ += pages; }
  void RemoveDirty(uint64_t pages) { Remove(&dirty_, pages); }
  void AddSsd(uint64_t pages) { ssd_ += pages; }
  void AddRewriting(uint64_t pages) { rewriting_ += pages; }
  void RemoveRewriting(uint64_t pages) { Remove(&rewriting_, pages); }
  void RemoveSsd(uint64_t pages) { Remove(&ssd_, pages); }

 private:
  static void Remove(uint64_t* sum, uint64_t pages) {
    TIER_CHECK(*sum >= pages, "{} pages of {}", pages, *sum);
    *sum -= pages;
  }
  uint64_t logical_ = 0;
  uint64_t unnamed_ = 0;
  uint64_t dirty_ = 0;
  uint64_t ssd_ = 0;
  uint64_t rewriting_ = 0;
};

}  // namespace tier::tiering
