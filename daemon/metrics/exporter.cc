#include "daemon/metrics/exporter.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "daemon/metrics/families.h"
#include "daemon/metrics/job_rows.h"
#include "daemon/metrics/process_figures.h"
#include "daemon/session/degraded.h"
#include "proto/mutex.h"

namespace tier::metrics {
namespace {

constexpr char kPlain[] = "text/plain; charset=utf-8";
constexpr char kIndex[] =
    "<!doctype html><title>tierd</title><ul><li><a href=\"/metrics\">metrics</a> for Prometheus"
    "<li><a href=\"/healthz\">healthz</a>: 200 while the engine answers; ok, or what is degraded</ul>\n";

// One page after the other is made: which jobs have series of their own is kept from scrape to scrape.
class Scraper {
 public:
  explicit Scraper(session::ControlApi& api) : api_(api) {}
  Result<std::string> Page() {
    auto node = api_.Observe();
    if (!node) return std::unexpected(node.error());
    const std::vector<JobRow> rows = RowsOf(std::move(node->jobs), node->daemon.engine.totals);
    return prometheus::TextSerializer().Serialize(BuildFamilies(node->daemon, rows, ReadProcessFigures()));
  }

 private:
  std::vector<JobRow> RowsOf(std::vector<session::JobDescription> jobs, const tiering::JobCounters& totals) {
    const MutexLock lock(mutex_);
    return rows_.Of(std::move(jobs), totals);
  }

  session::ControlApi& api_;
  Mutex mutex_;
  JobRows rows_ TIER_GUARDED_BY(mutex_);  // Of all who scrape together.
};

// To Prometheus the daemon is down then: a page without figures would be one of a daemon that is well.
HttpPage Unavailable(const Error& why) { return {.status = 503, .type = kPlain, .body = why.message + "\n"}; }

// Also degraded it answers 200: who restarts a daemon for its answer would end the jobs that it serves. Names only, for
// everybody may read them; `tierctl status` has the sentences.
std::string HealthOf(const session::DaemonDescription& daemon) {
  std::vector<std::string_view> causes;
  for (const session::Degradation& each : session::DegradedBy(daemon)) {
    const std::string_view name = session::DegradedCauseName(each.cause);
    if (std::ranges::find(causes, name) == causes.end()) causes.push_back(name);
  }
  return causes.empty() ? "ok\n" : fmt::format("degraded: {}\n", fmt::join(causes, ", "));
}

HttpPage PageOf(session::ControlApi& api, Scraper& scraper, std::string_view path) {
  if (path == "/metrics") {
    auto page = scraper.Page();
    if (!page) return Unavailable(page.error());
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = *std::move(page)};
  }
  if (path == "/") return {.type = "text/html; charset=utf-8", .body = kIndex};
  if (path != "/healthz") return {.status = 404, .type = kPlain, .body = "there are /metrics and /healthz\n"};
  const auto daemon = api.Describe();
  if (!daemon) return Unavailable(daemon.error());
  return {.type = kPlain, .body = HealthOf(*daemon)};
}

std::unexpected<Error> CannotServe(const std::string& listen, const Error& why) {
  return Fail(why.code, "cannot serve metrics on " + listen + " (" + why.message +
                            "); set metrics.listen to a free address, or to \"\" for none");
}

}  // namespace

Result<std::unique_ptr<Exporter>> Exporter::Listen(const std::string& listen) {
  auto endpoint = HttpEndpoint::Listen(listen);
  if (!endpoint) return CannotServe(listen, endpoint.error());
  return std::unique_ptr<Exporter>(new Exporter(std::move(*endpoint)));
}

Status Exporter::Move(const std::string& listen) {
  const Status moved = endpoint_->Move(listen);
  return moved ? moved : CannotServe(listen, moved.error());
}

Status Exporter::Start(session::ControlApi& api) {
  return endpoint_->Start(
      [&api, scraper = std::make_shared<Scraper>(api)](std::string_view path) { return PageOf(api, *scraper, path); });
}

}  // namespace tier::metrics
