// See acceptor.h.
#include "daemon/session/acceptor.h"

#include <sys/socket.h>

#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "daemon/base/check.h"
#include "daemon/session/packet_socket.h"

namespace tier::session {

namespace asio = boost::asio;
using boost::system::error_code;

void Acceptor::Start(proto::FileDescriptor listening) {
  TIER_CHECK(listening && !listening_.is_open(), "listening socket {}", listening.get());
  TIER_CHECK(calls_.on_client && calls_.has_room && calls_.on_warning, "nothing takes clients of {}", listening.get());
  listening_.assign(listening.Release());
  WaitForClient();
}

void Acceptor::Stop() {
  error_code ignored;
  (void)listening_.close(ignored);
  timer_.cancel();
}

void Acceptor::End() {
  if (listening_.is_open()) (void)::shutdown(listening_.native_handle(), SHUT_RDWR);
  Stop();
}

void Acceptor::WaitForClient() {
  listening_.async_wait(asio::posix::descriptor_base::wait_read, [self = shared_from_this()](error_code error) {
    if (!error) self->AcceptSome();
  });
}

void Acceptor::AcceptSome() {
  for (size_t i = 0; i < kAcceptsPerWakeMax; ++i) {
    if (!listening_.is_open()) return;
    if (!calls_.has_room()) return AcceptLater();
    auto socket = AcceptConnection(listening_.native_handle());
    if (!socket && socket.error().code == Code::kDisconnected) return;  // It was shut down: Stop comes.
    if (!socket) {
      calls_.on_warning(fmt::format("cannot accept clients: {}; trying again", socket.error().message));
      return AcceptLater();
    }
    if (!*socket) return WaitForClient();
    calls_.on_client(std::move(*socket));
  }
  asio::post(io_, [self = shared_from_this()] { self->AcceptSome(); });
}

void Acceptor::AcceptLater() {
  timer_.expires_after(kAcceptRetry);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->AcceptSome();
  });
}

}  // namespace tier::session
