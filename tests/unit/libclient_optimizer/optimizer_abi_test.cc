// tier_optimizer_update: what it refuses, and that nothing is written then.
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "libclient/include/tier/tier.h"

namespace {

struct Case {
  const char* sentence;
  std::function<void(tier_optimizer_options*, tier_optimizer_slice*)> change;
};

TEST(OptimizerAbi, RefusesWhatCannotBeAndWritesNothing) {
  const std::vector<Case> cases = {
      {"TIER_ADAM or TIER_LION", [](auto* options, auto*) { options->algorithm = 3; }},
      {"TIER_FP32 or TIER_BF16", [](auto* options, auto*) { options->value_type = TIER_FP16; }},
      {"TIER_FP32 or TIER_BF16", [](auto* options, auto*) { options->state_type = 99; }},
      {"stochastic rounding", [](auto* options, auto*) { options->stochastic = 1; }},
      {"betas", [](auto* options, auto*) { options->beta1 = 1; }},
      {"betas", [](auto* options, auto*) { options->beta2 = -0.5; }},
      {"amsgrad is an option", [](auto* options, auto*) { options->algorithm = TIER_LION, options->amsgrad = 1; }},
      {"is decoupled", [](auto* options, auto*) { options->algorithm = TIER_LION, options->decoupled_decay = 0; }},
      {"struct_size", [](auto* options, auto*) { options->struct_size = 0; }},
      {"lacks one of its arrays", [](auto*, auto* slice) { slice->exp_avg_sq = nullptr; }},
      {"lacks one of its arrays", [](auto* options, auto*) { options->amsgrad = 1; }},
      {"no multiple of 128", [](auto*, auto* slice) { slice->first = 64; }},
      {"number 1", [](auto*, auto* slice) { slice->step = 0; }},
  };
  for (const Case& each : cases) {
    float values[2] = {1, 1}, moments[2] = {0, 0}, squares[2] = {0, 0};
    const float gradients[2] = {1, 1};
    tier_optimizer_options options = TIER_OPTIMIZER_OPTIONS_INIT;
    tier_optimizer_slice slices[2] = {};
    for (size_t i = 0; i < 2; ++i) {
      slices[i] = {&values[i], &gradients[i], &moments[i], &squares[i], nullptr, 1, 0, 0, 1};
    }
    each.change(&options, &slices[1]);
    EXPECT_EQ(tier_optimizer_update(&options, slices, 2), TIER_INVALID) << each.sentence;
    EXPECT_NE(std::strstr(tier_last_error(), each.sentence), nullptr) << tier_last_error();
    EXPECT_EQ(values[0], 1) << each.sentence;
  }
  EXPECT_EQ(tier_optimizer_update(nullptr, nullptr, 0), TIER_INVALID);
}

TEST(OptimizerAbi, UpdatesWithItsDefaults) {
  float value = 1, moment = 0, square = 0;
  const float gradient = 2;
  const tier_optimizer_options options = TIER_OPTIMIZER_OPTIONS_INIT;
  const tier_optimizer_slice slice = {&value, &gradient, &moment, &square, nullptr, 1, 0, 0, 1};
  EXPECT_EQ(tier_optimizer_update(&options, nullptr, 0), TIER_OK);  // The options alone are checked.
  EXPECT_EQ(value, 1);
  ASSERT_EQ(tier_optimizer_update(&options, &slice, 1), TIER_OK);
  EXPECT_NEAR(value, 1 - 1e-3, 1e-7);
}

}  // namespace
