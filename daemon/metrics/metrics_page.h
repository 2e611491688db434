// MetricsPage: docs/metrics.md, made of the families themselves, so that it cannot differ from what is served.
#pragma once

#include <string>

namespace tier::metrics {

// Markdown: every family with its type, its labels and its meaning.
std::string MetricsPage();

}  // namespace tier::metrics
