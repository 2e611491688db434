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

}  // namespace

// A scrape asks for the address too: the mutex is there until the last one has ended.
void MetricsServer::Close() {
  next_.reset();
  std::error_code ignored;
  if (served_.exporter) std::filesystem::remove(port_file_, ignored);
  served_.exporter.reset();
}

Result<MetricsServer::Served> MetricsServer::Listen(const std::string& listen) {
  Served served{.listen = listen, .exporter = nullptr};
  if (listen.empty()) return served;
  auto exporter = metrics::Exporter::Listen(listen);
  if (!exporter) return std::unexpected(std::move(exporter.error()));
  served.exporter = std::move(*exporter);
  return served;
}

// The address is taken before it is told; scrapes are answered once there is something to ask.
Status MetricsServer::Open(const std::string& listen) {
  auto served = Listen(listen);
  if (!served) return std::unexpected(std::move(served.error()));
  served_ = std::move(*served);
  Announce();
  return {};
}

Status MetricsServer::Start(session::ControlApi& api) {
  api_ = &api;
  return served_.exporter ? served_.exporter->Start(api) : Status{};
}

Status MetricsServer::Prepare(const std::string& listen) {
  TIER_CHECK(api_ != nullptr, "{} is prepared before the start", listen);
  next_.reset();
  if (listen == served_.listen) return {};
  auto next = Listen(listen);
  if (!next) return std::unexpected(std::move(next.error()));
  if (next->exporter) {
    if (auto started = next->exporter->Start(*api_); !started) return started;
  }
  next_ = std::move(*next);
  return {};
}

void MetricsServer::Commit() {
  if (!next_) return;
  served_ = *std::exchange(next_, std::nullopt);
  scrapes_closed_ = 0;  // The new one counts its own.
  Announce();
}

void MetricsServer::Announce() {
  std::error_code ignored;
  if (served_.exporter) {
    std::ofstream(port_file_) << served_.exporter->port() << '\n';
  } else {
    std::filesystem::remove(port_file_, ignored);
  }
  const MutexLock lock(mutex_);
  address_ = served_.exporter ? served_.exporter->address() : std::string();
}

std::string MetricsServer::address() const {
  const MutexLock lock(mutex_);
  return address_;
}

void MetricsServer::ReportScrapes(base::TimePoint now) {
  const uint64_t closed = served_.exporter ? served_.exporter->closed_for_others() : 0;
  if (closed == scrapes_closed_ || (scrapes_told_ && now - *scrapes_told_ < kScrapeReportPeriod)) return;
  spdlog::warn("metrics: {} connections that were slow to ask or to read were closed, as too many others came",
               closed - scrapes_closed_);
  scrapes_closed_ = closed;
  scrapes_told_ = now;
}

}  // namespace tier
