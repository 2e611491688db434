// Exporter: serves /metrics over HTTP (prometheus-cpp). Each scrape asks the engine once. Threads: civetweb's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/session/control_api.h"
#include "proto/result.h"

namespace tier::metrics {

class Exporter {
 public:
  // `listen` is "ADDRESS:PORT"; port 0 picks a free one. INVALID if it cannot be bound, naming the address and what to
  // do. `api` must outlive the exporter.
  static Result<std::unique_ptr<Exporter>> Start(const std::string& listen, session::ControlApi& api);
  ~Exporter();
  uint16_t port() const;

 private:
  Exporter();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tier::metrics
