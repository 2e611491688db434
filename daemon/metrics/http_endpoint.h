// HttpEndpoint: a few pages over HTTP/1.1, by Boost.Beast. One thread serves all connections, and waits for none of
// them: a peer that sends or reads slowly takes a descriptor, and only until its deadline. Of more than
// `connections_max` the one that has waited for its peer longest is closed, so one more reader always comes in.
//
// Listen, Start, Move and the destructor: one thread. `serve` runs on the endpoint's own thread, one call at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "proto/result.h"

namespace tier::metrics {

struct HttpPage {
  unsigned status = 200;
  std::string type;  // "text/plain; charset=utf-8"
  std::string body;
};

// Whether "ADDRESS:PORT" has a name in place of an address, for which a server may have to be asked.
bool NamesAHost(const std::string& listen);

struct HttpLimits {
  size_t connections_max = 64;
  std::chrono::milliseconds request_max{5'000};  // From the connection, or its first byte, to the end of a request.
  std::chrono::milliseconds idle_max{150'000};   // Between two requests: longer than scrapes lie apart.
  std::chrono::milliseconds answer_max{10'000};  // To read an answer.
};

class HttpEndpoint {
 public:
  using Serve = std::function<HttpPage(std::string_view path)>;

  // `listen` is "ADDRESS:PORT"; port 0 picks a free one. INVALID with the reason if it cannot be had. Connections wait
  // until Start.
  static Result<std::unique_ptr<HttpEndpoint>> Listen(const std::string& listen, HttpLimits limits = {});
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  // Once. NO_MEMORY: the system gives no thread.
  Status Start(Serve serve);
  // Serves at another address from now on; empty: nowhere. Open connections are closed; `serve` and what it keeps stay
  // as they are. The new address may be another one of the port that is held: 0.0.0.0 in place of 127.0.0.1. The old
  // one is free when this returns, also while `serve` is busy. INVALID with the reason: nothing has changed. It waits
  // for nothing, so a name in place of an address is INVALID. After Start.
  Status Move(const std::string& listen);
  const std::string& address() const;  // "127.0.0.1:9464", with the port that was taken; empty: nowhere.
  uint16_t port() const;               // 0: nowhere.
  // Connections that were closed for one more. Any thread.
  uint64_t closed_for_others() const;

 private:
  struct State;
  explicit HttpEndpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tier::metrics
