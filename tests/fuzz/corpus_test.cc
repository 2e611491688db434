// Runs a fuzz entry point over its corpus, and over mutations of it drawn from a fixed seed: what a fuzzer once found,
// and the neighbourhood of it, is tested in every build.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include <gtest/gtest.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

std::vector<Input> Corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TIER_FUZZ_CORPUS)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

void Mutate(std::mt19937& random, Input* input) {
  for (uint32_t i = 0, n = 1 + random() % 4; i < n && !input->empty(); ++i) {
    const size_t at = random() % input->size();
    switch (random() % 4) {
      case 0: (*input)[at] = static_cast<uint8_t>(random()); break;
      case 1: (*input)[at] ^= static_cast<uint8_t>(1u << (random() % 8)); break;
      case 2: input->resize(at); break;
      default: input->insert(input->end(), input->begin() + static_cast<ptrdiff_t>(at), input->end()); break;
    }
  }
}

TEST(FuzzCorpus, EveryInputIsSurvived) {
  const auto corpus = Corpus();
  ASSERT_FALSE(corpus.empty());
  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  LLVMFuzzerTestOneInput(nullptr, 0);
}

TEST(FuzzCorpus, MutationsAreSurvived) {
  std::mt19937 random(20261121);
  for (const Input& seed : Corpus()) {
    for (int round = 0; round < 200; ++round) {
      Input input = seed;
      Mutate(random, &input);
      LLVMFuzzerTestOneInput(input.data(), std::min<size_t>(input.size(), 1 << 16));
    }
  }
}

}  // namespace
