// MetricsServer: serves the metrics of the daemon, where the configuration says so: from the start on, and after a
// reload that names another address. The file metrics.port in the socket directory has its port.
//
// Main thread, except address().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/base/time.h"
#include "daemon/metrics/exporter.h"
#include "proto/mutex.h"

namespace tier {

class MetricsServer {
 public:
  explicit MetricsServer(const std::string& socket_directory) : port_file_(socket_directory + "/metrics.port") {}
  ~MetricsServer() { Close(); }

  // Takes the address, ADDRESS:PORT; empty: none. Scrapes wait until Start. INVALID names the address and what to do.
  Status Open(const std::string& listen) TIER_EXCLUDES(mutex_);
  // `api` outlives this. NO_MEMORY: the system gives no thread.
  Status Start(session::ControlApi& api);
  // Serves at another address too, until Commit, which ends the old one, or the next Prepare. Fails as the two above:
  // then the old one alone serves on. REQUIRES: started.
  Status Prepare(const std::string& listen);
  void Commit() TIER_EXCLUDES(mutex_);  // Without effect where nothing is prepared.

  // Waits for scrapes under way; then none is served, and the file is gone.
  void Close();
  std::string address() const TIER_EXCLUDES(mutex_);  // Empty: none. Any thread.
  // Logs that scrapes had to be closed, once a minute at most.
  void ReportScrapes(base::TimePoint now);

 private:
  struct Served {
    std::string listen;  // As it was asked for: port 0 may be in it.
    std::unique_ptr<metrics::Exporter> exporter;
  };
  static Result<Served> Listen(const std::string& listen);
  void Announce() TIER_EXCLUDES(mutex_);

  const std::string port_file_;
  session::ControlApi* api_ = nullptr;
  Served served_;
  std::optional<Served> next_;
  uint64_t scrapes_closed_ = 0;  // Of Exporter::closed_for_others, as last told.
  std::optional<base::TimePoint> scrapes_told_;
  mutable Mutex mutex_;
  std::string address_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier
