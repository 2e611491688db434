// WaitTable: requests that wait, where each of them waits, and which are to be looked at. Engine thread only.
//
// A waiter is *ready* (to be continued, in the order of arrival), *put off* (ready in the next turn), *running* (being
// continued), or it waits at one or more places: pieces, tensors, room in its job, a write of its job, its turn in its
// session to list, its deadline alone. The unit that causes an event calls the table, which wakes exactly the waiters
// at the place of that event. A unit that continues a waiter takes it out of all places (Take), and either removes it
// or says where it waits next.
//
// Room of a job is given in the order of arrival. An event there wakes the first waiter, and those whose sessions hold
// leases, which may pass others (requests/lease_wait). When the first one leaves, the next becomes ready.
//
// Any number of requests may wait at one place. The events of a turn make `wakes_max` of them ready at most, and set
// the others aside (woken_): the next turns make these ready, in the order of the events.
//
// Invariants: a waiter that is not running is ready, put off or waits at a place; it is in the queue of one job; a
// piece at which
//   a request waits has the flag kAwaited, its tensor kAwaitedTensor; shortage_pages of a job is what the first of its
//   waiters that lack pages needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/tiering/tables/job_state.h"
#include "daemon/tiering/tables/stall_meter.h"
#include "daemon/tiering/tables/tensor_table.h"
#include "daemon/tiering/tables/waiter.h"

namespace tier::tiering {

class WaitTable {
 public:
  WaitTable(PieceSlab& pieces, TensorSlab& tensors, uint32_t wakes_max)
      : pieces_(pieces), tensors_(tensors), wakes_max_(wakes_max), wakes_left_(wakes_max) {}
  WaitTable(const WaitTable&) = delete;
  WaitTable& operator=(const WaitTable&) = delete;

  // Jobs. `job` keeps its address until CloseQueue. REQUIRES for CloseQueue: no request of the job waits.
  void OpenQueue(JobState& job);
  void CloseQueue(JobState& job);

  // Records, charged to the job's user. Add sets the number; the waiter is running then.
  Waiter& Add(Waiter waiter);
  void Remove(uint64_t number);          // REQUIRES: there.
  static void Recharge(Waiter& waiter);  // Its items have changed.
  Waiter* Find(uint64_t number);
  const Waiter* Find(uint64_t number) const;
  size_t size() const { return entries_.size(); }
  bool empty(const JobState& job) const { return QueueOf(job).all.empty(); }
  // Numbers in the order of arrival, at most `max`.
  std::vector<uint64_t> ListJob(const JobState& job, size_t max = SIZE_MAX) const;
  std::vector<uint64_t> ListSession(uint16_t session_index) const;
  uint64_t FirstOfSession(uint16_t session_index) const;  // 0: there is none.

  // A request waits, or did since the last ListReadyJobs.
  bool any_listed() const {
    return !entries_.empty() || !ready_queues_.empty() || !untimed_.empty() || !woken_.empty();
  }
  // Waiters that are ready from here on, until EndRuns, and still are at the end of the turn, wait for work that the
  // turn has not left: their clocks say so since `now`. Those that become ready after EndRuns run in the next turn.
  void BeginTurn(base::TimePoint now) {
    now_ = now;
    runs_ = true;
    for (const uint64_t number : ready_new_) {
      const auto found = entries_.find(number);
      if (found != entries_.end() && found->second.ready) NoteCause(found->second.waiter, StallCause::kBudget, now_);
    }
    ready_new_.clear();
  }
  void EndRuns();
  // The waiter waits for this from `now` on, the time of a turn.
  void NoteCause(Waiter& waiter, StallCause cause, base::TimePoint now) {
    if (waiter.timed) meter_.Change(waiter.stall.cause(), cause, now);
    waiter.NoteCause(cause, now);
  }
  // Of all requests that wait or did, from the turn on in which they came.
  const StallMeter& meter() const { return meter_; }

  // Ready waiters. ListReadyJobs, once a turn: jobs that have one, in no order.
  void ListReadyJobs(std::vector<JobState*>* jobs);
  bool any_ready() const;
  bool ready(uint64_t number) { return EntryOf(number).ready; }
  // The next ready waiter after the last that was given; 0 at the end, and then from the start.
  uint64_t NextReady(const JobState& job);
  Waiter& Take(uint64_t number);
  // The waiter that NextReady gave last was not taken: NextReady gives it again.
  void GiveAgain(const JobState& job) { --QueueOf(job).last_given; }
  // The turn has no work left for the waiter: it continues in the next turn.
  void ContinueNextTurn(uint64_t number) { MakeReady(number); }
  // The running waiter has had its part of the turn, however much the turn has left: it continues in the next one.
  void PutOff(uint64_t number);

