#include "daemon/session/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace tier::session {
namespace {

constexpr int kListenFdsStart = 3;  // SD_LISTEN_FDS_START.
constexpr int kListenFdsMax = 64;

std::string TakeVariable(const char* name) {
  const char* value = std::getenv(name);
  std::string copy = value == nullptr ? std::string() : value;
  ::unsetenv(name);
  return copy;
}

std::optional<int64_t> ParseNumber(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The n-th of "a:b:c"; empty when there are fewer.
std::string NthName(std::string_view names, int n) {
  while (n-- > 0) {
    const size_t colon = names.find(':');
    if (colon == std::string_view::npos) return {};
    names.remove_prefix(colon + 1);
  }
  return std::string(names.substr(0, names.find(':')));
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  ServiceManager manager;
  manager.notify_socket_ = TakeVariable("NOTIFY_SOCKET");
  const auto watchdog_usec = ParseNumber(TakeVariable("WATCHDOG_USEC"));
  const auto watchdog_pid = ParseNumber(TakeVariable("WATCHDOG_PID"));
  if (watchdog_usec && *watchdog_usec > 0 && watchdog_pid.value_or(::getpid()) == ::getpid()) {
    manager.watchdog_ = std::chrono::microseconds(*watchdog_usec);
  }
  const auto listen_pid = ParseNumber(TakeVariable("LISTEN_PID"));
  const auto listen_fds = ParseNumber(TakeVariable("LISTEN_FDS"));
  const std::string names = TakeVariable("LISTEN_FDNAMES");
  if (listen_pid != ::getpid() || !listen_fds || *listen_fds < 0 || *listen_fds > kListenFdsMax) return manager;
  for (int i = 0; i < *listen_fds; ++i) {
    const int fd = kListenFdsStart + i;
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) continue;  // Promised and not there.
    (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    manager.passed_.push_back({NthName(names, i), proto::FileDescriptor(fd)});
  }
  return manager;
}

void ServiceManager::Notify(const std::string& state) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (notify_socket_.empty() || notify_socket_.size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, notify_socket_.data(), notify_socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = 0;  // Abstract.
  const proto::FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_socket_.size());
  // Best effort: there may be no listener to notify.
  (void)::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                 size);
}

proto::FileDescriptor ServiceManager::TakeSocket(const std::string& name) {
  for (Passed& passed : passed_) {
    if (passed.name == name && passed.socket) return std::move(passed.socket);
  }
  if (passed_.size() == 1 && passed_.front().socket) return std::move(passed_.front().socket);
  return {};
}

}  // namespace tier::session
