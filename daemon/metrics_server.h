// MetricsServer: serves the metrics of the daemon where the configuration says so. The file metrics.port in the socket
// directory has its port.
//
// Main thread, except address().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/base/time.h"
#include "daemon/metrics/exporter.h"

namespace tier {

class MetricsServer {
 public:
  explicit MetricsServer(const std::string& socket_directory) : port_file_(socket_directory + "/metrics.port") {}
  ~MetricsServer() { Close(); }

  // Takes the address, ADDRESS:PORT; empty: none. Scrapes wait until Start. INVALID names the address and what to do.
  // Once, before other threads ask for the address.
  Status Open(const std::string& listen);
  // `api` outlives this. NO_MEMORY: the system gives no thread.
  Status Start(session::ControlApi& api);
  // Waits for scrapes under way; then none is served, and the file is gone.
  void Close();
  const std::string& address() const { return address_; }  // Empty: none. Any thread.
  // Logs that scrapes had to be closed, once a minute at most.
  void ReportScrapes(base::TimePoint now);

 private:
  const std::string port_file_;
  std::string address_;
  std::unique_ptr<metrics::Exporter> exporter_;  // Null: none is served.
  uint64_t scrapes_closed_ = 0;                  // Of Exporter::closed_for_others, as last told.
  std::optional<base::TimePoint> scrapes_told_;
};

}  // namespace tier
