// Descriptors that a client sends with SCM_RIGHTS. The daemon receives none: closing a stranger's descriptor can wait
// for the stranger (a FUSE file's FLUSH even beyond SIGKILL, a TCP socket's SO_LINGER, the pages of a large memfd).
//
// Linux 6.16 refuses them at the sender (SO_PASSRIGHTS). An older kernel queues them, and drops them in the thread that
// reads the packet or closes the socket. There the reader looks at a packet first and leaves one with descriptors in
// the queue (packet_socket.h); the socket is then closed by BackgroundCloser. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <thread>

#include "proto/mapping.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::session {

// Makes the kernel refuse descriptors on this socket, and on those accepted from it if it is a listening one without
// connections so far. Without effect before Linux 6.16.
void RefuseDescriptors(int socket);
// Whether the kernel has refused them since the peer connected. REQUIRES: an accepted socket.
bool DescriptorsRefused(int socket);

// Sockets that wait to be closed. With this many a listener accepts no connection until some are closed.
inline constexpr size_t kBackgroundClosesMax = 128;

// Closes sockets whose unread packets carry descriptors, in a thread that no other thread waits for. The thread is
// started by the first of them; where the system gives none, they stay open until it does. A wait that signals can
// interrupt ends within milliseconds (InterruptTimer).
class BackgroundCloser {
 public:
  BackgroundCloser() = default;
  ~BackgroundCloser();  // When all are closed.
  BackgroundCloser(const BackgroundCloser&) = delete;
  BackgroundCloser& operator=(const BackgroundCloser&) = delete;

  // NO_MEMORY: the system gives no thread; the socket waits for one, which later calls of these two try to start.
  Status Close(proto::FileDescriptor socket);
  bool full();

 private:
  Status EnsureThread();
  void Run();

  std::atomic<size_t> waiting_{0};  // Those in queue_ and the one being closed.
  Mutex mutex_;
  CondVar changed_;
  std::deque<proto::FileDescriptor> queue_ TIER_GUARDED_BY(mutex_);
  bool stopping_ TIER_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Started and joined by the owner's thread.
};

}  // namespace tier::session
