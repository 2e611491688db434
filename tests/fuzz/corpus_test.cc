// Runs a fuzz entry point over its corpus, and over mutations of it drawn from a fixed seed: what a fuzzer once found,
// and the neighbourhood of it, is tested in every build.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tier::fuzz {
namespace {

TEST(FuzzCorpus, EveryInputIsSurvived) {
  const auto corpus = ReadCorpus(TIER_FUZZ_CORPUS);
  ASSERT_GE(corpus.size(), 4u);
  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  LLVMFuzzerTestOneInput(nullptr, 0);
}

TEST(FuzzCorpus, MutationsAreSurvived) {
  const auto corpus = ReadCorpus(TIER_FUZZ_CORPUS);
  std::mt19937_64 random(20261121);
  for (size_t round = 0; round < 200 * corpus.size(); ++round) {
    const Input input = Mutated(random, corpus);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace
}  // namespace tier::fuzz
