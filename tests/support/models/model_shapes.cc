#include "tests/support/models/model_shapes.h"

#include <algorithm>

namespace tier::models {
namespace {

constexpr ModelShape kModels[] = {
    {"gpt2-small", 50257, 768, 3072, 768, 12, true, 0, 2},    {"qwen2.5-1.5b", 151936, 1536, 8960, 256, 28, true, 0},
    {"qwen2.5-7b", 152064, 3584, 18944, 512, 28, false, 0},   {"llama3.1-8b", 128256, 4096, 14336, 1024, 32, false, 0},
    {"qwen2.5-14b", 152064, 5120, 13824, 1024, 48, false, 0}, {"qwen2.5-32b", 152064, 5120, 27648, 1024, 64, false, 0},
    {"mixtral-8x7b", 32000, 4096, 14336, 1024, 32, false, 8},
};

}  // namespace

std::span<const ModelShape> Models() { return kModels; }

std::vector<uint64_t> TensorSizes(const ModelShape& model, uint64_t width) {
  std::vector<uint64_t> sizes = {model.vocab * model.hidden * width, model.hidden * width};
  if (!model.tied) sizes.push_back(model.vocab * model.hidden * width);
  for (uint64_t layer = 0; layer < model.layers; ++layer) {
    sizes.insert(sizes.end(), 2, model.hidden * model.hidden * width);
    sizes.insert(sizes.end(), 2, model.hidden * model.kv * width);
    sizes.insert(sizes.end(), 2, model.hidden * width);
    sizes.insert(sizes.end(), model.ffn_matrices * std::max<uint64_t>(model.experts, 1),
                 model.hidden * model.ffn * width);
    if (model.experts != 0) sizes.push_back(model.hidden * model.experts * width);
  }
  return sizes;
}

}  // namespace tier::models