  // Where a running waiter waits from now on. Several places may be named: the first event at one of them wakes it.
  void WaitAtPiece(uint64_t number, TensorIndex tensor, uint32_t piece);
  void WaitAtTensor(uint64_t number, TensorIndex tensor);
  void WaitForWrite(uint64_t number);
  void WaitToList(uint64_t number);
  void WaitForStore(uint64_t number);
  // The waiter is woken by an event at every one of these pieces, or by one at a tensor as a whole.
  struct Place {
    TensorIndex tensor = kNoTensor;
    uint32_t piece = 0;
    friend bool operator==(const Place&, const Place&) = default;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  void WaitForReads(uint64_t number, std::span<const Place> reads);
  struct RoomWait {
    uint64_t lacking_pages = 0;  // 0: it lacks leases, not pages, or was not tried.
    bool may_pass = false;       // Any event wakes it, not only those for the first.
    bool leaseless = false;      // Its session holds no lease: its first lease wakes it.
    bool other_leases = false;   // What other jobs lease beyond their guarantees must end first.
    bool owed_leases = false;    // And its job is promised what it would lease then.
    // From then on no waiter passes it. None: it did not try.
    std::optional<base::TimePoint> closes_at;
  };
  void WaitForRoom(uint64_t number, const RoomWait& wait);

  // What a waiter lacks, as far as its places tell: by the first of them. REQUIRES: it is not running.
  enum class Lack : uint8_t { kTurn, kRoom, kLeases, kReads, kWrite, kWork, kPlace };
  struct Standing {
    Lack lack = Lack::kTurn;
    TensorIndex tensor = kNoTensor;  // kNoTensor: it stands at none.
    std::optional<uint32_t> piece;   // None: it stands at the tensor as a whole.
  };
  Standing StandingOf(uint64_t number) const;

  // Room. A waiter that came before `number` waits for room.
  bool RoomTakenBefore(const JobState& job, uint64_t number) const;
  // A request waits for room, or did at the last ListShortJobs.
  bool any_for_room() const { return !room_queues_.empty() || !short_jobs_.empty() || !jobs_owed_leases_.empty(); }
  // Jobs in which a request lacks pages, as of the last ListShortJobs.
  void ListShortJobs();
  const std::vector<JobState*>& short_jobs() const { return short_jobs_; }
  // Jobs in which a request is kept from leases within their promise, as of then.
  const std::vector<JobState*>& jobs_owed_leases() const { return jobs_owed_leases_; }
  // The pages that the first request of the job that lacks pages still needs, and its number; 0: there is none.
  uint64_t shortage_pages(const JobState& job) const { return QueueOf(job).shortage_pages; }
  uint64_t shortage_waiter(const JobState& job) const { return QueueOf(job).shortage_waiter; }
  bool anybody_waits_for_room(const JobState& job) const { return !QueueOf(job).room.empty(); }
  // A waiter that came before `number` and tried may no longer be passed. REQUIRES: `now` does not go back.
  bool RoomClosedBefore(const JobState& job, uint64_t number, base::TimePoint now);

  // Events.
  void OnPieceChanged(PieceId id) {
    const Piece& piece = pieces_[id];
    if (!piece.has(kAwaited)) return;
    WakePlace({piece.tensor, piece.number});
    pieces_.Edit(id).clear(kAwaited);
  }
  // The session has a lease of the piece now: wakes its own requests there.
  void OnLeaseGranted(const Piece& piece, uint16_t session_index);
  void OnTensorChanged(TensorIndex tensor) {
    if (tensors_[tensor].has(kAwaitedTensor)) WakeTensor(tensor);
  }
  void OnLeaseEnded(TensorIndex tensor) {
    if (tensors_[tensor].has(kAwaitedTensor)) WakePlace({tensor, kWhole});
  }
  void OnRoom(const JobState& job) {
    if (!room_queues_.empty()) WakeForRoom(job);
  }
  void OnRoomEverywhere();  // The arena has more memory, or other entitlements changed.
  // Jobs lease less beyond their guarantees: wakes the requests that wait for that, whatever their jobs are.
  void OnLeasedLess() {
    if (!other_leases_.empty()) Wake(std::exchange(other_leases_, {}));
  }
  void OnWrite(const JobState& job);
  void OnListed(uint16_t session_index);
  void OnFirstLease(uint16_t session_index);
  // The waiters for a read of that piece. They keep waiting.
  std::vector<uint64_t> ReadersAt(const Piece& piece) const;

  // Deadlines.
  void TimeNew(base::TimePoint now, base::Duration timeout_default);
  std::optional<base::TimePoint> NextDeadline() const;  // Now, if some are still to be timed.
  uint64_t NextExpired(base::TimePoint now) const;      // 0: none.
  void DropDeadline(uint64_t number);
  // It has one from now on, the one that it would have had.
  void RestoreDeadline(uint64_t number);

