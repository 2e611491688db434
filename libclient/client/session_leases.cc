// Granting, stitching and ending leases.
#include <array>
#include <utility>

#include "libclient/client/session.h"

namespace tier::client {
namespace {

using proto::SpanRecord;

// Spans of item `item` at the front of `spans`: same item, same lease.
size_t CountOfItem(std::span<const SpanRecord> spans, uint32_t item) {
  size_t count = 0;
  while (count < spans.size() && spans[count].item == item && spans[count].lease == spans.front().lease) count++;
  return count;
}

}  // namespace

Result<Pending*> Session::Ask(const Submission& submission) {
  auto pending = channel_->Submit(submission);
  if (!pending) return std::unexpected(pending.error());
  if (auto waited = channel_->Wait(*pending); !waited) return std::unexpected(waited.error());
  return *pending;
}

Status Session::AskStatus(const Submission& submission) {
  auto pending = Ask(submission);
  if (!pending) return std::unexpected(pending.error());
  auto status = (*pending)->ToStatus();
  channel_->Finish(*pending);
  return status;
}

Status Session::Acquire(const Submission& submission, std::span<Lease*> leases) {
  auto pending = Ask(submission);
  if (!pending) return std::unexpected(pending.error());
  auto status = Grant(**pending, submission, leases);
  channel_->Finish(*pending);
  if (status) counters_.acquires.fetch_add(leases.size(), std::memory_order_relaxed);
  return status;
}

Status Session::Grant(const Pending& pending, const Submission& submission, std::span<Lease*> leases) {
  if (auto answer = pending.ToStatus(); !answer) return answer;
  slab_.Take(leases);
  auto spans = pending.spans();
  Status status;
  for (size_t i = 0; i < leases.size(); ++i) {
    Lease& lease = *leases[i];
    const auto& item = submission.items[i];
    lease.session = this;
    lease.tensor = item.tensor;
    lease.offset = item.offset;
    lease.release_can_wait =
        submission.op == proto::Op::kAcquire && (submission.flags & (proto::kFlagWrite | proto::kFlagShared)) == 0;
    lease.length = 0;
    const size_t count = status ? CountOfItem(spans, static_cast<uint32_t>(i)) : 0;
    if (status) status = FillLease(lease, spans.first(count), item.length);
    lease.open.store(status.has_value(), std::memory_order_relaxed);
    spans = spans.subspan(count);
  }
  if (status && !spans.empty()) status = Fail(Code::kDisconnected, "the daemon granted more than was asked");
  if (status) {
    Hold(leases.size());
    return {};
  }
  for (Lease* lease : leases) Detach(*lease);
  slab_.Give(leases);
  End(Code::kDisconnected, status.error().message + ": the session was ended");
  return Alive();
}

Status Session::FillLease(Lease& lease, std::span<const SpanRecord> spans, uint64_t length_asked) {
  if (spans.empty() || spans.front().lease == 0)
    return Fail(Code::kDisconnected, "the daemon granted a lease of nothing");
  lease.id = spans.front().lease;
  bool contiguous = true;
  for (const SpanRecord& span : spans) {
    if (!windows_->Await(span, window_timeout_)) {
      return Fail(Code::kDisconnected, "the daemon granted bytes in window " + std::to_string(span.window) +
                                           " (offset " + std::to_string(span.offset) + ", length " +
                                           std::to_string(span.length) + "), which it never sent");
    }
    lease.length += span.length;
    Run* const last = lease.runs.empty() ? nullptr : &lease.runs.back();
    if (last != nullptr && last->window == span.window && last->offset + last->length == span.offset) {
      last->length += span.length;
      continue;
    }
    contiguous = contiguous && (last == nullptr || windows_->AddressOf(last->window, last->offset + last->length) ==
                                                       windows_->AddressOf(span.window, span.offset));
    lease.runs.push_back({span.window, span.offset, span.length});
    windows_->AddLease(span.window);
  }
  if (length_asked != 0 && lease.length != length_asked) {
    return Fail(Code::kDisconnected, "the daemon granted " + std::to_string(lease.length) + " bytes where " +
                                         std::to_string(length_asked) + " were asked");
  }
  if (contiguous) {
    lease.address = windows_->AddressOf(lease.runs.front().window, lease.runs.front().offset);
  } else {
    lease.scattered_runs = lease.runs.size();
    scattered_runs_.fetch_add(lease.scattered_runs, std::memory_order_relaxed);
  }
  return {};
}

// Undoes FillLease on our side; nothing is told to the daemon.
void Session::Detach(Lease& lease) {
  if (lease.view != nullptr) stitches_->Release(lease.view);
  lease.view = nullptr;
  for (const Run& run : lease.runs) windows_->DropLease(run.window);
  lease.runs.clear();
  scattered_runs_.fetch_sub(std::exchange(lease.scattered_runs, 0), std::memory_order_relaxed);
}

Status Session::Release(std::span<Lease* const> leases, uint32_t flags, RewrittenRange rewrite) {
  Status status;
  uint64_t released = 0;
  std::array<proto::RequestItem, proto::kItemsPerRequestMax> items;
  std::array<Lease*, proto::kItemsPerRequestMax> ended;
  while (!leases.empty()) {
    const auto batch = leases.first(std::min<size_t>(leases.size(), items.size()));
    size_t count = 0;
    bool can_wait = flags == 0;
    for (Lease* lease : batch) {
      if (!lease->open.exchange(false)) {
        status = Fail(Code::kStale, "this lease was released before");
        continue;
      }
      Detach(*lease);
      ended[count] = lease;
      items[count++] = {.tensor = 0, .offset = rewrite.offset, .length = rewrite.length, .value = lease->id};
      can_wait = can_wait && lease->release_can_wait;
    }
    slab_.Give(std::span(ended).first(count));
    if (auto posted = PostReleases(std::span(items).first(count), flags, can_wait); !posted) status = posted;
    leases = leases.subspan(batch.size());
    released += count;
  }
  if (released > 0) Drop(released);
  return status;
}

Status Session::PostReleases(std::span<const proto::RequestItem> items, uint32_t flags, bool can_wait) {
  if (items.empty()) return {};
  if (channel_->ended()) return std::unexpected(channel_->end_reason());
  return channel_->SubmitDetached({.op = proto::Op::kRelease, .flags = flags, .items = items, .can_wait = can_wait});
}

Result<std::byte*> Session::Data(Lease& lease) {
  const MutexLock lock(stitch_mutex_);
  if (lease.address != nullptr) return lease.address;
  auto view = stitches_->Acquire(lease.runs);
  if (!view) return std::unexpected(view.error());
  lease.view = *view;
  scattered_runs_.fetch_sub(std::exchange(lease.scattered_runs, 0), std::memory_order_relaxed);
  lease.address = (*view)->data;
  return lease.address;
}

}  // namespace tier::client
