// Runs the fuzz entry over the corpus in the tree and over mutations of it, so that every build checks what a fuzzer
// once found. The corpus' folder comes from CMake.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tier::storage {
namespace {

std::vector<std::vector<uint8_t>> Corpus() {
  std::vector<std::vector<uint8_t>> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(TIER_FUZZ_CORPUS)) {
    std::ifstream in(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

TEST(SuperblockFuzz, AcceptsItsCorpus) {
  const auto corpus = Corpus();
  EXPECT_GE(corpus.size(), 4u);
  for (const auto& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
}

TEST(SuperblockFuzz, AcceptsMutationsOfItsCorpus) {
  std::mt19937_64 random(20260101);
  for (std::vector<uint8_t> input : Corpus()) {
    for (int i = 0; i < 100; ++i) {
      for (int change = 0; change < 3 && !input.empty(); ++change) {
        input[random() % input.size()] = static_cast<uint8_t>(random());
      }
      if (random() % 4 == 0) input.push_back(static_cast<uint8_t>(random()));
      LLVMFuzzerTestOneInput(input.data(), input.size());
    }
  }
}

TEST(SuperblockFuzz, AcceptsNothingAtAll) { LLVMFuzzerTestOneInput(nullptr, 0); }

}  // namespace
}  // namespace tier::storage
