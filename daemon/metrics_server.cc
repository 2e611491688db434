#include "daemon/metrics_server.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/check.h"

namespace tier {
namespace {

constexpr auto kScrapeReportPeriod = std::chrono::minutes(1);

// Any user may take a port: a daemon that is to serve jobs goes without.
Status Refused(Error error, bool required) {
  if (required) return std::unexpected(std::move(error));
  spdlog::warn("{}; metrics are not served there until a reload finds the address free", error.message);
  return {};
}

}  // namespace

// The address is taken before it is told; scrapes are answered once there is something to ask.
Status MetricsServer::Open(const std::string& listen, bool required) {
  TIER_CHECK(!exporter_, "metrics are served at {} already", listen_);
  if (listen.empty()) return {};
  auto exporter = metrics::Exporter::Listen(listen);
  if (!exporter) {
    std::error_code ignored;
    std::filesystem::remove(port_file_, ignored);  // Of a daemon that crashed.
    return Refused(std::move(exporter.error()), required);
  }
  listen_ = listen;
  exporter_ = std::move(*exporter);
  NoteAddress();
  return {};
}

Status MetricsServer::Start(session::ControlApi& api) {
  api_ = &api;
  return exporter_ ? exporter_->Start(api) : Status{};
}

Status MetricsServer::Move(const std::string& listen, bool required) {
  TIER_CHECK(api_ != nullptr, "metrics move to '{}' before they are served", listen);
  if (listen == listen_) return {};
  Status moved = exporter_ ? exporter_->Move(listen) : OpenFirst(listen);
  if (!moved) return Refused(std::move(moved.error()), required || !listen_.empty());
  listen_ = listen;
  NoteAddress();
  return {};
}

Status MetricsServer::OpenFirst(const std::string& listen) {
  if (metrics::NamesAHost(listen)) {
    return Fail(Code::kInvalid, "metrics.listen is " + listen + ", and only a start asks for the address of a name");
  }
  auto exporter = metrics::Exporter::Listen(listen);
  if (!exporter) return std::unexpected(std::move(exporter.error()));
  if (Status started = (*exporter)->Start(*api_); !started) return started;
  exporter_ = std::move(*exporter);
  return {};
}

void MetricsServer::NoteAddress() {
  std::error_code ignored;
  if (exporter_->port() != 0) {
    std::ofstream(port_file_) << exporter_->port() << '\n';
  } else {
    std::filesystem::remove(port_file_, ignored);
  }
  const MutexLock lock(mutex_);
  address_ = exporter_->address();
}

std::string MetricsServer::address() const {
  const MutexLock lock(mutex_);
  return address_;
}

// A scrape asks for the address too: it stays until the last one has ended.
void MetricsServer::Close() {
  if (!exporter_) return;
  std::error_code ignored;
  std::filesystem::remove(port_file_, ignored);
  exporter_.reset();
}

void MetricsServer::ReportScrapes(base::TimePoint now) {
  const uint64_t closed = exporter_ ? exporter_->closed_for_others() : 0;
  if (closed == scrapes_closed_ || (scrapes_told_ && now - *scrapes_told_ < kScrapeReportPeriod)) return;
  spdlog::warn("metrics: {} connections that were slow to ask or to read were closed, as too many others came",
               closed - scrapes_closed_);
  scrapes_closed_ = closed;
  scrapes_told_ = now;
}

}  // namespace tier
