// RingPeer: the daemon's side of one session's rings, run step by step by a test in one thread; and a Waiter that lets
// it run while the channel sleeps. What it does is drawn from a seed.
//
// Invariant that the waiter checks: one side is always able to go on. A channel that sleeps without a deadline while
// the peer sleeps too, unrung, waits for a wake-up that was lost.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "libclient/client/waiter.h"
#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::client {

class RingPeer {
 public:
  struct Request {
    proto::RequestHeader header;
    std::vector<std::byte> body;  // As it lay on the ring behind the header, padding included.
  };
  struct Answer {
    Code code = Code::kOk;
    uint64_t value = 0;
    std::string detail;
  };

  explicit RingPeer(uint64_t seed)
      : random_(seed),
        memory_(std::move(*proto::CreateMemoryFile("peer", proto::kSessionRegionSize))),
        region_(
            std::move(*proto::Mapping::Map(memory_.get(), 0, proto::kSessionRegionSize, proto::Access::kReadWrite))),
        doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        requests_(proto::RequestRing(region_.data())),
        completions_(proto::CompletionRing(region_.data())) {}

  std::byte* region() { return region_.data(); }
  const proto::EnginePage* engine() const { return &engine_; }
  int doorbell() const { return doorbell_.get(); }

  // Does something, if it is awake or was rung. False when it sleeps on.
  bool Step() {
    if (asleep() && !WasRung()) return false;
    engine_.sleeping.store(proto::kAwake);
    ReadSome();
    AnswerSome();
    if (Draw(4) == 0) GoToSleep();
    return true;
  }
  // As a daemon that checks its rings by itself, once in a while.
  void WakeBySelf() { engine_.sleeping.store(proto::kAwake); }

  const std::deque<Request>& received() const { return received_; }
  const std::map<uint64_t, Answer>& answered() const { return answered_; }
  size_t unread() {
    uint32_t ready = 0;
    if (!requests_.Ready(&ready)) throw std::runtime_error("the request ring's tail is impossible");
    return ready;
  }
  bool asleep() const { return engine_.sleeping.load() != proto::kAwake; }
  bool patient() const { return engine_.sleeping.load() == proto::kSleepingPatiently; }
  bool rung() const {
    pollfd entry{doorbell_.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  bool WasRung() const {
    uint64_t rings = 0;
    return ::read(doorbell_.get(), &rings, sizeof rings) == sizeof rings;
  }

  // As proto/ring.h says: say so, look once more, then sleep. It owes nothing that it could answer only when asked.
  void GoToSleep() {
    engine_.sleeping.store(Draw(2) == 0 ? proto::kSleeping : proto::kSleepingPatiently);
    if (unread() > 0 || !held_.empty()) engine_.sleeping.store(proto::kAwake);
  }

  void ReadSome() {
    uint32_t ready = static_cast<uint32_t>(unread());
    for (uint64_t messages = Draw(200); messages > 0 && ready > 0; --messages) {
      proto::RequestEntry first;
      requests_.Peek(&first, 1);
      const uint32_t entries = first.header.entries;
      if (entries == 0 || entries > ready) throw std::runtime_error("a request was published in part");
      std::vector<std::byte> message(size_t{entries} * proto::kEntrySize);
      requests_.Peek(message.data(), entries);
      requests_.Consume(entries);
      ready -= entries;
      received_.push_back({first.header, {message.begin() + sizeof(proto::RequestHeader), message.end()}});
      held_.push_back(first.header);
    }
  }

  void AnswerSome() {
    for (uint64_t count = Draw(2) == 0 ? held_.size() : Draw(4); count > 0 && !held_.empty(); --count) {
      const auto next = held_.begin() + static_cast<ptrdiff_t>(Draw(3) == 0 ? Draw(held_.size()) : 0);
      Publish(*next);
      held_.erase(next);
    }
  }

  void Publish(const proto::RequestHeader& request) {
    Answer answer{.value = random_()};
    if (Draw(5) == 0) answer = {Code::kStale, 0, std::string(1 + Draw(300), 'x')};
    const auto length = static_cast<uint32_t>(answer.detail.size());
    const bool stat = static_cast<proto::Op>(request.op) == proto::Op::kStat && answer.code == Code::kOk;
    std::vector<proto::CompletionEntry> message(proto::EntriesForText(length));
    message[0].header = {.sequence = request.sequence,
                         .code = static_cast<uint16_t>(answer.code),
                         .entries = static_cast<uint16_t>(message.size()),
                         .flags = 0,
                         .record_count = stat ? 1u : 0u,
                         .detail_length = length,
                         .value = answer.value};
    if (stat) message[0].first.tensor.size = answer.value;
    std::memcpy(static_cast<void*>(message.data() + 1), answer.detail.data(), length);
    answered_[request.sequence] = answer;
    completions_.Stage(message.data(), static_cast<uint32_t>(message.size()));
    completions_.Publish();
    auto& control = *proto::CompletionRing(region_.data()).control;
    if (control.consumer_waiting.exchange(0) != 0) control.wake_sequence.fetch_add(1);
  }

  std::mt19937_64 random_;
  proto::FileDescriptor memory_;
  proto::Mapping region_;
  proto::FileDescriptor doorbell_;
  proto::EnginePage engine_{};
  proto::RingConsumer requests_;
  proto::RingProducer completions_;
  std::deque<proto::RequestHeader> held_;  // Read and not answered.
  std::deque<Request> received_;
  std::map<uint64_t, Answer> answered_;
};

class PeerWaiter final : public Waiter {
 public:
  explicit PeerWaiter(RingPeer& peer, uint64_t seed) : peer_(peer), random_(seed) {}

  Clock::time_point Now() override { return now_; }
  void Sleep(std::atomic<uint32_t>& word, uint32_t expected, Clock::time_point deadline) override {
    while (word.load() == expected && now_ < deadline) {
      if (random_() % 16 == 0) return;  // For no reason, as futexes do.
      if (peer_.Step()) {
        now_ += std::chrono::microseconds(random_() % 100);
      } else if (deadline == Clock::time_point::max()) {
        throw std::runtime_error("both sides sleep, and no doorbell was rung");
      } else {
        now_ = deadline;
      }
    }
  }
  void WakeAll(std::atomic<uint32_t>&) override {}  // There is one thread, and it is not asleep.

 private:
  RingPeer& peer_;
  std::mt19937_64 random_;
  Clock::time_point now_{std::chrono::hours(1)};
};

}  // namespace tier::client
