// The scalar twin: plain loops over element.h. What every vector kernel is tested against, and the last resort.
#include <cstring>

#include "libclient/copy/element.h"
#include "libclient/copy/kernels.h"

namespace tier::copy {

CopyOutcome CopyScalar(void* target, const void* source, size_t elements, const CopyPlan& plan, bool /*streaming*/) {
  if (!plan.check_finite && !plan.sum_squares && plan.source_type == plan.target_type) {
    if (elements > 0) std::memcpy(target, source, elements * ElementSize(plan.source_type));
    return {};
  }
  auto* const to = static_cast<std::byte*>(target);
  const auto* const from = static_cast<const std::byte*>(source);
  return WithFormats(plan, [&]<class Source, class Target, bool kCheck, bool kSum>() {
    Tally tally;
    CopyElements<Source, Target, kCheck, kSum>(to, from, {0, elements}, &tally);
    return tally.Outcome();
  });
}

}  // namespace tier::copy
