// StreamRelay: for kernels that let a client send descriptors on any Unix socket (before 6.16, session/
// passed_descriptors.h). gRPC reads a connection in threads that serve every user, and drops there what descriptors
// came with the bytes; that last close can wait for the client. So the client's socket is read here instead, in a
// thread of its user alone, and gRPC gets one end of a socket pair on which nothing but bytes arrives.
//
// Invariant: a connection lives until gRPC closes its end or the bytes cannot be passed on. Add and the destructor: one
// thread; everything else in the relay's own.
#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include <poll.h>

#include "daemon/base/interrupt_timer.h"
#include "proto/mapping.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::control {

class StreamRelay {
 public:
  // NO_MEMORY: the system gives no thread or no descriptor for it.
  static Result<std::unique_ptr<StreamRelay>> Start();
  ~StreamRelay();  // Closes every connection.
  StreamRelay(const StreamRelay&) = delete;
  StreamRelay& operator=(const StreamRelay&) = delete;

  // Takes over a client's connected, non-blocking stream socket; returns gRPC's end. NO_MEMORY: no descriptor is left,
  // and the client's socket stays the caller's.
  Result<proto::FileDescriptor> Add(proto::FileDescriptor* client);

 private:
  StreamRelay() = default;
  // Bytes on their way in one direction; read only once all before them are written.
  struct Flow {
    std::array<std::byte, 16384> bytes;
    size_t begin = 0;
    size_t end = 0;
    bool ended = false;
    bool empty() const { return begin == end; }
  };
  struct Connection {
    proto::FileDescriptor client;
    proto::FileDescriptor server;
    Flow up;    // client → server
    Flow down;  // server → client
  };

  void Run();
  void TakeAdded();
  // What to wait for, two entries a connection, behind the wake-up's.
  std::vector<pollfd> Entries() const;
  // False: it is over.
  bool Advance(Connection& connection, base::InterruptTimer& timer);
  static bool Fill(int from, Flow& flow);
  static bool Drain(int to, Flow& flow);

  proto::FileDescriptor wake_;         // eventfd
  std::list<Connection> connections_;  // The relay's thread's own.
  Mutex mutex_;
  std::list<Connection> added_ TIER_GUARDED_BY(mutex_);
  bool stopping_ TIER_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tier::control
