// UpdatePlan, UpdateFactors and UpdateSlice: what an optimizer's update computes, and over what. Plain data.
//
// Included by every kernel's translation unit, so it must stay free of inline functions that are not constexpr.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libclient/copy/copy_plan.h"

namespace tier::optimizer {

// The numbers are those of the C interface (TIER_ADAM …).
enum class Algorithm : uint8_t {
  kAdam = 1,  // Kingma and Ba 2015; Loshchilov and Hutter 2019 where weight decay is decoupled.
  kLion = 2,  // Chen et al. 2023, arXiv 2302.06675.
};

struct UpdatePlan {
  Algorithm algorithm = Algorithm::kAdam;
  copy::ElementType value_type = copy::ElementType::kFp32;  // Of values and gradients: fp32 or bf16.
  copy::ElementType state_type = copy::ElementType::kFp32;  // Of the moments: fp32 or bf16.
  bool stochastic = false;                                  // Values are bf16, and rounded at random.
  bool decoupled_decay = true;                              // Lion: always.
  bool maximize = false;
  bool amsgrad = false;  // Adam only.
  uint32_t seed = 0;
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
};

// The numbers of one step: computed in double, then rounded once.
struct UpdateFactors {
  float keep = 1;   // 1 − learning rate · weight decay, where that is decoupled.
  float decay = 0;  // The weight decay, where it is not.
  float beta1 = 0;
  float beta1_rest = 0;  // 1 − β1
  float beta2 = 0;
  float beta2_rest = 0;   // 1 − β2
  float rate = 0;         // Adam: the learning rate ÷ (1 − β1^step).
  float root_factor = 0;  // 1 ÷ √(1 − β2^step)
  float epsilon = 0;
};

// Elements [first, first + count) of one parameter.
struct UpdateSlice {
  std::byte* values = nullptr;
  const std::byte* gradients = nullptr;
  std::byte* first_moment = nullptr;
  std::byte* second_moment = nullptr;      // Adam only.
  std::byte* second_moment_max = nullptr;  // Adam with amsgrad; else null.
  size_t count = 0;
  uint64_t first = 0;      // A multiple of kChunk.
  uint32_t parameter = 0;  // With the seed, the key of the random numbers.
  uint32_t step = 1;       // Of this update: 1 for the first.
};

// Random numbers come in chunks of 128 elements: 16 counters of 128 bits, each 8 numbers of 16 bits. Element 16·h + i
// of chunk c has bits 16·h … 16·h + 15 of what counter 16·c + i gives.
inline constexpr size_t kChunk = 128;
inline constexpr size_t kChunkCounters = 16;

// Philox 4x32-10 (Salmon et al. 2011). Its counter is (element counter, step, 0), its key (seed, parameter).
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9, kPhiloxKeyStep1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

}  // namespace tier::optimizer
