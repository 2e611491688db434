// RequestOperation: one started request, shared by its caller's handle and, until it is sent, by the RequestQueue.
//
// It is sent once or refused once, by the thread that holds the scheduler's lock (before the handle exists: by the
// thread that makes it, without the lock). Its state publishes that, so that a handle needs no lock to wait for the
// answer. Threads: any. Invariant: `pending` is not null only in state kSent, and null again when the handle has taken
// it.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libclient/client/channel.h"
#include "libclient/client/lease.h"
#include "proto/result.h"

namespace tier::swap {

class RequestOperation {
 public:
  // `leases` is filled when the outcome is taken, and must live until then.
  RequestOperation(const client::Submission& submission, std::span<client::Lease*> leases,
                   client::Clock::time_point expires)
      : submission_(submission),
        items_(submission.items.begin(), submission.items.end()),
        leases_(leases),
        expires_(expires) {
    submission_.items = items_;
  }
  RequestOperation(const RequestOperation&) = delete;
  RequestOperation& operator=(const RequestOperation&) = delete;

  const client::Submission& submission() const { return submission_; }
  std::span<client::Lease*> leases() const { return leases_; }
  bool frees() const { return submission_.op == proto::Op::kFree; }
  client::Clock::time_point expires() const { return expires_; }  // While it is not sent.

  bool unsent() const { return state_.load(std::memory_order_acquire) == State::kUnsent; }
  bool refused() const { return state_.load(std::memory_order_acquire) == State::kRefused; }
  const Error& refusal() const { return refusal_; }  // REQUIRES: refused().
  // Null until it is sent, and if no caller is left to take the answer.
  client::Pending* pending() const { return pending_.load(std::memory_order_acquire); }
  client::Pending* TakePending() { return pending_.exchange(nullptr, std::memory_order_acq_rel); }

  // REQUIRES for both: unsent().
  void MarkSent(client::Pending* pending) {
    pending_.store(pending, std::memory_order_release);
    state_.store(State::kSent, std::memory_order_release);
  }
  void Refuse(Error error) {
    refusal_ = std::move(error);
    state_.store(State::kRefused, std::memory_order_release);
  }

  const std::atomic<bool>& cancelled() const { return cancelled_; }
  void Cancel() { cancelled_.store(true); }
  // Whether it still counts against kStartedMax; false from the first call on.
  bool TakeCount() { return counted_.exchange(false); }

 private:
  enum class State : uint8_t { kUnsent, kSent, kRefused };

  client::Submission submission_;
  const std::vector<proto::RequestItem> items_;
  const std::span<client::Lease*> leases_;
  const client::Clock::time_point expires_;
  std::atomic<State> state_{State::kUnsent};
  std::atomic<client::Pending*> pending_{nullptr};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> counted_{true};
  Error refusal_;
};

}  // namespace tier::swap
