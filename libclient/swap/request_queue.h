// RequestQueue: started requests that are not on the ring yet (deferred), and sent ones whose caller has gone
// (abandoned), whose answers must still be taken in.
//
// Deferred requests wait for the operations in front of them in the TensorOrder, or for room (a credit, ring entries).
// They are sent in the order in which they were started; the first that finds no room holds back the later ones. Only
// frees may be passed: while kAbandonedMax requests are abandoned, a free that no thread waits for stays until some are
// answered. A free that its caller abandoned while it was deferred is sent all the same. Leases that an abandoned
// request is granted are released untouched.
// Thread: one at a time, under its owner's lock. Invariants (CheckInvariants): a request is deferred exactly
//   while it is unsent and its ticket is in the order; tickets of deferred requests ascend.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "libclient/client/session.h"
#include "libclient/swap/request_operation.h"
#include "libclient/swap/tensor_order.h"

namespace tier::swap {

// Half of the credits that started requests share: abandoned frees, which the daemon may answer late (other sessions
// hold leases on the tensors), leave the other half to requests that callers wait for.
inline constexpr uint32_t kAbandonedMax = client::QuotaOf(client::Credit::kStarted) / 2;

// The refusal of a request that may not wait, or has waited too long, for a swap of its own client.
Error BehindSwap();              // TIMEOUT
Status MayWait(uint32_t flags);  // TIMEOUT or WOULD_DEADLOCK for flags that forbid it.

class RequestQueue {
 public:
  // `answers` counts the completions of requests sent here.
  RequestQueue(client::Session& session, client::Group& answers, TensorOrder& order)
      : session_(session), answers_(answers), order_(order) {}

  // Adds a request at the end of the order; SendReady sends it. Refuses it (RequestOperation::refused) when it follows
  // a swap and its flags forbid to wait for that.
  void Defer(const std::shared_ptr<RequestOperation>& request);
  // Sends the requests that may begin and find room. True when a request left the queue: sent, expired, or refused by
  // the channel.
  bool SendReady();
  // Refuses a deferred request. False when it is not in the queue.
  bool Withdraw(const RequestOperation& request, Error error);
  // As Withdraw, for a request whose deadline has passed: with the reason why it was never sent.
  bool Expire(const RequestOperation& request);
  // A thread waits until the request is sent. True the first time.
  bool MarkAwaited(const RequestOperation& request);
  // From now on no caller takes answers: requests for leases are refused, others sent if there is room before
  // `room_deadline`.
  void Close(client::Clock::time_point room_deadline) { closing_ = room_deadline; }

  // Takes over a request on its way that no caller waits for any more.
  void Abandon(client::Pending* pending, const client::Submission& submission);
  // Takes the answers of abandoned requests.
  void SettleAbandoned();

  // A request may be sent or settled, now or after an answer.
  bool HasWork() const;
  bool Waits(const RequestOperation& request) const;  // Deferred, and only for room.
  bool starved() const { return starved_; }           // The last SendReady found no room for a request.
  size_t deferred() const { return deferred_.size(); }
  size_t abandoned() const { return abandoned_.size(); }
  Status CheckInvariants() const;

 private:
  struct Deferred {
    std::shared_ptr<RequestOperation> request;
    TensorOrder::Ticket ticket = 0;
    bool follows_swap = false;  // When it was deferred.
    bool awaited = false;
  };
  struct Abandoned {
    client::Pending* pending = nullptr;
    client::Submission submission;
    std::vector<proto::RequestItem> items;
  };
  using Entry = std::list<Deferred>::iterator;

  Entry Find(const RequestOperation& request);
  // True when the request is over: sent or refused. False when there is no room.
  bool TrySend(const Deferred& deferred);
  bool TrySendAtClose(RequestOperation& request);
  bool MustWaitForAnswers(const Deferred& deferred) const;
  Entry Leave(Entry entry);
  void Settle(const Abandoned& abandoned);

  client::Session& session_;
  client::Group& answers_;
  TensorOrder& order_;
  std::list<Deferred> deferred_;  // In the order of their tickets.
  std::list<Abandoned> abandoned_;
  bool starved_ = false;
  std::optional<client::Clock::time_point> closing_;  // Since Close.
};

}  // namespace tier::swap
