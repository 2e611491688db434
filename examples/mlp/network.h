// Network: a perceptron with tanh layers and a squared-error loss, all of whose large arrays are tensors in tierd.
//
// Layer l maps width → width by W (rows: outputs) and b, stored as one tensor of width rows of width + 1 doubles (the
// last column is the bias). Work goes by slices of rows, each under a lease of its own, so that the RAM in use at any
// time is a few slices. Gradients and momenta are tensors of the same shape.
#pragma once

#include <tier/tier.hpp>

#include <cstdint>
#include <random>
#include <vector>

struct Shape {
  uint64_t width = 256;
  uint64_t layers = 4;
  uint64_t batch = 8;
  uint64_t slice_rows = 64;
};

class Network {
 public:
  Network(tier::Client& client, const Shape& shape, uint64_t seed);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  using Batch = std::vector<double>;  // batch × width

  // The loss of `inputs` against `targets`. Keeps the activations in tierd when `keep`, for Backward.
  double Forward(const Batch& inputs, const Batch& targets, bool keep);
  // Fills the gradient tensors from the activations of the last Forward.
  void Backward(const Batch& inputs, const Batch& targets);
  // Momentum descent: v = μ v + g; p = p − η v.
  void Update(double rate, double momentum);

  // One element, for the check against finite differences.
  double Gradient(uint64_t layer, uint64_t row, uint64_t column);
  void Nudge(uint64_t layer, uint64_t row, uint64_t column, double delta);

  uint64_t columns() const { return shape_.width + 1; }
  uint64_t bytes() const;  // Of everything kept in tierd.

 private:
  enum class Kind : uint64_t { kParameter = 1, kGradient = 2, kMomentum = 3, kActivation = 4 };
  struct Slice {
    uint64_t first;
    uint64_t rows;
    tier::Range range;  // In bytes of the tensor.
  };
  struct Row {
    const double* weights;
    double* gradient;
    uint64_t output;  // Which output of the layer it makes.
  };

  static uint64_t Id(Kind kind, uint64_t layer) { return static_cast<uint64_t>(kind) << 32 | layer; }
  Slice SliceAt(uint64_t first) const;
  Slice ElementAt(uint64_t row, uint64_t column) const;
  void MakeTensor(Kind kind, uint64_t layer, std::mt19937_64* random);
  void LayerForward(uint64_t layer, const Batch& in, Batch& out);
  void LayerBackward(uint64_t layer, const Batch& in, const Batch& delta, Batch& delta_in);
  void RowBackward(const Row& row, const Batch& in, const Batch& delta, Batch& delta_in) const;
  void StartActivation(uint64_t layer);

  tier::Client& client_;
  const Shape shape_;
  std::vector<Batch> leaving_;  // Activations being swapped out.
  std::vector<tier::Operation> swap_outs_;
  std::vector<Batch> arriving_;  // Activations being swapped in.
  std::vector<tier::Operation> arrivals_;
  Batch output_;
};
