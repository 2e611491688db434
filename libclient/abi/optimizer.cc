// tier_optimizer_update.
#include <vector>

#include "libclient/abi/failure.h"
#include "libclient/abi/struct_size.h"
#include "libclient/optimizer/optimizer_update.h"

namespace tier::abi {
namespace {

static_assert(TIER_ADAM == static_cast<int>(optimizer::Algorithm::kAdam) &&
              TIER_LION == static_cast<int>(optimizer::Algorithm::kLion));

copy::ElementType ElementTypeOf(int type) {  // CheckPlan refuses what is none.
  return type == TIER_FP32 || type == TIER_BF16 ? static_cast<copy::ElementType>(type) : copy::ElementType::kBytes;
}

optimizer::UpdatePlan PlanFrom(const tier_optimizer_options& options) {
  const bool known = options.algorithm == TIER_ADAM || options.algorithm == TIER_LION;
  return {.algorithm = static_cast<optimizer::Algorithm>(known ? options.algorithm : 0),
          .value_type = ElementTypeOf(options.value_type),
          .state_type = ElementTypeOf(options.state_type),
          .stochastic = options.stochastic != 0,
          .decoupled_decay = options.decoupled_decay != 0,
          .maximize = options.maximize != 0,
          .amsgrad = options.amsgrad != 0,
          .seed = options.seed,
          .learning_rate = options.learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay};
}

Status UpdateAll(const tier_optimizer_options* given, const tier_optimizer_slice* slices, size_t count) {
  if (given == nullptr || (slices == nullptr && count > 0)) {
    return Fail(Code::kInvalid, "an optimizer's update needs options and slices");
  }
  tier_optimizer_options options = TIER_OPTIMIZER_OPTIONS_INIT;
  if (auto ok = ReadOptions(given, &options); !ok) return ok;
  const optimizer::UpdatePlan plan = PlanFrom(options);
  if (auto ok = optimizer::CheckPlan(plan); !ok) return ok;
  std::vector<optimizer::UpdateSlice> checked;
  checked.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const tier_optimizer_slice& slice = slices[i];
    checked.push_back({.values = static_cast<std::byte*>(slice.values),
                       .gradients = static_cast<const std::byte*>(slice.gradients),
                       .first_moment = static_cast<std::byte*>(slice.exp_avg),
                       .second_moment = static_cast<std::byte*>(slice.exp_avg_sq),
                       .second_moment_max = static_cast<std::byte*>(plan.amsgrad ? slice.max_exp_avg_sq : nullptr),
                       .count = slice.count,
                       .first = slice.first,
                       .parameter = slice.parameter,
                       .step = slice.step});
    if (auto ok = optimizer::CheckSlice(plan, checked.back()); !ok) return ok;
  }
  optimizer::Update(plan, checked, options.threads);
  return {};
}

}  // namespace
}  // namespace tier::abi

extern "C" int tier_optimizer_update(const tier_optimizer_options* options, const tier_optimizer_slice* slices,
                                     size_t count) {
  return tier::abi::Guarded([&] { return tier::abi::UpdateAll(options, slices, count); });
}
