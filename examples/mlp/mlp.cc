// mlp: trains a perceptron whose tensors live in tierd, and checks its gradients against finite differences.
// Exit status 0: gradients agree and the loss falls. 1: they do not. 2: no daemon, or a failure of it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "network.h"

namespace {

struct Arguments {
  Shape shape;
  uint64_t steps = 3;
  uint64_t checks = 12;
  uint64_t limit_bytes = 0;
};

[[noreturn]] void Usage() {
  std::fprintf(
      stderr,
      "usage: mlp [--width N] [--layers N] [--batch N] [--slice-rows N] [--steps N] [--checks N] [--limit-mib N]\n");
  std::exit(2);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) Usage();
    const std::string name = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--width")
      arguments.shape.width = value;
    else if (name == "--layers")
      arguments.shape.layers = value;
    else if (name == "--batch")
      arguments.shape.batch = value;
    else if (name == "--slice-rows")
      arguments.shape.slice_rows = value;
    else if (name == "--steps")
      arguments.steps = value;
    else if (name == "--checks")
      arguments.checks = value;
    else if (name == "--limit-mib")
      arguments.limit_bytes = value << 20;
    else
      Usage();
  }
  if (arguments.shape.width == 0 || arguments.shape.layers == 0 || arguments.shape.batch == 0 ||
      arguments.shape.slice_rows == 0)
    Usage();
  return arguments;
}

Network::Batch RandomBatch(const Shape& shape, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-0.8, 0.8);
  Network::Batch batch(shape.batch * shape.width);
  for (double& value : batch) value = uniform(random);
  return batch;
}

// Central differences against the gradient tensors, at random places. Returns how many disagree.
int CheckGradients(Network& network, const Arguments& arguments, const Network::Batch& inputs,
                   const Network::Batch& targets) {
  std::mt19937_64 random(99);
  const double step = 1e-5;
  int wrong = 0;
  for (uint64_t i = 0; i < arguments.checks; ++i) {
    const uint64_t layer = i % arguments.shape.layers;
    const uint64_t row = random() % arguments.shape.width;
    // Every third one a bias.
    const uint64_t column = i % 3 == 2 ? arguments.shape.width : random() % arguments.shape.width;
    const double analytic = network.Gradient(layer, row, column);
    network.Nudge(layer, row, column, step);
    const double above = network.Forward(inputs, targets, false);
    network.Nudge(layer, row, column, -2 * step);
    const double below = network.Forward(inputs, targets, false);
    network.Nudge(layer, row, column, step);
    const double numeric = (above - below) / (2 * step);
    const double error = std::abs(numeric - analytic) / std::max(1e-4, std::abs(numeric) + std::abs(analytic));
    const bool agrees = error < 5e-5;
    std::printf("layer %llu [%llu, %llu]: gradient %+.9e, by differences %+.9e, relative error %.1e%s\n",
                static_cast<unsigned long long>(layer), static_cast<unsigned long long>(row),
                static_cast<unsigned long long>(column), analytic, numeric, error, agrees ? "" : "  WRONG");
    wrong += agrees ? 0 : 1;
  }
  return wrong;
}

int Train(const Arguments& arguments) {
  tier::ConnectOptions options;
  options.limit_bytes = arguments.limit_bytes;
  tier::Client client(options);
  std::mt19937_64 random(7);
  const auto inputs = RandomBatch(arguments.shape, random);
  const auto targets = RandomBatch(arguments.shape, random);
  Network network(client, arguments.shape, 1);
  std::printf("%.1f MiB in tierd (session %llu of job %s)\n", static_cast<double>(network.bytes()) / (1 << 20),
              static_cast<unsigned long long>(client.Session().session), client.Session().job);
  double first = 0, loss = 0;
  for (uint64_t step = 0; step < arguments.steps; ++step) {
    loss = network.Forward(inputs, targets, true);
    if (step == 0) first = loss;
    network.Backward(inputs, targets);
    if (step == 0 && CheckGradients(network, arguments, inputs, targets) > 0) return 1;
    network.Update(0.02, 0.9);
    std::printf("step %llu: loss %.9f\n", static_cast<unsigned long long>(step), loss);
  }
  loss = network.Forward(inputs, targets, false);
  const tier_stats_view stats = client.Stats();
  std::printf("end: loss %.9f; %llu leases, %.1f MiB out, %.1f MiB in, %.3f s waited\n", loss,
              static_cast<unsigned long long>(stats.acquires),
              static_cast<double>(stats.copied_to_tensors_bytes) / (1 << 20),
              static_cast<double>(stats.copied_from_tensors_bytes) / (1 << 20),
              static_cast<double>(stats.acquire_wait_ns) * 1e-9);
  return loss < first || arguments.steps == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Train(Parse(argc, argv));
  } catch (const tier::Error& error) {
    std::fprintf(stderr, "mlp: %s\n", error.what());
    return 2;
  }
}
