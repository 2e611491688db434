// The shapes of real models: what allocators have to place.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tier::models {

struct ModelShape {
  std::string_view name;
  uint64_t vocab, hidden, ffn, kv, layers;
  bool tied;                  // The embedding is the head.
  uint64_t experts;           // 0: dense.
  uint64_t ffn_matrices = 3;  // Of each expert. A gated one has gate, up and down; else there is no gate.
};

std::span<const ModelShape> Models();
// Bytes of every tensor of the model, `width` bytes an element.
std::vector<uint64_t> TensorSizes(const ModelShape& model, uint64_t width);

}  // namespace tier::models
