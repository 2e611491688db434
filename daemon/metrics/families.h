// Figures to metric families. Pure functions; the one place that spells metric names: docs/metrics.md is made of it.
#pragma once

#include <vector>

#include <prometheus/metric_family.h>

#include "daemon/metrics/job_rows.h"
#include "daemon/metrics/process_figures.h"
#include "daemon/session/control_api.h"

namespace tier::metrics {

// `jobs` as JobRows makes them.
std::vector<prometheus::MetricFamily> BuildFamilies(const session::DaemonDescription& daemon,
                                                    const std::vector<JobRow>& jobs, const ProcessFigures& process);

}  // namespace tier::metrics
