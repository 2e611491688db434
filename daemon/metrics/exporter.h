// Exporter: what is served over HTTP of a daemon: /metrics for Prometheus, /healthz, and a page that names both. Each
// scrape asks the engine once; where it does not answer, both say 503. Threads: http_endpoint's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/metrics/http_endpoint.h"
#include "daemon/session/control_api.h"
#include "proto/result.h"

namespace tier::metrics {

class Exporter {
 public:
  // `listen` is "ADDRESS:PORT"; port 0 picks a free one. INVALID if it cannot be bound, naming the address and what to
  // do. Scrapes wait until Start.
  static Result<std::unique_ptr<Exporter>> Listen(const std::string& listen);
  // `api` must outlive the exporter. NO_MEMORY: the system gives no thread.
  Status Start(session::ControlApi& api);
  // Serves at another address from now on, with the same counts; empty: nowhere. As HttpEndpoint::Move.
  Status Move(const std::string& listen);
  const std::string& address() const { return endpoint_->address(); }  // "127.0.0.1:9464"
  uint16_t port() const { return endpoint_->port(); }
  // Scrapes that were closed because too many others waited. Any thread.
  uint64_t closed_for_others() const { return endpoint_->closed_for_others(); }

 private:
  explicit Exporter(std::unique_ptr<HttpEndpoint> endpoint) : endpoint_(std::move(endpoint)) {}
  std::unique_ptr<HttpEndpoint> endpoint_;
};

}  // namespace tier::metrics
