// DispatchQueue: device requests that wait for their turn on one device. Reads go before writes, because a trainer
// waits for reads; a write passed over kReadsAheadMax times goes all the same. In each direction the oldest is first,
// except that one that was begun goes on before the others: the up to 512 runs of a scattered extent are one wait.
//
// An intrusive list through Request::next: holds what it is given and allocates nothing. The device's thread only.
#pragma once

#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/storage/transfer.h"

namespace tier::storage {

inline constexpr uint32_t kReadsAheadMax = 16;

template <typename Request>
class RequestList {
 public:
  bool empty() const { return first_ == nullptr; }
  void PushBack(Request* request) {
    TIER_CHECK(request->next == nullptr && request != last_, "request is in a list");
    (last_ == nullptr ? first_ : last_->next) = request;
    last_ = request;
  }
  void PushFront(Request* request) {
    TIER_CHECK(request->next == nullptr && request != last_, "request is in a list");
    request->next = first_;
    first_ = request;
    if (last_ == nullptr) last_ = request;
  }
  Request* PopFront() {
    TIER_CHECK(first_ != nullptr, "empty list");
    Request* request = first_;
    first_ = request->next;
    if (first_ == nullptr) last_ = nullptr;
    request->next = nullptr;
    return request;
  }
  Request* back() const { return last_; }

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
};

template <typename Request>
class DispatchQueue {
 public:
  void Push(Request* request) { ListOf(request).PushBack(request); }
  void PushBegun(Request* request) {
    TIER_CHECK(request->done != 0, "nothing of {} bytes is done", request->length);
    ListOf(request).PushFront(request);
  }
  bool any_write() const { return !writes_.empty(); }
  // The next one whose direction the device has room for; null: none.
  Request* Pop(bool room_to_read, bool room_to_write) {
    const bool can_read = room_to_read && !reads_.empty();
    const bool can_write = room_to_write && !writes_.empty();
    if (!can_read && !can_write) return nullptr;
    const bool take_write = can_write && (!can_read || reads_ahead_ >= kReadsAheadMax);
    reads_ahead_ = take_write || writes_.empty() ? 0 : reads_ahead_ + 1;
    return (take_write ? writes_ : reads_).PopFront();
  }

 private:
  RequestList<Request>& ListOf(const Request* request) {
    return request->direction == Direction::kRead ? reads_ : writes_;
  }

  RequestList<Request> reads_;
  RequestList<Request> writes_;
  uint32_t reads_ahead_ = 0;  // Reads taken in a row while a write waited.
};

}  // namespace tier::storage
