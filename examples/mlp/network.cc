#include "network.h"

#include <algorithm>
#include <cmath>

Network::Network(tier::Client& client, const Shape& shape, uint64_t seed)
    : client_(client), shape_(shape), leaving_(shape.layers), arriving_(shape.layers), arrivals_(shape.layers) {
  std::mt19937_64 random(seed);
  for (uint64_t layer = 0; layer < shape_.layers; ++layer) {
    MakeTensor(Kind::kParameter, layer, &random);
    MakeTensor(Kind::kGradient, layer, nullptr);
    MakeTensor(Kind::kMomentum, layer, nullptr);
  }
}

Network::~Network() {
  for (uint64_t layer = 0; layer < shape_.layers; ++layer) {
    for (const Kind kind : {Kind::kParameter, Kind::kGradient, Kind::kMomentum}) {
      (void)tier_free(client_.handle(), Id(kind, layer), 0);
    }
  }
}

uint64_t Network::bytes() const {
  const uint64_t matrix = shape_.width * columns() * sizeof(double);
  return shape_.layers * (3 * matrix + shape_.batch * shape_.width * sizeof(double));
}

Network::Slice Network::SliceAt(uint64_t first) const {
  const uint64_t rows = std::min(shape_.slice_rows, shape_.width - first);
  const uint64_t row_bytes = columns() * sizeof(double);
  return {first, rows, {first * row_bytes, rows * row_bytes}};
}

Network::Slice Network::ElementAt(uint64_t row, uint64_t column) const {
  return {row, 1, {(row * columns() + column) * sizeof(double), sizeof(double)}};
}

// Creates a tensor range by range: the first with the create itself, the others under write leases of their own.
void Network::MakeTensor(Kind kind, uint64_t layer, std::mt19937_64* random) {
  std::normal_distribution<double> normal(0, 1 / std::sqrt(static_cast<double>(shape_.width)));
  const uint64_t size = shape_.width * columns() * sizeof(double);
  for (uint64_t first = 0; first < shape_.width; first += shape_.slice_rows) {
    const Slice slice = SliceAt(first);
    tier::Lease lease = first == 0 ? client_.Create(Id(kind, layer), size, slice.range)
                                   : client_.Acquire(Id(kind, layer), TIER_WRITE | TIER_DISCARD, slice.range);
    for (double& value : lease.as<double>()) value = random == nullptr ? 0.0 : normal(*random);
    lease.Seal();
  }
}

void Network::LayerForward(uint64_t layer, const Batch& in, Batch& out) {
  const uint64_t width = shape_.width;
  out.resize(shape_.batch * width);
  for (uint64_t first = 0; first < width; first += shape_.slice_rows) {
    const Slice slice = SliceAt(first);
    const tier::Lease lease = client_.Acquire(Id(Kind::kParameter, layer), 0, slice.range);
    const auto weights = lease.as<const double>();
    for (uint64_t row = 0; row < slice.rows; ++row) {
      const double* const w = &weights[row * columns()];
      for (uint64_t sample = 0; sample < shape_.batch; ++sample) {
        double sum = w[width];
        for (uint64_t i = 0; i < width; ++i) sum += w[i] * in[sample * width + i];
        out[sample * width + first + row] = std::tanh(sum);
      }
    }
  }
}

double Network::Forward(const Batch& inputs, const Batch& targets, bool keep) {
  Batch current = inputs;
  for (uint64_t layer = 0; layer < shape_.layers; ++layer) {
    Batch next;
    LayerForward(layer, current, next);
    if (keep) {
      // Out while the next layer computes; the memory stays ours until the operation has ended.
      leaving_[layer] = next;
      swap_outs_.push_back(
          client_.SwapOut(Id(Kind::kActivation, layer), std::as_bytes(std::span<const double>(leaving_[layer]))));
    }
    current = std::move(next);
  }
  for (tier::Operation& swap_out : swap_outs_) swap_out.Wait();
  swap_outs_.clear();
  for (Batch& gone : leaving_) Batch().swap(gone);
  double loss = 0;
  for (size_t i = 0; i < current.size(); ++i) loss += (current[i] - targets[i]) * (current[i] - targets[i]);
  output_ = std::move(current);
  return loss / static_cast<double>(shape_.batch);
}

