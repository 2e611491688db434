// The public face: checks the plan, picks this processor's kernel set once, and cached or streaming stores per call.
#include "libclient/copy/fused_copy.h"

#include <array>
#include <cstdlib>

#include "libclient/copy/kernels.h"

namespace tier::copy {
namespace {

struct Variants {
  std::array<CopyVariant, 5> list;
  size_t count = 0;
  void Add(std::string_view name, bool runnable, Kernel kernel) { list[count++] = {name, runnable, kernel}; }
};

Variants FindVariants() {
  Variants variants;
  variants.Add("scalar", true, CopyScalar);
#if defined(TIER_COPY_HAVE_X86)
  __builtin_cpu_init();  // Also asks whether the kernel saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  variants.Add("sse4", __builtin_cpu_supports("sse4.2"), CopySse4);
  variants.Add("avx2", avx2, CopyAvx2);
  variants.Add("avx3",
               avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512cd"),
               CopyAvx3);
#elif defined(TIER_COPY_HAVE_NATIVE)
  variants.Add("native", true, CopyNative);
#endif
  return variants;
}

const Variants& AllVariants() {
  static const Variants variants = FindVariants();
  return variants;
}

}  // namespace

bool IsSupported(const CopyPlan& plan) {
  if (plan.source_type > ElementType::kFp64 || plan.target_type > ElementType::kFp64) return false;
  if (plan.source_type == plan.target_type) {
    return plan.source_type != ElementType::kBytes || (!plan.check_finite && !plan.sum_squares);
  }
  const auto is_half = [](ElementType type) { return type == ElementType::kBf16 || type == ElementType::kFp16; };
  return (plan.source_type == ElementType::kFp32 && is_half(plan.target_type)) ||
         (is_half(plan.source_type) && plan.target_type == ElementType::kFp32);
}

std::span<const CopyVariant> CopyVariants() { return {AllVariants().list.data(), AllVariants().count}; }

const CopyVariant& BestVariant(std::string_view wanted) {
  const CopyVariant* best = CopyVariants().data();  // The scalar one runs everywhere.
  for (const CopyVariant& variant : CopyVariants()) {
    if (!variant.runnable) continue;
    best = &variant;
    if (variant.name == wanted) break;
  }
  return *best;
}

const CopyVariant& ChosenVariant() {
  static const CopyVariant& chosen = [] -> const CopyVariant& {
    const char* const wanted = std::getenv("TIER_COPY_VARIANT");
    return BestVariant(wanted != nullptr ? wanted : "");
  }();
  return chosen;
}

size_t StreamingThresholdBytes() { return size_t{1} << 20; }

std::optional<CopyOutcome> FusedCopy(void* target, const void* source, size_t elements, const CopyPlan& plan) {
  if (!IsSupported(plan)) return std::nullopt;
  const bool streaming = elements >= StreamingThresholdBytes() / ElementSize(plan.target_type);
  return ChosenVariant().copy(target, source, elements, plan, streaming);
}

}  // namespace tier::copy
