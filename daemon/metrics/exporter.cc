#include "daemon/metrics/exporter.h"

#include <exception>
#include <utility>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include "daemon/metrics/families.h"
#include "daemon/metrics/job_rows.h"
#include "daemon/metrics/process_figures.h"
#include "proto/mutex.h"

namespace tier::metrics {
namespace {

constexpr size_t kHttpThreads = 2;

class DaemonCollectable final : public prometheus::Collectable {
 public:
  explicit DaemonCollectable(session::ControlApi& api) : api_(api) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    const session::Caller operator_view{.uid = ~0u, .admin = true, .token = {}};
    const auto daemon = api_.Describe();
    if (!daemon) return {};  // Stopping: an empty page, as for a daemon with nothing to tell.
    std::vector<session::JobDescription> jobs = api_.ListJobs(operator_view);
    return BuildFamilies(*daemon, RowsOf(std::move(jobs), daemon->engine.totals), ReadProcessFigures());
  }

 private:
  std::vector<JobRow> RowsOf(std::vector<session::JobDescription> jobs, const tiering::JobCounters& totals) const {
    const MutexLock lock(mutex_);
    return rows_.Of(std::move(jobs), totals);
  }

  session::ControlApi& api_;
  mutable Mutex mutex_;
  mutable JobRows rows_ TIER_GUARDED_BY(mutex_);  // Of all who scrape together.
};

}  // namespace

struct Exporter::State {
  std::unique_ptr<prometheus::Exposer> exposer;
  std::shared_ptr<DaemonCollectable> collectable;
};

Exporter::Exporter() : state_(std::make_unique<State>()) {}
Exporter::~Exporter() = default;

Result<std::unique_ptr<Exporter>> Exporter::Start(const std::string& listen, session::ControlApi& api) {
  std::unique_ptr<Exporter> exporter(new Exporter());
  try {
    exporter->state_->exposer = std::make_unique<prometheus::Exposer>(listen, kHttpThreads);
  } catch (const std::exception& e) {
    return Fail(Code::kInvalid, "cannot serve metrics on " + listen + " (" + e.what() +
                                    "); set metrics.listen to a free address, or to \"\" for none");
  }
  exporter->state_->collectable = std::make_shared<DaemonCollectable>(api);
  exporter->state_->exposer->RegisterCollectable(exporter->state_->collectable);
  return exporter;
}

uint16_t Exporter::port() const {
  const std::vector<int> ports = state_->exposer->GetListeningPorts();
  return ports.empty() ? uint16_t{0} : static_cast<uint16_t>(ports.front());
}

}  // namespace tier::metrics
