// Acceptor: takes the clients of one listening socket, on the socket thread. Some at a time, so that others have their
// turn; and later where there is no descriptor for them now.
//
// Shared: its handlers keep it, and do nothing once it is stopped.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/mapping.h"

namespace tier::session {

inline constexpr size_t kAcceptsPerWakeMax = 32;  // Then those accepted have their turn to say hello.
inline constexpr auto kAcceptRetry = std::chrono::milliseconds(100);  // When no descriptor is to be had.

struct AcceptorCalls {
  std::function<void(proto::FileDescriptor)> on_client;
  std::function<bool()> has_room;  // False: none is taken for as long as kAcceptRetry.
  std::function<void(const std::string&)> on_warning;
};

class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(boost::asio::io_context& io, AcceptorCalls calls)
      : io_(io), calls_(std::move(calls)), listening_(io), timer_(io) {}

  void Start(proto::FileDescriptor listening);
  void Stop();
  // Stop, and nothing connects there any more, though others have a descriptor of the socket too.
  void End();

 private:
  void WaitForClient();
  void AcceptSome();
  void AcceptLater();

  boost::asio::io_context& io_;
  const AcceptorCalls calls_;
  boost::asio::posix::stream_descriptor listening_;
  boost::asio::steady_timer timer_;
};

}  // namespace tier::session
