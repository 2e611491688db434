// Session: one attached client. Owns the link, the rings, the windows, the leases and the service thread.
//
// The service thread receives windows, requests to return windows, and the end of the session. It blocks in poll(),
// answers while the program computes, and ends the session of a daemon that no longer answers. All signals are blocked
// in it.
// Threads: any. Lifetime: by counted users: the client handle, each open lease, each operation. Close() ends the
// session; the last user frees the memory. Invariant: after Close() no window is mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "libclient/client/channel.h"
#include "libclient/client/lease.h"
#include "libclient/client/pinned_windows.h"
#include "libclient/client/stitch_cache.h"
#include "libclient/client/window_map.h"
#include "libclient/link/packet.h"
#include "libclient/link/session_link.h"
#include "proto/mapping.h"
#include "proto/mutex.h"

namespace tier::client {

struct SessionOptions {
  link::AttachOptions attach;
  SpinMode spin = SpinMode::kAuto;
  std::chrono::milliseconds late_check_period = kLateCheckPeriod;
  std::chrono::milliseconds lateness_max = kAnswerLatenessMax;
  std::chrono::milliseconds window_timeout{5000};  // From a completion that names a window to the window itself.
};

struct SessionCounters {
  std::atomic<uint64_t> copied_to_tensors_bytes{0};
  std::atomic<uint64_t> copied_from_tensors_bytes{0};
  std::atomic<uint64_t> acquires{0};
};

// The write in place that a released lease was part of: several ranges that are only valid together.
struct RewrittenRange {
  uint64_t offset = 0;  // Of the whole write, in bytes of the tensor.
  uint64_t length = 0;  // 0: the lease was part of none.
};

class Session {
 public:
  // Attaches and starts the service thread. The result has one user.
  static Result<Session*> Open(const SessionOptions& options);
  void Hold(uint64_t users = 1) { users_.fetch_add(users, std::memory_order_relaxed); }
  void Drop(uint64_t users = 1);

  // Sends Goodbye and waits until the daemon has ended the session, so that what it held is free when this returns.
  // Does nothing in a forked child. To be called once.
  void Close();

  // May this call continue? DISCONNECTED in a forked child; the reason after the session's end; a deferred failure,
  // once.
  Status Enter();
  // As Enter, without deferred failures: for releases, frees and hints.
  Status Alive() const;
  bool forked() const { return generation_ != ForkGeneration(); }

  // Sends one request and waits for its answer. The Pending is the caller's until channel().Finish.
  Result<Pending*> Ask(const Submission& submission);
  // As Ask, for requests answered by a code alone.
  Status AskStatus(const Submission& submission);

  // Create or acquire, all or nothing: one lease for each item.
  Status Acquire(const Submission& submission, std::span<Lease*> leases);
  // The leases of an answered create or acquire. A malformed answer ends the session.
  Status Grant(const Pending& pending, const Submission& submission, std::span<Lease*> leases);
  // Ends leases of this session without waiting. The handles are invalid afterwards, whatever is returned. `rewrite`:
  // with kFlagMore in `flags` while ranges of it are still to come; if the process dies before the last one, the tensor
  // is TORN.
  Status Release(std::span<Lease* const> leases, uint32_t flags, RewrittenRange rewrite = {});
  // The contiguous bytes of a lease, stitched if need be.
  Result<std::byte*> Data(Lease& lease);
  // Views of all that is leased take half of the mappings that views may have, or would: what is leased from now on
  // should lie side by side (kFlagContiguous).
  bool mappings_run_short() const {
    const uint64_t wanted = scattered_runs_.load(std::memory_order_relaxed) + stitches_->vmas_in_use();
    return wanted >= stitches_->vmas_max() / 2;
  }

  Channel& channel() { return *channel_; }
  WindowMap& windows() { return *windows_; }
  PinnedWindows& pinned() { return *pinned_; }
  SessionCounters& counters() { return counters_; }
  uint64_t leases_open() const { return slab_.open_count(); }
  uint64_t stitched_count() const { return stitches_->view_count(); }
  const proto::Welcome& welcome() const { return welcome_; }
  const std::string& socket_path() const { return socket_path_; }

 private:
  Session() = default;
  ~Session();
  static uint32_t ForkGeneration();
  Status Setup(const SessionOptions& options, link::Attachment attachment);
  Status MapRegions(const link::Attachment& attachment);

  void Serve();
  bool ServePacket();
  void CheckForLate();
  void TakeWindow(link::Packet& packet);
  void ReturnWindow(const link::Packet& packet);
  void End(Code code, std::string message);

  Status FillLease(Lease& lease, std::span<const proto::SpanRecord> spans, uint64_t length_asked);
  void Detach(Lease& lease);
  Status PostReleases(std::span<const proto::RequestItem> items, uint32_t flags, bool can_wait);

  std::atomic<uint64_t> users_{1};
  uint32_t generation_ = 0;
  std::atomic<bool> closed_{false};
  std::string socket_path_;
  proto::Welcome welcome_{};
  std::chrono::milliseconds window_timeout_{};
  std::chrono::milliseconds late_check_period_{};
  proto::FileDescriptor socket_;
  proto::FileDescriptor doorbell_;
  proto::FileDescriptor stop_;  // eventfd: the service thread is to end.
  proto::Mapping region_;
  proto::Mapping engine_page_;
  std::unique_ptr<WindowMap> windows_;
  std::unique_ptr<StitchCache> stitches_;
  std::unique_ptr<PinnedWindows> pinned_;
  std::unique_ptr<Channel> channel_;
  LeaseSlab slab_;
  std::atomic<uint64_t> scattered_runs_{0};  // Lease::scattered_runs of all open leases.
  Mutex stitch_mutex_;  // Lease::address and ::view of this session's leases, while one is being stitched.
  SessionCounters counters_;
  std::thread service_;
};

}  // namespace tier::client
