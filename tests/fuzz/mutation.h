// The corpus of a fuzz target, and inputs in its neighbourhood. Without a fuzzer's feedback: what a change reaches is
// luck, but every draw follows from its seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

namespace tier::fuzz {

using Input = std::vector<uint8_t>;

inline constexpr size_t kInputMax = 1 << 16;

inline std::vector<Input> ReadCorpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// Overwrites up to eight bytes with a number at the border of some range.
inline void SetNumber(std::mt19937_64& random, size_t at, Input* input) {
  constexpr uint64_t kBorders[] = {
      0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, ~uint64_t{0} >> 1, ~uint64_t{0}};
  const uint64_t number = kBorders[random() % std::size(kBorders)] + random() % 3 - 1;
  const size_t width = std::min<size_t>(size_t{1} << (random() % 4), input->size() - at);
  std::memcpy(input->data() + at, &number, width);
}

// One to four changes: a byte, a bit, a number, a cut, a repetition, or the end of another input.
inline Input Mutated(std::mt19937_64& random, const std::vector<Input>& corpus) {
  Input input = corpus[random() % corpus.size()];
  for (uint64_t i = 0, n = 1 + random() % 4; i < n && !input.empty(); ++i) {
    const size_t at = random() % input.size();
    switch (random() % 6) {
      case 0: input[at] = static_cast<uint8_t>(random()); break;
      case 1: input[at] ^= static_cast<uint8_t>(1u << (random() % 8)); break;
      case 2: SetNumber(random, at, &input); break;
      case 3: input.resize(at); break;
      case 4: {
        const Input end(input.begin() + static_cast<ptrdiff_t>(at), input.end());
        input.insert(input.end(), end.begin(), end.end());
        break;
      }
      default: {
        const Input& other = corpus[random() % corpus.size()];
        input.resize(at);
        input.insert(input.end(), other.begin() + static_cast<ptrdiff_t>(std::min(at, other.size())), other.end());
      }
    }
  }
  if (input.size() > kInputMax) input.resize(kInputMax);
  return input;
}

}  // namespace tier::fuzz