void Network::StartActivation(uint64_t layer) {
  arriving_[layer].resize(shape_.batch * shape_.width);
  tier_copy_options options = TIER_COPY_OPTIONS_INIT;
  options.flags = TIER_FREE_AFTER;  // Read once: then it is gone.
  arrivals_[layer] = client_.SwapIn(Id(Kind::kActivation, layer),
                                    std::as_writable_bytes(std::span<double>(arriving_[layer])), &options);
}

void Network::Backward(const Batch& inputs, const Batch& targets) {
  StartActivation(shape_.layers - 1);
  Batch delta(shape_.batch * shape_.width);
  for (size_t i = 0; i < delta.size(); ++i)
    delta[i] = 2 * (output_[i] - targets[i]) / static_cast<double>(shape_.batch);
  for (uint64_t layer = shape_.layers; layer-- > 0;) {
    if (layer > 0) StartActivation(layer - 1);  // One ahead of its use.
    arrivals_[layer].Wait();
    const Batch out = std::move(arriving_[layer]);
    for (size_t i = 0; i < delta.size(); ++i) delta[i] *= 1 - out[i] * out[i];
    if (layer > 0) arrivals_[layer - 1].WaitFor(std::chrono::hours(1));
    Batch delta_in(delta.size(), 0.0);
    LayerBackward(layer, layer > 0 ? arriving_[layer - 1] : inputs, delta, delta_in);
    delta = std::move(delta_in);
  }
}

void Network::LayerBackward(uint64_t layer, const Batch& in, const Batch& delta, Batch& delta_in) {
  for (uint64_t first = 0; first < shape_.width; first += shape_.slice_rows) {
    const Slice slice = SliceAt(first);
    const tier::Lease parameter = client_.Acquire(Id(Kind::kParameter, layer), 0, slice.range);
    tier::Lease gradient = client_.Acquire(Id(Kind::kGradient, layer), TIER_WRITE, slice.range);
    const auto weights = parameter.as<const double>();
    const auto sums = gradient.as<double>();
    std::ranges::fill(sums, 0.0);
    for (uint64_t row = 0; row < slice.rows; ++row) {
      RowBackward({&weights[row * columns()], &sums[row * columns()], first + row}, in, delta, delta_in);
    }
    gradient.Seal();
  }
}

void Network::RowBackward(const Row& row, const Batch& in, const Batch& delta, Batch& delta_in) const {
  const uint64_t width = shape_.width;
  for (uint64_t sample = 0; sample < shape_.batch; ++sample) {
    const double d = delta[sample * width + row.output];
    for (uint64_t i = 0; i < width; ++i) {
      row.gradient[i] += d * in[sample * width + i];
      delta_in[sample * width + i] += d * row.weights[i];
    }
    row.gradient[width] += d;
  }
}

void Network::Update(double rate, double momentum) {
  for (uint64_t layer = 0; layer < shape_.layers; ++layer) {
    for (uint64_t first = 0; first < shape_.width; first += shape_.slice_rows) {
      const tier::Range range = SliceAt(first).range;
      const tier::Lease gradient = client_.Acquire(Id(Kind::kGradient, layer), 0, range);
      // Both or neither: the two that are written come in one request.
      const tier_range ranges[] = {{Id(Kind::kMomentum, layer), range.offset, range.length, 0},
                                   {Id(Kind::kParameter, layer), range.offset, range.length, 0}};
      auto written = client_.Acquire(std::span(ranges), TIER_WRITE);
      const auto g = gradient.as<const double>();
      const auto v = written[0].as<double>();
      const auto p = written[1].as<double>();
      for (size_t i = 0; i < g.size(); ++i) {
        v[i] = momentum * v[i] + g[i];
        p[i] -= rate * v[i];
      }
    }
  }
  client_.Step();
}

double Network::Gradient(uint64_t layer, uint64_t row, uint64_t column) {
  return client_.Acquire(Id(Kind::kGradient, layer), 0, ElementAt(row, column).range).as<const double>()[0];
}

void Network::Nudge(uint64_t layer, uint64_t row, uint64_t column, double delta) {
  tier::Lease lease = client_.Acquire(Id(Kind::kParameter, layer), TIER_WRITE, ElementAt(row, column).range);
  lease.as<double>()[0] += delta;
  lease.Seal();
}
