// The public face: checks, the numbers of a step, the kernel set of this processor, and threads.
#include "libclient/optimizer/optimizer_update.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "libclient/copy/fused_copy.h"
#include "proto/start_thread.h"

namespace tier::optimizer {
namespace {

using copy::ElementType;

struct Variants {
  std::array<UpdateVariant, 5> list;
  size_t count = 0;
  void Add(std::string_view name, Kernel kernel) {
    const auto same = [&](const copy::CopyVariant& variant) { return variant.name == name; };
    const auto known = std::ranges::find_if(copy::CopyVariants(), same);  // It has asked the processor.
    list[count++] = {name, known != copy::CopyVariants().end() && known->runnable, kernel};
  }
};

Variants FindVariants() {
  Variants variants;
  variants.Add("scalar", UpdateScalar);
#if defined(TIER_OPTIMIZER_HAVE_X86)
  variants.Add("sse4", UpdateSse4);
  variants.Add("avx2", UpdateAvx2);
  variants.Add("avx3", UpdateAvx3);
#elif defined(TIER_OPTIMIZER_HAVE_NATIVE)
  variants.Add("native", UpdateNative);
#endif
  return variants;
}

Kernel ChosenKernel() {
  static const Kernel chosen = [] {
    const auto same = [](const UpdateVariant& variant) { return variant.name == copy::ChosenVariant().name; };
    const auto found = std::ranges::find_if(UpdateVariants(), same);
    return found == UpdateVariants().end() ? &UpdateScalar : found->update;
  }();
  return chosen;
}

// Rounding to nearest, with subnormal numbers, whatever the program has set.
class DefaultEnvironment {
 public:
  DefaultEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultEnvironment() { std::fesetenv(&before_); }
  DefaultEnvironment(const DefaultEnvironment&) = delete;
  DefaultEnvironment& operator=(const DefaultEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

// Elements [begin, begin + kTaskElements) of a slice, or what there is of them.
struct Task {
  const UpdateSlice* slice;
  size_t begin;
};

void RunTask(const UpdatePlan& plan, const Task& task) {
  const size_t value_bytes = ElementSize(plan.value_type), state_bytes = ElementSize(plan.state_type);
  UpdateSlice part = *task.slice;
  part.count = std::min(kTaskElements, task.slice->count - task.begin);
  part.first += task.begin;
  part.values += task.begin * value_bytes;
  part.gradients += task.begin * value_bytes;
  for (std::byte** moment : {&part.first_moment, &part.second_moment, &part.second_moment_max}) {
    if (*moment != nullptr) *moment += task.begin * state_bytes;
  }
  ChosenKernel()(plan, FactorsOf(plan, part.step), part);
}

bool IsFp32OrBf16(ElementType type) { return type == ElementType::kFp32 || type == ElementType::kBf16; }

bool IsFraction(double value) { return value >= 0 && value < 1; }

}  // namespace

Status CheckPlan(const UpdatePlan& plan) {
  if (plan.algorithm != Algorithm::kAdam && plan.algorithm != Algorithm::kLion) {
    return Fail(Code::kInvalid, "the algorithm of an optimizer's update is TIER_ADAM or TIER_LION");
  }
  if (!IsFp32OrBf16(plan.value_type) || !IsFp32OrBf16(plan.state_type)) {
    return Fail(Code::kInvalid, "an optimizer's update takes values and moments of TIER_FP32 or TIER_BF16");
  }
  if (plan.stochastic && plan.value_type != ElementType::kBf16) {
    return Fail(Code::kInvalid, "stochastic rounding is for values of TIER_BF16");
  }
  if (plan.amsgrad && plan.algorithm != Algorithm::kAdam) return Fail(Code::kInvalid, "amsgrad is an option of Adam");
  if (plan.algorithm == Algorithm::kLion && !plan.decoupled_decay) {
    return Fail(Code::kInvalid, "the weight decay of Lion is decoupled");
  }
  if (!IsFraction(plan.beta1) || !IsFraction(plan.beta2)) {
    return Fail(Code::kInvalid, "the betas of an optimizer's update are at least 0 and below 1");
  }
  return {};
}

Status CheckSlice(const UpdatePlan& plan, const UpdateSlice& slice) {
  if (slice.count == 0) return {};
  const bool adam = plan.algorithm == Algorithm::kAdam;
  if (slice.values == nullptr || slice.gradients == nullptr || slice.first_moment == nullptr ||
      (adam && slice.second_moment == nullptr) || (plan.amsgrad && slice.second_moment_max == nullptr)) {
    return Fail(Code::kInvalid, "a slice of an optimizer's update lacks one of its arrays");
  }
  if (slice.first % kChunk != 0) {
    return Fail(Code::kInvalid, "a slice begins at element " + std::to_string(slice.first) + ", no multiple of " +
                                    std::to_string(kChunk));
  }
  if (slice.step == 0) return Fail(Code::kInvalid, "the first step of an optimizer is number 1");
  return {};
}

UpdateFactors FactorsOf(const UpdatePlan& plan, uint32_t step) {
  UpdateFactors factors;
  const bool adam = plan.algorithm == Algorithm::kAdam;
  if (plan.decoupled_decay) {
    factors.keep = static_cast<float>(1 - plan.learning_rate * plan.weight_decay);
  } else {
    factors.decay = static_cast<float>(plan.weight_decay);
  }
  factors.beta1 = static_cast<float>(plan.beta1);
  factors.beta1_rest = static_cast<float>(1 - plan.beta1);
  factors.beta2 = static_cast<float>(plan.beta2);
  factors.beta2_rest = static_cast<float>(1 - plan.beta2);
  factors.rate = static_cast<float>(adam ? plan.learning_rate / (1 - std::pow(plan.beta1, step)) : plan.learning_rate);
  factors.root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(plan.beta2, step)));
  factors.epsilon = static_cast<float>(plan.epsilon);
  return factors;
}

void Update(const UpdatePlan& plan, std::span<const UpdateSlice> slices, int threads) {
  std::vector<Task> tasks;
  for (const UpdateSlice& slice : slices) {
    for (size_t begin = 0; begin < slice.count; begin += kTaskElements) tasks.push_back({&slice, begin});
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    const DefaultEnvironment environment;
    for (size_t i = next.fetch_add(1); i < tasks.size(); i = next.fetch_add(1)) RunTask(plan, tasks[i]);
  };
  const size_t wanted = std::min({static_cast<size_t>(std::clamp(threads, 1, kUpdateThreadsMax)), tasks.size()});
  std::vector<std::thread> others;
  others.reserve(wanted);
  while (others.size() + 1 < wanted) {
    auto started = proto::StartThread("tier-optimizer", proto::BlockedSignals::kAll, work);
    if (!started) break;  // Those that run do the work.
    others.push_back(std::move(*started));
  }
  work();
  for (std::thread& other : others) other.join();
}

std::span<const UpdateVariant> UpdateVariants() {
  static const Variants variants = FindVariants();
  return {variants.list.data(), variants.count};
}

}  // namespace tier::optimizer