  void CheckInvariants() const;
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [number, entry] : entries_) visit(entry.waiter);
  }
  // Calls visit(waiter, reads) for each waiter that is not ready; `reads`: the reads that it still waits for. For none
  // while some that are to be made ready are set aside.
  template <typename Visit>
  void ForEachAsleep(Visit visit) const {
    if (!woken_.empty()) return;
    for (const auto& [number, entry] : entries_) {
      if (entry.ready) continue;
      std::vector<Place> reads;
      std::ranges::copy_if(entry.places, std::back_inserter(reads),
                           [&](Place place) { return entry.reads_left != 0 && StandsAt(entry, place); });
      visit(entry.waiter, std::span<const Place>(reads));
    }
  }

 private:
  static constexpr uint32_t kWhole = UINT32_MAX;          // In place of a piece: the tensor.
  using Group = std::set<std::pair<uint16_t, uint64_t>>;  // Waiters: their sessions' indices, their numbers.
  using PlacesOfTensor = std::map<uint32_t, Group>;       // By piece.

  struct Entry {
    Waiter waiter;
    std::vector<Place> places;  // Also those whose event has come, which are no longer in `places_`.
    uint32_t reads_left = 0;    // Not 0: its places are reads, and it waits for all.
    bool running = false;
    bool ready = false;
    bool put_off = false;  // Ready from the end of the turn's runs on.
    bool room = false;
    bool write = false;
    bool listing = false;
    bool store = false;
    bool leaseless = false;  // It waits for room, and its session has no lease.
    bool left_room = false;  // It waited for room when it was taken, and no longer does.
    uint64_t lacking_pages = 0;
    base::TimePoint closes_at = kNever;
  };
  // Numbers of the waiters of a job.
  struct Queue {
    JobState* job = nullptr;
    bool listed = false;  // In ready_queues_.
    uint64_t last_given = 0;
    uint64_t shortage_pages = 0;
    uint64_t shortage_waiter = 0;
    std::set<uint64_t> all;
    std::set<uint64_t> ready;
    std::set<uint64_t> room;
    Group passing;                                           // Those of `room` that may pass.
    std::set<uint64_t> lacking;                              // Those of `room` that lack pages.
    std::set<std::pair<base::TimePoint, uint64_t>> closing;  // Those of `room` that may be passed until a time,
    std::set<uint64_t> closed;                               // and those whose time is past.
    std::set<uint64_t> owed_leases;
    Group write;
  };

  Entry& EntryOf(uint64_t number);
  Queue& QueueOf(const JobState& job) { return queues_[Value(job.index)]; }
  const Queue& QueueOf(const JobState& job) const { return queues_[Value(job.index)]; }
  void MakeReady(uint64_t number);
  void MakeFirstReady(Queue& queue);
  void AddPlace(Entry& entry, Place place);
  void DropPlaces(Entry& entry);
  void DropRoom(Entry& entry);
  void NoteShortage(Queue& queue);
  void NoteLeftRoom(Entry& entry);
  bool StandsAt(const Entry& entry, Place place) const;
  void Leave(const Entry& entry, Place place);
  void Wake(Group group);
  void WakeAside();
  void WakeOfSession(std::set<std::pair<uint16_t, uint64_t>>& waiting, uint16_t session_index);
  void WakePlace(Place place);
  void WakeForRoom(const JobState& job);
  void WakeTensor(TensorIndex tensor);

  PieceSlab& pieces_;
  TensorSlab& tensors_;
  const uint32_t wakes_max_;
  uint32_t wakes_left_;      // In this turn.
  std::deque<Group> woken_;  // To be made ready, and perhaps ready or gone already.
  std::vector<JobState*> short_jobs_;
  std::vector<JobState*> jobs_owed_leases_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::vector<Queue> queues_;  // By the indices of jobs.
  std::vector<uint32_t> ready_queues_;
  std::set<uint32_t> room_queues_;  // Queues in which a request waits for room.
  std::unordered_map<TensorIndex, PlacesOfTensor> places_;
  std::set<std::pair<uint16_t, uint64_t>> by_session_;  // Index, number.
  std::set<std::pair<uint16_t, uint64_t>> listing_;     // Of these, those that wait to list,
  std::set<std::pair<uint16_t, uint64_t>> leaseless_;   // and those that wait for room without a lease.
  Group other_leases_;  // Those that wait for leases of other jobs; they wait for room too.
  std::set<std::pair<base::TimePoint, uint64_t>> deadlines_;
  std::vector<uint64_t> untimed_;
  base::TimePoint timed_at_;         // When TimeNew was called last.
  base::TimePoint now_;              // Of the turn.
  StallMeter meter_;                 // Of the waiters that are timed.
  bool runs_ = false;                // Between BeginTurn and EndRuns.
  std::vector<uint64_t> ready_new_;  // Made ready since EndRuns; some may be gone, or no longer ready.
  std::vector<uint64_t> put_off_;    // Some may be gone, or ready.
  uint64_t next_number_ = 1;
};

}  // namespace tier::tiering
