#include "daemon/control/stream_relay.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "daemon/base/check.h"
#include "proto/start_thread.h"

namespace tier::control {

Result<std::unique_ptr<StreamRelay>> StreamRelay::Start() {
  std::unique_ptr<StreamRelay> relay(new StreamRelay());
  relay->wake_ = proto::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!relay->wake_) return Fail(Code::kNoMemory, std::string("eventfd: ") + std::strerror(errno));
  auto thread =
      proto::StartThread("tierd-relay", proto::BlockedSignals::kAsynchronous, [raw = relay.get()] { raw->Run(); });
  if (!thread) return std::unexpected(std::move(thread.error()));
  relay->thread_ = std::move(*thread);
  return relay;
}

StreamRelay::~StreamRelay() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

Result<proto::FileDescriptor> StreamRelay::Add(proto::FileDescriptor* client) {
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return Fail(Code::kNoMemory, std::string("no descriptor left for a connection: ") + std::strerror(errno));
  }
  {
    const MutexLock lock(mutex_);
    Connection& connection = added_.emplace_back();
    connection.client = std::move(*client);
    connection.server = proto::FileDescriptor(pair[0]);
  }
  (void)::eventfd_write(wake_.get(), 1);
  return proto::FileDescriptor(pair[1]);
}

std::vector<pollfd> StreamRelay::Entries() const {
  const auto events = [](const Flow& from, const Flow& to) {
    return static_cast<short>((from.empty() && !from.ended ? POLLIN : 0) | (to.empty() ? 0 : POLLOUT));
  };
  std::vector<pollfd> entries = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const Connection& one : connections_) {
    // A client that has ended its side stays readable: without events poll() still tells of a hang-up, so it is left
    // out.
    const short of_client = events(one.up, one.down);
    entries.push_back({.fd = of_client == 0 ? -1 : one.client.get(), .events = of_client, .revents = 0});
    entries.push_back({.fd = one.server.get(), .events = events(one.down, one.up), .revents = 0});
  }
  return entries;
}

void StreamRelay::TakeAdded() {
  eventfd_t count = 0;
  (void)::eventfd_read(wake_.get(), &count);
  const MutexLock lock(mutex_);
  connections_.splice(connections_.end(), added_);
}

void StreamRelay::Run() {
  base::InterruptTimer timer;
  for (;;) {
    std::vector<pollfd> entries = Entries();
    const int ready = ::poll(entries.data(), entries.size(), -1);
    TIER_CHECK(ready >= 0 || errno == EINTR, "poll errno {}", errno);
    size_t entry = 1;
    for (auto one = connections_.begin(); one != connections_.end(); entry += 2) {
      const bool due = ready > 0 && (entries[entry].revents != 0 || entries[entry + 1].revents != 0);
      const bool over = due && !Advance(*one, timer);
      if (over) timer.Start();  // Unread bytes may hold descriptors: closing can wait as reading can.
      one = over ? connections_.erase(one) : std::next(one);
      if (over) timer.Stop();
    }
    if (entries[0].revents != 0) TakeAdded();
    const MutexLock lock(mutex_);
    if (stopping_) break;
  }
  timer.Start();
  connections_.clear();
  timer.Stop();
}

bool StreamRelay::Advance(Connection& connection, base::InterruptTimer& timer) {
  timer.Start();
  const bool read = Fill(connection.client.get(), connection.up);
  timer.Stop();
  if (!read || !Fill(connection.server.get(), connection.down)) return false;
  if (!Drain(connection.server.get(), connection.up) || !Drain(connection.client.get(), connection.down)) return false;
  // gRPC closes a connection as a whole; a client may end its own side first.
  if (connection.up.ended && connection.up.empty()) (void)::shutdown(connection.server.get(), SHUT_WR);
  return !(connection.down.ended && connection.down.empty());
}

// Without room for control messages: the kernel drops what descriptors came with the bytes, in this thread.
bool StreamRelay::Fill(int from, Flow& flow) {
  if (flow.ended || !flow.empty()) return true;
  iovec part = {.iov_base = flow.bytes.data(), .iov_len = flow.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t got = ::recvmsg(from, &message, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  flow.begin = 0;
  flow.end = static_cast<size_t>(got);
  flow.ended = got == 0;
  return true;
}

bool StreamRelay::Drain(int to, Flow& flow) {
  while (!flow.empty()) {
    const ssize_t sent = ::send(to, flow.bytes.data() + flow.begin, flow.end - flow.begin, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    flow.begin += static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace tier::control
