#include "tools/tierctl/page_reader.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "proto/mapping.h"

namespace tier::tierctl {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

std::unexpected<Error> Unserved(const std::string& address, const std::string& why) {
  return Fail(Code::kDisconnected, fmt::format("cannot read metrics from {}: {}", address, why));
}

// False: it is not ready for `events` before `end`.
bool Await(int socket, short events, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one{.fd = socket, .events = events, .revents = 0};
    const int ready = ::poll(&one, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// 0, or what errno would be.
int ConnectUntil(int socket, const addrinfo& at, Clock::time_point end) {
  if (::connect(socket, at.ai_addr, at.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!Await(socket, POLLOUT, end)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// A host by its name only where that asks no other machine, as nothing bounds how long that takes.
Result<proto::FileDescriptor> ConnectTo(const std::string& address, Clock::time_point end) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return Unserved(address, "it has no port");
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = host == "localhost" ? 0 : AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found); error != 0)
    return Unserved(address, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  int error = 0;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    proto::FileDescriptor socket(
        ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    error = ConnectUntil(socket.get(), *at, end);
    if (error == 0) return socket;
  }
  return Unserved(address, std::strerror(error));
}

}  // namespace

Result<std::string> ReadPage(const std::string& address, const std::string& path, std::chrono::milliseconds timeout) {
  const Clock::time_point end = Clock::now() + timeout;
  const auto socket = ConnectTo(address, end);
  if (!socket) return std::unexpected(socket.error());
  const std::string request = fmt::format("GET {} HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n", path, address);
  if (::send(socket->get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    return Unserved(address, std::strerror(errno));
  std::string answer;
  for (std::array<char, 65536> buffer;;) {
    if (!Await(socket->get(), POLLIN, end))
      return Fail(Code::kTimeout, fmt::format("the page of {} did not end within {} ms", address, timeout.count()));
    const ssize_t got = ::recv(socket->get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0)
      return Fail(Code::kIoError, fmt::format("the page of {} breaks off: {}", address, std::strerror(errno)));
    if (got == 0) break;
    answer.append(buffer.data(), static_cast<size_t>(got));
    if (answer.size() > kPageBytesMax)
      return Fail(Code::kIoError, fmt::format("the page of {} is longer than {} bytes", address, kPageBytesMax));
  }
  const size_t body = answer.find("\r\n\r\n");
  const std::string status = answer.substr(0, answer.find('\r'));
  if (body == std::string::npos || !status.starts_with("HTTP/1.") || status.find(" 200 ") == std::string::npos) {
    return Fail(Code::kIoError, fmt::format("{} answered \"{}\"", address, status.substr(0, 100)));
  }
  return answer.substr(body + 4);
}

}  // namespace tier::tierctl
