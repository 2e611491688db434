#include "tests/unit/metrics/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace tier::metrics::testing {

HttpClient::HttpClient(uint16_t port, int receive_buffer) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer != 0) ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) socket_ = {};
}

bool HttpClient::Send(std::string_view text) {
  return ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::string HttpClient::ReadToEnd() {
  std::string answer;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = ::read(socket_.get(), part.data(), part.size())) > 0;)
    answer.append(part.data(), static_cast<size_t>(got));
  return answer;
}

std::string HttpClient::ReadAnswer() {
  std::string answer;
  char byte = 0;
  while (!answer.ends_with("\r\n\r\n") && ::read(socket_.get(), &byte, 1) == 1) answer += byte;
  constexpr std::string_view kLength = "Content-Length: ";
  const size_t at = answer.find(kLength);
  size_t left = at == std::string::npos ? 0 : std::strtoul(answer.c_str() + at + kLength.size(), nullptr, 10);
  for (; left != 0 && ::read(socket_.get(), &byte, 1) == 1; --left) answer += byte;
  return answer;
}

std::string Ask(uint16_t port, std::string_view method, std::string_view path) {
  HttpClient client(port);
  client.Send(std::string(method) + " " + std::string(path) + " HTTP/1.0\r\n\r\n");
  return client.ReadToEnd();
}

}  // namespace tier::metrics::testing
