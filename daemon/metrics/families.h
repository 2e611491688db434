// Figures to Prometheus metric families. Pure functions; the one place that spells metric names (docs/metrics.md).
#pragma once

#include <vector>

#include <prometheus/metric_family.h>

#include "daemon/session/control_api.h"

namespace tier::metrics {

inline constexpr size_t kJobLabelsMax = 200;  // Jobs with a label of their own; the rest is summed as "other".

std::vector<prometheus::MetricFamily> BuildFamilies(const session::DaemonDescription& daemon,
                                                    std::vector<session::JobDescription> jobs);

}  // namespace tier::metrics
