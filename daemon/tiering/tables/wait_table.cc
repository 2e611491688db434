// See wait_table.h.
#include "daemon/tiering/tables/wait_table.h"

#include <algorithm>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/metadata_budget.h"

namespace tier::tiering {

void WaitTable::OpenQueue(JobState& job) {
  const uint32_t index = Value(job.index);
  if (index >= queues_.size()) queues_.resize(size_t{index} + 1);
  TIER_CHECK(queues_[index].job == nullptr, "queue {} has a job", index);
  queues_[index].job = &job;
}

void WaitTable::CloseQueue(JobState& job) {
  Queue& queue = QueueOf(job);
  TIER_CHECK(queue.job == &job && queue.all.empty(), "{} requests wait in a job that ends", queue.all.size());
  std::erase(ready_queues_, Value(job.index));
  queue = {};
}

Waiter& WaitTable::Add(Waiter waiter) {
  const uint64_t number = next_number_++;
  waiter.number = number;
  const uint16_t session = waiter.session_index;
  Queue& queue = QueueOf(*waiter.job);
  Entry& entry = entries_[number];
  entry.waiter = std::move(waiter);
  entry.running = true;
  Recharge(entry.waiter);
  queue.all.insert(number);
  by_session_.emplace(session, number);
  untimed_.push_back(number);
  return entry.waiter;
}

void WaitTable::Remove(uint64_t number) {
  Entry& entry = EntryOf(number);
  const Waiter& waiter = entry.waiter;
  Queue& queue = QueueOf(*waiter.job);
  if (!entry.running) Take(number);
  NoteLeftRoom(entry);
  waiter.job->metadata->Recharge(&entry.waiter.charge, 0);
  queue.all.erase(number);
  by_session_.erase({waiter.session_index, number});
  if (waiter.timed) {
    deadlines_.erase({waiter.deadline, number});
    meter_.End(waiter.stall.cause(), now_);
  }
  entries_.erase(number);
}

void WaitTable::Recharge(Waiter& waiter) { waiter.job->metadata->Recharge(&waiter.charge, RequestCost(waiter)); }

Waiter* WaitTable::Find(uint64_t number) {
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : &found->second.waiter;
}

const Waiter* WaitTable::Find(uint64_t number) const {
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : &found->second.waiter;
}

WaitTable::Entry& WaitTable::EntryOf(uint64_t number) {
  const auto found = entries_.find(number);
  TIER_CHECK(found != entries_.end(), "no request {} waits", number);
  return found->second;
}

std::vector<uint64_t> WaitTable::ListJob(const JobState& job, size_t max) const {
  const std::set<uint64_t>& all = QueueOf(job).all;
  return {all.begin(), max >= all.size() ? all.end() : std::next(all.begin(), static_cast<ptrdiff_t>(max))};
}

WaitTable::Standing WaitTable::StandingOf(uint64_t number) const {
  const Entry& entry = entries_.at(number);
  TIER_CHECK(!entry.running, "request {} is running", number);
  Standing standing;
  if (!entry.places.empty()) {
    const Place place = entry.places.front();
    standing.tensor = place.tensor;
    if (place.piece != kWhole) standing.piece = place.piece;
  }
  if (entry.ready || entry.put_off) {
    standing.lack = Lack::kWork;
  } else if (entry.reads_left != 0) {
    standing.lack = Lack::kReads;
  } else if (entry.room) {
    standing.lack = entry.lacking_pages != 0 ? Lack::kRoom : entry.closes_at != kNever ? Lack::kLeases : Lack::kTurn;
  } else if (entry.write || entry.store) {
    standing.lack = Lack::kWrite;
  } else if (!entry.places.empty()) {
    standing.lack = Lack::kPlace;
  }
  return standing;
}

std::vector<uint64_t> WaitTable::ListSession(uint16_t session_index) const {
  std::vector<uint64_t> numbers;
  for (auto each = by_session_.lower_bound({session_index, 0});
       each != by_session_.end() && each->first == session_index; ++each) {
    numbers.push_back(each->second);
  }
  return numbers;
}

uint64_t WaitTable::FirstOfSession(uint16_t session_index) const {
  const auto first = by_session_.lower_bound({session_index, 0});
  return first == by_session_.end() || first->first != session_index ? 0 : first->second;
}

void WaitTable::ListReadyJobs(std::vector<JobState*>* jobs) {
  wakes_left_ = wakes_max_;
  WakeAside();
  jobs->clear();
  std::erase_if(ready_queues_, [&](uint32_t index) {
    Queue& queue = queues_[index];
    queue.listed = !queue.ready.empty();
    if (queue.listed) jobs->push_back(queue.job);
    return !queue.listed;
  });
}

void WaitTable::EndRuns() {
  runs_ = false;
  for (const uint64_t number : put_off_) {
    const auto found = entries_.find(number);
    if (found != entries_.end() && std::exchange(found->second.put_off, false)) MakeReady(number);
  }
  put_off_.clear();
}

void WaitTable::PutOff(uint64_t number) {
  Entry& entry = EntryOf(number);
  TIER_CHECK(entry.running, "request {} is put off, and does not run", number);
  entry.running = false;
  NoteLeftRoom(entry);
  if (!std::exchange(entry.put_off, true)) put_off_.push_back(number);
}

bool WaitTable::any_ready() const {
  return std::ranges::any_of(ready_queues_, [&](uint32_t index) { return !queues_[index].ready.empty(); });
}

uint64_t WaitTable::NextReady(const JobState& job) {
  Queue& queue = QueueOf(job);
  const auto next = queue.ready.upper_bound(queue.last_given);
  queue.last_given = next == queue.ready.end() ? 0 : *next;
  return queue.last_given;
}

void WaitTable::MakeReady(uint64_t number) {
  Entry& entry = EntryOf(number);
  entry.running = false;
  NoteLeftRoom(entry);
  if (entry.ready) return;
  entry.ready = true;
  if (runs_) {
    NoteCause(entry.waiter, StallCause::kBudget, now_);
  } else {
    ready_new_.push_back(number);
  }
  DropPlaces(entry);
  Queue& queue = QueueOf(*entry.waiter.job);
  queue.ready.insert(number);
  if (queue.listed) return;
  queue.listed = true;
  ready_queues_.push_back(Value(entry.waiter.job->index));
}

// It stays in the queue for room until it has run: no later request takes room meanwhile.
Waiter& WaitTable::Take(uint64_t number) {
  Entry& entry = EntryOf(number);
  TIER_CHECK(!entry.running, "request {} runs already", number);
  Queue& queue = QueueOf(*entry.waiter.job);
  entry.running = true;
  if (entry.ready) queue.ready.erase(number);
  entry.ready = false;
  entry.put_off = false;
  DropPlaces(entry);
  if (entry.write) queue.write.erase({entry.waiter.session_index, number});
  entry.write = false;
  if (entry.listing) listing_.erase({entry.waiter.session_index, number});
  entry.listing = false;
  entry.store = false;
  entry.left_room = entry.room;
  if (entry.room) DropRoom(entry);
  return entry.waiter;
}

void WaitTable::DropRoom(Entry& entry) {
  const uint64_t number = entry.waiter.number;
  Queue& queue = QueueOf(*entry.waiter.job);
  queue.room.erase(number);
  queue.passing.erase({entry.waiter.session_index, number});
  queue.lacking.erase(number);
  queue.closing.erase({entry.closes_at, number});
  queue.closed.erase(number);
  other_leases_.erase({entry.waiter.session_index, number});
  queue.owed_leases.erase(number);
  if (entry.leaseless) leaseless_.erase({entry.waiter.session_index, number});
  entry.leaseless = false;
  entry.room = false;
  if (queue.room.empty()) room_queues_.erase(Value(entry.waiter.job->index));
  NoteShortage(queue);
}

// What the first of those that lack pages needs: what is written and evicted ahead of need follows it.
void WaitTable::NoteShortage(Queue& queue) {
  const uint64_t first = queue.lacking.empty() ? 0 : *queue.lacking.begin();
  queue.shortage_waiter = first;
  queue.shortage_pages = first == 0 ? 0 : EntryOf(first).lacking_pages;
}

void WaitTable::MakeFirstReady(Queue& queue) {
  if (!queue.room.empty()) MakeReady(*queue.room.begin());
}

// It was perhaps what the next one waited for.
void WaitTable::NoteLeftRoom(Entry& entry) {
  if (!std::exchange(entry.left_room, false)) return;
  MakeFirstReady(QueueOf(*entry.waiter.job));
}

void WaitTable::AddPlace(Entry& entry, Place place) {
  entry.running = false;
  if (!places_[place.tensor][place.piece].emplace(entry.waiter.session_index, entry.waiter.number).second) return;
  entry.places.push_back(place);
  Tensor& tensor = tensors_.Edit(place.tensor);
  tensor.set(kAwaitedTensor);
  if (place.piece != kWhole) pieces_.Edit(tensors_.PieceOf(tensor, place.piece)).set(kAwaited);
}

void WaitTable::DropPlaces(Entry& entry) {
  for (const Place place : entry.places) Leave(entry, place);
  entry.places.clear();
  entry.reads_left = 0;
}

bool WaitTable::StandsAt(const Entry& entry, Place place) const {
  const auto at = places_.find(place.tensor);
  if (at == places_.end()) return false;
  const auto group = at->second.find(place.piece);
  return group != at->second.end() && group->second.contains({entry.waiter.session_index, entry.waiter.number});
}

void WaitTable::Leave(const Entry& entry, Place place) {
  const auto at = places_.find(place.tensor);
  if (at == places_.end()) return;
  const auto group = at->second.find(place.piece);
  if (group == at->second.end()) return;
  group->second.erase({entry.waiter.session_index, entry.waiter.number});
  if (!group->second.empty()) return;
  at->second.erase(group);
  if (at->second.empty()) places_.erase(at);
}

void WaitTable::WaitAtPiece(uint64_t number, TensorIndex tensor, uint32_t piece) {
  Entry& entry = EntryOf(number);
  AddPlace(entry, {tensor, piece});
  NoteLeftRoom(entry);
}

void WaitTable::WaitAtTensor(uint64_t number, TensorIndex tensor) { WaitAtPiece(number, tensor, kWhole); }

void WaitTable::WaitForReads(uint64_t number, std::span<const Place> reads) {
  TIER_CHECK(!reads.empty(), "request {} waits for no read", number);
  Entry& entry = EntryOf(number);
  for (const Place place : reads) AddPlace(entry, place);
  entry.reads_left = static_cast<uint32_t>(entry.places.size());
  NoteLeftRoom(entry);
}

void WaitTable::WaitForWrite(uint64_t number) {
  Entry& entry = EntryOf(number);
  entry.running = false;
  entry.write = true;
  QueueOf(*entry.waiter.job).write.emplace(entry.waiter.session_index, number);
}

void WaitTable::WaitToList(uint64_t number) {
  Entry& entry = EntryOf(number);
  entry.running = false;
  entry.listing = true;
  listing_.emplace(entry.waiter.session_index, number);
}

void WaitTable::WaitForStore(uint64_t number) {
  Entry& entry = EntryOf(number);
  entry.running = false;
  entry.store = true;
}

void WaitTable::WaitForRoom(uint64_t number, const RoomWait& wait) {
  Entry& entry = EntryOf(number);
  Queue& queue = QueueOf(*entry.waiter.job);
  entry.running = false;
  entry.room = true;
  entry.left_room = false;
  entry.lacking_pages = wait.lacking_pages;
  entry.closes_at = wait.closes_at.value_or(kNever);
  queue.room.insert(number);
  room_queues_.insert(Value(entry.waiter.job->index));
  entry.leaseless = wait.leaseless;
  if (wait.may_pass) queue.passing.emplace(entry.waiter.session_index, number);
  if (wait.leaseless) leaseless_.emplace(entry.waiter.session_index, number);
  if (wait.other_leases) other_leases_.emplace(entry.waiter.session_index, number);
  if (wait.owed_leases) queue.owed_leases.insert(number);
  if (wait.lacking_pages != 0) queue.lacking.insert(number);
  if (wait.closes_at) queue.closing.emplace(*wait.closes_at, number);
  NoteShortage(queue);
}

bool WaitTable::RoomTakenBefore(const JobState& job, uint64_t number) const {
  const Queue& queue = QueueOf(job);
  return !queue.room.empty() && *queue.room.begin() < number;
}

void WaitTable::ListShortJobs() {
  short_jobs_.clear();
  jobs_owed_leases_.clear();
  for (const uint32_t index : room_queues_) {
    const Queue& queue = queues_[index];
    if (queue.job->record.closing) continue;
    if (queue.shortage_pages != 0) short_jobs_.push_back(queue.job);
    if (!queue.owed_leases.empty()) jobs_owed_leases_.push_back(queue.job);
  }
}

bool WaitTable::RoomClosedBefore(const JobState& job, uint64_t number, base::TimePoint now) {
  Queue& queue = QueueOf(job);
  while (!queue.closing.empty() && queue.closing.begin()->first <= now) {
    queue.closed.insert(queue.closing.begin()->second);
    queue.closing.erase(queue.closing.begin());
  }
  return !queue.closed.empty() && *queue.closed.begin() < number;
}

// As many as the turn may wake. They have left the place of the event.
void WaitTable::Wake(Group group) {
  if (wakes_left_ < group.size() || !woken_.empty()) {
    woken_.push_back(std::move(group));
    return;
  }
  wakes_left_ -= static_cast<uint32_t>(group.size());
  for (const auto& [session, number] : group) MakeReady(number);
}

// Those that were made ready otherwise look once more for nothing, and some are gone.
void WaitTable::WakeAside() {
  for (; !woken_.empty() && wakes_left_ != 0; --wakes_left_) {
    Group& group = woken_.front();
    const uint64_t number = group.begin()->second;
    group.erase(group.begin());
    if (group.empty()) woken_.pop_front();
    if (Find(number) != nullptr) MakeReady(number);
  }
}

void WaitTable::WakePlace(Place place) {
  const auto at = places_.find(place.tensor);
  if (at == places_.end()) return;
  const auto found = at->second.find(place.piece);
  if (found == at->second.end()) return;
  Group group = std::move(found->second);
  at->second.erase(found);
  if (at->second.empty()) places_.erase(at);
  if (place.piece != kWhole && group.size() <= wakes_left_) {
    // Those that wait for other reads too sleep on.
    std::erase_if(group, [&](const auto& each) {
      Entry& entry = EntryOf(each.second);
      if (entry.reads_left <= 1) return false;
      --entry.reads_left;
      --wakes_left_;
      return true;
    });
  }
  if (!group.empty()) Wake(std::move(group));
}

void WaitTable::WakeTensor(TensorIndex tensor) {
  if (auto places = places_.extract(tensor)) {
    for (auto& [piece, group] : places.mapped()) Wake(std::move(group));
  }
  tensors_.Edit(tensor).clear(kAwaitedTensor);
}

void WaitTable::OnLeaseGranted(const Piece& piece, uint16_t session_index) {
  if (!piece.has(kAwaited)) return;
  const auto at = places_.find(piece.tensor);
  if (at == places_.end()) return;
  const auto group = at->second.find(piece.number);
  if (group == at->second.end()) return;
  std::vector<uint64_t> own;
  for (auto each = group->second.lower_bound({session_index, 0});
       each != group->second.end() && each->first == session_index; ++each) {
    own.push_back(each->second);
  }
  for (const uint64_t number : own) MakeReady(number);
}

void WaitTable::WakeForRoom(const JobState& job) {
  Queue& queue = QueueOf(job);
  if (queue.room.empty()) return;
  MakeFirstReady(queue);
  // Each looks once, however many events there are until then; WaitForRoom puts it back.
  if (!queue.passing.empty()) Wake(std::exchange(queue.passing, {}));
}

void WaitTable::OnRoomEverywhere() {
  for (const uint32_t index : room_queues_) OnRoom(*queues_[index].job);
}

void WaitTable::OnWrite(const JobState& job) {
  Queue& queue = QueueOf(job);
  if (!queue.write.empty()) Wake(std::exchange(queue.write, {}));
}

// Each of them looks once for it, and is here again only after that.
void WaitTable::WakeOfSession(std::set<std::pair<uint16_t, uint64_t>>& waiting, uint16_t session_index) {
  for (;;) {
    const auto first = waiting.lower_bound({session_index, 0});
    if (first == waiting.end() || first->first != session_index) return;
    const uint64_t number = first->second;
    waiting.erase(first);
    MakeReady(number);
  }
}

void WaitTable::OnListed(uint16_t session_index) { WakeOfSession(listing_, session_index); }

void WaitTable::OnFirstLease(uint16_t session_index) { WakeOfSession(leaseless_, session_index); }

std::vector<uint64_t> WaitTable::ReadersAt(const Piece& piece) const {
  std::vector<uint64_t> numbers;
  const auto at = places_.find(piece.tensor);
  if (at == places_.end()) return numbers;
  const auto group = at->second.find(piece.number);
  if (group == at->second.end()) return numbers;
  for (const auto& [session, number] : group->second) {
    if (entries_.at(number).reads_left != 0) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

void WaitTable::TimeNew(base::TimePoint now, base::Duration timeout_default) {
  for (const uint64_t number : untimed_) {
    Waiter* const waiter = Find(number);
    if (waiter == nullptr) continue;
    waiter->arrived = now;
    waiter->deadline = now + waiter->TimeoutOr(timeout_default);
    waiter->timed = true;
    deadlines_.emplace(waiter->deadline, number);
    meter_.Start(waiter->stall.cause(), now);
  }
  untimed_.clear();
  timed_at_ = now;
}

std::optional<base::TimePoint> WaitTable::NextDeadline() const {
  if (!untimed_.empty() || !woken_.empty()) return timed_at_;
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

uint64_t WaitTable::NextExpired(base::TimePoint now) const {
  return deadlines_.empty() || now < deadlines_.begin()->first ? 0 : deadlines_.begin()->second;
}

void WaitTable::DropDeadline(uint64_t number) { deadlines_.erase({EntryOf(number).waiter.deadline, number}); }

void WaitTable::RestoreDeadline(uint64_t number) {
  const Waiter& waiter = EntryOf(number).waiter;
  if (waiter.timed) deadlines_.emplace(waiter.deadline, number);
}

}  // namespace tier::tiering
