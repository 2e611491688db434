// WithFormats: turns a plan's element types and options into template arguments. Everything is in an unnamed namespace:
// this header is compiled with several instruction sets.
#pragma once

#include "libclient/copy/element.h"
#include "libclient/optimizer/update_plan.h"

namespace tier::optimizer {
namespace {

// Calls work<algorithm, Value, State, stochastic>().
template <class Work>
TIER_COPY_INLINE void WithFormats(const UpdatePlan& plan, Work&& work) {
  const auto with_algorithm = [&]<class Value, class State, bool kStochastic>() TIER_OPTIMIZER_ATTRIBUTE {
    if (plan.algorithm == Algorithm::kAdam) {
      work.template operator()<Algorithm::kAdam, Value, State, kStochastic>();
    } else {
      work.template operator()<Algorithm::kLion, Value, State, kStochastic>();
    }
  };
  const auto with_value = [&]<class Value, bool kStochastic>() TIER_OPTIMIZER_ATTRIBUTE {
    if (plan.state_type == copy::ElementType::kFp32) {
      with_algorithm.template operator()<Value, copy::Fp32, kStochastic>();
    } else {
      with_algorithm.template operator()<Value, copy::Bf16, kStochastic>();
    }
  };
  if (plan.value_type == copy::ElementType::kFp32) {
    with_value.template operator()<copy::Fp32, false>();
  } else if (plan.stochastic) {
    with_value.template operator()<copy::Bf16, true>();
  } else {
    with_value.template operator()<copy::Bf16, false>();
  }
}

}  // namespace
}  // namespace tier::optimizer
