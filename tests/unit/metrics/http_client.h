// HttpClient: one connection to loopback, and what is said on it byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/mapping.h"

namespace tier::metrics::testing {

class HttpClient {
 public:
  explicit HttpClient(uint16_t port, int receive_buffer = 0);  // 0: as large as the system makes it.
  // False: the peer has closed it.
  bool Send(std::string_view text);
  // All that comes until the peer closes it.
  std::string ReadToEnd();
  // Header and body of one answer whose length its header states.
  std::string ReadAnswer();
  bool connected() const { return static_cast<bool>(socket_); }

 private:
  proto::FileDescriptor socket_;
};

// On a connection of its own.
std::string Ask(uint16_t port, std::string_view method, std::string_view path);

}  // namespace tier::metrics::testing
