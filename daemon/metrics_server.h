// MetricsServer: serves the metrics of the daemon where the configuration says so, and elsewhere when that changes. The
// file metrics.port in the socket directory has its port.
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
  // One that is not `required` may be missing: that is logged, and the next Move tries it again.
  Status Open(const std::string& listen, bool required = true);
  // `api` outlives this. NO_MEMORY: the system gives no thread.
  Status Start(session::ControlApi& api);
  // Another address in its place, or none; the counts go on. It waits for no scrape, and asks no server for a name.
  // INVALID, NO_MEMORY: all is as it was. After Start. `required`: as for Open, while none is served.
  Status Move(const std::string& listen, bool required = true);
  // Waits for scrapes under way; then none is served, and the file is gone.
  void Close();
  std::string address() const TIER_EXCLUDES(mutex_);  // Empty: none. Any thread.
  // Logs that scrapes had to be closed, once a minute at most.
  void ReportScrapes(base::TimePoint now);

 private:
  Status OpenFirst(const std::string& listen);
  void NoteAddress() TIER_EXCLUDES(mutex_);

  const std::string port_file_;
  std::string listen_;                           // As it was asked for. Empty: nowhere, or it could not be had.
  session::ControlApi* api_ = nullptr;           // Since Start.
  std::unique_ptr<metrics::Exporter> exporter_;  // Null: none was served yet.
  uint64_t scrapes_closed_ = 0;                  // Of Exporter::closed_for_others, as last told.
  std::optional<base::TimePoint> scrapes_told_;
  mutable Mutex mutex_;
  std::string address_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier
