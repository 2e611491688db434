// The request side of the channel, its end, and deferred failures. Waiting and draining: channel_wait.cc.
#include "libclient/client/channel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tier::client {
namespace {

bool ShouldSpin(SpinMode mode) {
  if (mode != SpinMode::kAuto) return mode == SpinMode::kAlways;
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) >= 4;
}

const char* OpName(proto::Op op) {
  static constexpr std::array<const char*, proto::kOpCount> kNames = {
      "none",    "create", "acquire", "release", "free", "prefetch", "step",
      "persist", "flush",  "accept",  "intern",  "look", "drop",     "tear"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace

Clock::time_point DeadlineOf(uint32_t timeout_ms) {
  const bool given = timeout_ms != proto::kTimeoutDefault;
  return Clock::now() + (given ? std::chrono::milliseconds(timeout_ms) : kRequestTimeoutDefault);
}

uint32_t LeftUntil(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<uint32_t>(std::max<int64_t>(left.count(), 1));
}

Error NoRoom() {
  return {Code::kTimeout, "no request could be sent: those before it, of all threads, are not answered yet"};
}

Channel::Channel(std::byte* region, const proto::EnginePage* engine, int doorbell, const ChannelOptions& options)
    : region_(region),
      engine_(engine),
      doorbell_(doorbell),
      spins_(ShouldSpin(options.spin)),
      request_timeout_(options.request_timeout),
      lateness_max_(options.lateness_max),
      completion_view_(proto::CompletionRing(region)),
      requests_(proto::RequestRing(region)),
      completions_(completion_view_) {
  pool_.reserve(proto::kRequestsOutstandingMax);
  for (uint32_t i = 0; i < proto::kRequestsOutstandingMax; ++i) pool_.push_back(&storage_.emplace_back());
}

Result<Pending*> Channel::Submit(const Submission& submission) {
  auto placed = TryPlaceNow(submission, {});
  if (!placed || *placed != nullptr) return placed;
  const auto deadline = DeadlineOf(submission.timeout_ms);
  Submission late = submission;
  while (Clock::now() < deadline) {
    PauseForRoom();  // Answers make room in the ring and in the pool.
    late.timeout_ms = LeftUntil(deadline);
    placed = TryPlaceNow(late, {});
    if (!placed || *placed != nullptr) return placed;
  }
  return std::unexpected(NoRoom());
}

Result<Pending*> Channel::TrySubmit(const Submission& submission, Group* group, uint32_t kept) {
  return TryPlaceNow(submission, {.group = group, .kept = kept});
}

Result<bool> Channel::TrySubmitDetached(const Submission& submission) {
  const auto placed = TryPlaceNow(submission, kDetached);
  if (!placed) return std::unexpected(placed.error());
  return *placed != nullptr;
}

Result<Pending*> Channel::TryPlaceNow(const Submission& submission, const Placing& placing) {
  Pending* placed = PlaceNow(submission, placing);
  if (placed == nullptr && !ended() && Drain(false)) placed = PlaceNow(submission, placing);
  if (placed == nullptr && ended()) return std::unexpected(end_reason());
  return placed;
}

Status Channel::SubmitDetached(const Submission& submission) {
  while (true) {
    const auto sent = TrySubmitDetached(submission);
    if (!sent) return std::unexpected(sent.error());
    if (*sent) return {};
    PauseForRoom();
  }
}

Pending* Channel::PlaceNow(const Submission& submission, const Placing& placing) {
  if (ended()) return nullptr;
  std::lock_guard lock(request_mutex_);
  Pending* pending = nullptr;
  if (!TryPlace(submission, placing.kept, &pending)) return nullptr;
  pending->group_ = placing.group;
  pending->detached_ = placing.detached;
  requests_.Publish();
  RingDoorbell(submission.can_wait && !HalfUsed());
  return pending;
}

bool Channel::TryPlace(const Submission& submission, uint32_t kept, Pending** placed) {
  const uint32_t slots = submission.op == proto::Op::kIntern
                             ? proto::SlotsForText(static_cast<uint32_t>(submission.text.size()))
                             : proto::SlotsForRecords(static_cast<uint32_t>(submission.items.size()));
  uint32_t room = 0;
  if (!requests_.Free(&room)) {
    EndMalformed("the request ring's head is beyond its tail");
    return false;
  }
  if (room < slots || pool_.size() <= kept) return false;
  Pending* const pending = pool_.back();
  pool_.pop_back();
  pending->done_.store(false, std::memory_order_relaxed);
  pending->sequence_ = next_sequence_++;
  pending->op_ = submission.op;
  pending->answer_by_ = watch_ + TimeFor(submission);
  table_.Insert(pending->sequence_, pending);
  Stage(submission, slots);
  *placed = pending;
  return true;
}

void Channel::Stage(const Submission& submission, uint32_t slots) {
  proto::RequestSlot first{};
  const auto& items = submission.items;
  const bool is_text = submission.op == proto::Op::kIntern;
  first.header = {next_sequence_ - 1,
                  static_cast<uint16_t>(submission.op),
                  static_cast<uint16_t>(slots),
                  submission.flags,
                  static_cast<uint32_t>(is_text ? submission.text.size() : items.size()),
                  submission.timeout_ms,
                  submission.argument};
  if (!items.empty()) first.first = items.front();
  requests_.Stage(&first, 1);
  const auto* rest = is_text ? submission.text.data() : reinterpret_cast<const char*>(items.data() + 1);
  size_t bytes = is_text ? submission.text.size() : (items.empty() ? 0 : (items.size() - 1) * sizeof items[0]);
  const auto whole = static_cast<uint32_t>(bytes / proto::kSlotSize);
  if (whole > 0) requests_.Stage(rest, whole);
  bytes -= size_t{whole} * proto::kSlotSize;
  if (bytes == 0) return;
  std::array<char, proto::kSlotSize> last{};
  std::memcpy(last.data(), rest + size_t{whole} * proto::kSlotSize, bytes);
  requests_.Stage(last.data(), 1);
}

// Of the ring or of the requests on their way: nobody may find either full of releases that wait.
bool Channel::HalfUsed() const {
  uint32_t room = 0;
  return !requests_.Free(&room) || room < proto::kRequestSlots / 2 || pool_.size() < proto::kRequestsOutstandingMax / 2;
}

void Channel::RingDoorbell(bool can_wait) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t sleeping = engine_->sleeping.load(std::memory_order_relaxed);
  if (sleeping == proto::kAwake || (can_wait && sleeping == proto::kSleepingPatiently)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_, &one, sizeof one);  // Full means it is ringing already.
}

std::chrono::milliseconds Channel::TimeFor(const Submission& submission) const {
  using proto::Op;
  const Op op = submission.op;
  if (op == Op::kRelease || op == Op::kPrefetch || op == Op::kStep || op == Op::kIntern) return lateness_max_;
  const bool given = submission.timeout_ms != proto::kTimeoutDefault;
  const auto deadline = given ? std::chrono::milliseconds(submission.timeout_ms) : request_timeout_;
  return deadline + lateness_max_ + (op == Op::kPersist ? kCommitTimeMax : std::chrono::milliseconds(0));
}

Status Channel::LookForLate(std::chrono::milliseconds elapsed) {
  Drain(false);  // What is answered is not late, whoever is to take it.
  std::lock_guard lock(request_mutex_);
  const auto is_late = [this](const Pending& pending) { return pending.answer_by_ < watch_; };
  watch_ += elapsed;
  const Pending* const late = table_.Find(is_late);
  if (late == nullptr) return {};
  const auto beyond = std::chrono::floor<std::chrono::seconds>(lateness_max_ + watch_ - late->answer_by_);
  return Fail(Code::kDisconnected,
              std::string("the daemon hangs, or was stopped: it has owed the answer to a request (") +
                  OpName(late->op_) + ") for " + std::to_string(beyond.count()) + " s");
}

void Channel::Finish(Pending* pending) {
  if (!pending->done()) return;
  std::lock_guard lock(request_mutex_);
  pool_.push_back(pending);
}

void Channel::End(Code code, std::string message) {
  {
    std::lock_guard lock(error_mutex_);
    if (ended()) return;
    end_reason_ = {code, std::move(message)};
    ended_.store(true, std::memory_order_seq_cst);
  }
  WakeRing();
  {
    std::lock_guard lock(sleep_mutex_);
  }  // Whoever was between its look and its sleep is asleep now, or has looked.
  followers_wake_.notify_all();
}

Error Channel::end_reason() const {
  std::lock_guard lock(error_mutex_);
  return end_reason_;
}

std::optional<Error> Channel::TakeDeferred() {
  if (!has_deferred_.load(std::memory_order_relaxed)) return std::nullopt;
  std::lock_guard lock(error_mutex_);
  has_deferred_.store(false, std::memory_order_relaxed);
  auto first = std::exchange(deferred_, std::nullopt);
  const uint64_t more = std::exchange(deferred_more_, 0);
  if (first && more != 0) first->message += " (and " + std::to_string(more) + " more failed after it)";
  return first;
}

}  // namespace tier::client
