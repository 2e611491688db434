// The end of client processes by force: of those that keep memory which was taken from them. Socket thread only.
#pragma once

#include <cstdint>
#include <map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "daemon/session/peer_identity.h"
#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::session {

// Whether this process may end processes of other users: it has CAP_KILL.
bool MayEndOthers();
// SIGKILL. NOT_FOUND: it has ended already. DENIED: the daemon has not the right.
Status EndProcess(int pidfd);

// Processes of sessions that have ended, while they live: at most kProcessesMax, of the latest sessions. The pidfd of
// one that ends is closed then.
class LeftProcesses {
 public:
  static constexpr size_t kProcessesMax = 1024;

  explicit LeftProcesses(boost::asio::io_context& io) : io_(io) {}
  LeftProcesses(const LeftProcesses&) = delete;
  LeftProcesses& operator=(const LeftProcesses&) = delete;

  void Add(uint64_t session, proto::FileDescriptor pidfd);
  // The pidfd of the session's process; -1: it has ended, or is not known.
  int Find(uint64_t session);
  size_t size() const { return processes_.size(); }

 private:
  boost::asio::io_context& io_;
  std::map<uint64_t, boost::asio::posix::stream_descriptor> processes_;  // By session: the oldest first.
};

}  // namespace tier::session
