// What jobs hold of the arena for what they ask: models alone, jobs that come to a node with large ones, and a node
// full of jobs. Exit status 1: a job holds more than it should, or a node has more windows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "tests/perf/held/node.h"
#include "tests/support/models/model_shapes.h"

namespace tier::held {
namespace {

constexpr double kHeldMax = 1.005;        // Of what was asked for.
constexpr double kHeldMaxOfSmall = 1.02;  // Of jobs below 1 GiB.
constexpr uint64_t kLargeArena = 512 * kGiB;
constexpr uint64_t kPageSizes[] = {kPageSize, kBlockSize};

// A parameter in bf16; gradient, master copy and two moments in fp32.
constexpr uint64_t kWidths[] = {2, 4, 4, 4, 4};

std::vector<uint64_t> StateOf(const models::ModelShape& model) {
  std::vector<uint64_t> sizes;
  for (const uint64_t width : kWidths) {
    const std::vector<uint64_t> tensors = models::TensorSizes(model, width);
    sizes.insert(sizes.end(), tensors.begin(), tensors.end());
  }
  return sizes;
}

uint64_t Sum(const std::vector<uint64_t>& sizes) {
  uint64_t sum = 0;
  for (const uint64_t size : sizes) sum += size;
  return sum;
}

double HeldMax(uint64_t requested) { return requested < kGiB ? kHeldMaxOfSmall : kHeldMax; }

struct Held {
  double ratio = 0;  // Held by requested. 0: the job does not fit.
  uint64_t windows = 0;
};

Held HeldBy(const std::vector<uint64_t>& sizes, uint64_t arena_bytes, uint64_t page_size) {
  Node node({.arena_bytes = arena_bytes, .page_size = static_cast<uint32_t>(page_size)});
  node.Open(1, 0, 1);
  for (uint64_t id = 0; id < sizes.size(); ++id) {
    if (!node.Put(1, 0, id, sizes[id])) return {};
  }
  node.Settle();
  node.CheckInvariants();
  return {.ratio = static_cast<double>(node.Figures(1).held_bytes) / static_cast<double>(Sum(sizes)),
          .windows = node.window_count()};
}

// Each model alone. Returns whether each holds as little as it should.
bool MeasureModels() {
  fmt::print("held / requested of training states: bf16 parameters, fp32 gradients, master copies and moments\n");
  fmt::print("  {:<14} {:>10} {:>7}   {:>22}   {:>22}\n", "model", "requested", "pages", "arena 1.25 × requested",
             "arena of 512 GiB");
  bool kept = true;
  for (const models::ModelShape& model : models::Models()) {
    const std::vector<uint64_t> sizes = StateOf(model);
    const uint64_t requested = Sum(sizes);
    for (const uint64_t page_size : kPageSizes) {
      fmt::print("  {:<14} {:>10} {:>7}", model.name, base::FormatBytes(requested), base::FormatBytes(page_size));
      for (const uint64_t arena : {requested / 4 * 5, kLargeArena}) {
        const Held held = requested > arena ? Held{} : HeldBy(sizes, arena, page_size);
        const std::string text =
            held.ratio == 0 ? "does not fit" : fmt::format("{:.4f} in {:>5} windows", held.ratio, held.windows);
        fmt::print("   {:>22}", text);
        kept &= requested > arena || (held.ratio != 0 && held.ratio <= HeldMax(requested));
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
  return kept;
}

// Jobs with tensors of one size, of which no number fills a block.
bool MeasureOddSizes() {
  constexpr uint64_t kSizes[] = {kMiB + kPageSize, 3 * kMiB + kPageSize, 704 * 1024, kMiB * 11 / 10, 412 * 1024};
  constexpr uint64_t kRequested = 2 * kGiB;
  fmt::print("held / requested of tensors of one size\n");
  bool kept = true;
  for (const uint64_t size : kSizes) {
    const std::vector<uint64_t> sizes(kRequested / size, size);
    fmt::print("  {:>10} × {:>5}", base::FormatBytes(size), sizes.size());
    for (const uint64_t arena : {kRequested / 4 * 5, kLargeArena}) {
      const Held held = HeldBy(sizes, arena, kPageSize);
      fmt::print("   {:.4f} in {:>5} windows", held.ratio, held.windows);
      kept &= held.ratio != 0 && held.ratio <= kHeldMax;
    }
    fmt::print("\n");
  }
  return kept;
}

// The parameters that are in flight, in bf16: embedding, head, and those of so many layers.
class Staging {
 public:
  Staging(const models::ModelShape& model, uint32_t layers)
      : width_(kWidths[0]),
        layer_{model.hidden * model.ffn,    model.hidden * model.ffn,    model.hidden * model.ffn,
               model.hidden * model.hidden, model.hidden * model.hidden, model.hidden * model.kv,
               model.hidden * model.kv},
        node_({.arena_bytes = kLargeArena}),
        layers_(layers) {
    node_.Open(1, 0, 1);
    for (int i = 0; i < 2; ++i) Put(model.vocab * model.hidden);
    oldest_ = next_;
  }
  // As a step goes through the model: the oldest layer leaves before the next comes.
  void GoThrough(uint64_t layers) {
    for (uint64_t layer = 0; layer < layers; ++layer) {
      if (next_ - oldest_ >= layers_ * layer_.size()) {
        for (size_t i = 0; i < layer_.size(); ++i) node_.FreeTensor(1, 0, oldest_++);
      }
      for (const uint64_t elements : layer_) Put(elements);
    }
    node_.Settle();
    node_.CheckInvariants();
    NoteHeld();
  }
  // What is in flight at once: the sum of the tensors, which is a pool with a class for each size.
  uint64_t bytes(const models::ModelShape& model) const {
    uint64_t elements = 2 * model.vocab * model.hidden;
    for (const uint64_t each : layer_) elements += layers_ * each;
    return elements * width_;
  }
  // At any time since the last call.
  uint64_t TakeHeldMost() { return std::exchange(held_most_, 0); }

 private:
  void Put(uint64_t elements) {
    TIER_CHECK(node_.Put(1, 0, next_, elements * width_), "tensor {} was refused", next_);
    ++next_;
    NoteHeld();
  }
  void NoteHeld() { held_most_ = std::max(held_most_, node_.Figures(1).held_bytes); }

  uint64_t width_;
  std::vector<uint64_t> layer_;  // Elements of each tensor.
  Node node_;
  uint32_t layers_;
  uint64_t next_ = 1;
  uint64_t oldest_ = 1;
  uint64_t held_most_ = 0;
};

// While a job grows, windows are made ahead of its need, up to 256 MiB, and go back a second after it has grown last:
// so its first step is printed beside, and the bound is for those that follow.
bool MeasureStaging() {
  fmt::print("staging memory of parameters in bf16, the most at any time / a pool with a class for each size\n");
  bool kept = true;
  for (const models::ModelShape& model : models::Models()) {
    if (model.tied || model.experts != 0) continue;
    for (const uint32_t layers : {1u, 2u}) {
      Staging staging(model, layers);
      const auto classed = static_cast<double>(staging.bytes(model));
      staging.GoThrough(model.layers);
      const double first = static_cast<double>(staging.TakeHeldMost()) / classed;
      for (int step = 0; step < 3; ++step) staging.GoThrough(model.layers);
      const uint64_t held = staging.TakeHeldMost();
      const double ratio = static_cast<double>(held) / classed;
      fmt::print("  {:<14} {} in flight: {:>10} of {:>10}, {:.4f}; in the first step {:.4f}\n", model.name, layers,
                 base::FormatBytes(held), base::FormatBytes(staging.bytes(model)), ratio, first);
      kept &= ratio <= kHeldMax;
    }
  }
  return kept;
}

// Four jobs of 64 GiB each, then one of 600 MiB and another one of 64 GiB, on one node.
struct Comer {
  uint64_t bytes = 0;
  double held_max = 0;  // Of what it asks.
};

bool MeasureComers(uint64_t arena_gib, uint64_t tensor_bytes) {
  constexpr uint64_t kLargeJob = 64 * kGiB;
  const std::vector<Comer> comers = {{kLargeJob, kHeldMax}, {kLargeJob, kHeldMax},         {kLargeJob, kHeldMax},
                                     {kLargeJob, kHeldMax}, {600 * kMiB, kHeldMaxOfSmall}, {kLargeJob, kHeldMax}};
  Node node({.arena_bytes = arena_gib * kGiB, .moves = true});
  fmt::print("  arena {:>8}, tensors of {:>9}: held / requested", base::FormatBytes(arena_gib * kGiB),
             base::FormatBytes(tensor_bytes));
  uint64_t windows_most = 0;
  for (uint32_t job = 1; job <= comers.size(); ++job) {
    node.Open(job, job, 1);
    for (uint64_t id = 0; id < comers[job - 1].bytes / tensor_bytes; ++id) {
      TIER_CHECK(node.Put(job, 0, id, tensor_bytes), "job {} tensor {}: {}", job, id, node.refusal());
      windows_most = std::max(windows_most, node.window_count());
      node.TurnsFor(tensor_bytes);
    }
    node.Settle();
  }
  node.CheckInvariants();
  bool kept = windows_most <= memory::kWindowsOfNode;
  for (uint32_t job = 1; job <= comers.size(); ++job) {
    const Comer& comer = comers[job - 1];
    const auto requested = static_cast<double>(comer.bytes / tensor_bytes * tensor_bytes);
    const double held = static_cast<double>(node.Figures(job).held_bytes) / requested;
    fmt::print(" {:.4f}", held);
    kept &= held <= comer.held_max;
  }
  fmt::print("; {} windows, at most {}{}\n", node.window_count(), windows_most, kept ? "" : ": NOT HELD");
  std::fflush(stdout);
  return kept;
}

bool MeasurePopulated(const std::vector<uint64_t>& arenas_gib) {
  fmt::print("a populated node: four jobs of 64 GiB, then one of 600 MiB, then one of 64 GiB\n");
  bool kept = true;
  for (const uint64_t gib : arenas_gib) {
    for (const uint64_t tensor : {kMiB, 8 * kMiB, 100 * kMiB}) kept &= MeasureComers(gib, tensor);
  }
  return kept;
}

// Jobs with the tensors of models, each with a guarantee, in turns, until each has used its part of the arena up.
class FullNode {
 public:
  FullNode(uint64_t arena_bytes, uint32_t jobs, uint32_t sessions)
      : node_({.arena_bytes = arena_bytes, .moves = true}),
        jobs_(jobs),
        sessions_(sessions),
        part_(arena_bytes / 16 * 15 / jobs / kBlockSize * kBlockSize) {
    for (uint32_t job = 0; job < jobs; ++job) node_.Open(job + 1, job % 8, SessionsOf(job), part_);
    held_.resize(jobs);
    asked_.resize(jobs);
  }
  // Tensors of the models of other jobs from round to round.
  void Fill(uint32_t round) {
    for (bool any = true; any;) {
      any = false;
      for (uint32_t job = 0; job < jobs_; ++job) any |= FillOnce(job, round);
    }
    node_.Settle();
    node_.CheckInvariants();
  }
  // Each job frees every third of its tensors, and leases some of the others while it asks for as much again.
  void Stir() {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      for (uint32_t job = 0; job < jobs_; ++job) FreeSome(job);
      node_.CheckInvariants();
      std::vector<Leased> leased;
      for (uint32_t job = 0; job < jobs_; ++job) LeaseSome(job, &leased);
      Fill(round);
      for (const Leased& each : leased) node_.Release(each.job + 1, each.session, each.leases);
    }
    node_.Settle();
    node_.CheckInvariants();
  }
  bool Print(std::string_view when) {
    const tiering::EngineSnapshot snapshot = node_.Snapshot();
    double worst = 0;
    bool within_part = true;
    uint64_t pieces = 0;
    for (uint32_t job = 0; job < jobs_; ++job) {
      const tiering::JobCounters figures = node_.Figures(job + 1);
      worst = std::max(worst, static_cast<double>(figures.held_bytes) / static_cast<double>(asked_[job]));
      within_part &= figures.held_bytes <= part_;
      pieces += figures.ram_bytes / kBlockSize;
    }
    const auto per_block = static_cast<double>(snapshot.metadata.held) / static_cast<double>(pieces);
    const memory::ArenaSizes& sizes = node_.sizes();
    fmt::print(
        "  arena {:>8} {}, {} jobs, {} sessions: {} of windows in {}, at most {} of {}, {} to {}; "
        "worst held / requested {:.4f}; {} tensors, metadata {} ({:.0f} B a block in use)\n",
        base::FormatBytes(sizes.max_bytes), when, jobs_, sessions_, base::FormatBytes(snapshot.arena_bytes),
        node_.window_count(), windows_most_, sizes.windows_max, base::FormatBytes(sizes.window_size_min),
        base::FormatBytes(sizes.window_size_max), worst, snapshot.tensor_count,
        base::FormatBytes(snapshot.metadata.held), per_block);
    // Each job asks for nearly all that it is promised: it may hold that, and has no room beside it to merge windows.
    return windows_most_ <= memory::kWindowsOfNode && within_part;
  }

 private:
  static constexpr uint32_t kRounds = 2;
  static constexpr size_t kLeasedEvery = 1000;
  struct Held {
    uint64_t id = 0;
    uint64_t bytes = 0;
    uint32_t session = 0;
  };
  struct Leased {
    uint32_t job = 0;
    uint32_t session = 0;
    std::vector<proto::RequestItem> leases;
  };

  uint32_t SessionsOf(uint32_t job) const { return sessions_ / jobs_ + (job < sessions_ % jobs_ ? 1 : 0); }
  // Tails take whole pages, and the last window of each job is not full: a hundredth is left for that.
  bool FillOnce(uint32_t job, uint32_t round) {
    const std::span<const models::ModelShape> shapes = models::Models();
    bool any = false;
    for (const uint64_t size : models::TensorSizes(shapes[(job + round) % shapes.size()], 4)) {
      if (asked_[job] + size > part_ - part_ / 100) continue;
      const Held tensor{.id = ++tensors_, .bytes = size, .session = static_cast<uint32_t>(tensors_ % SessionsOf(job))};
      const bool fits = node_.Put(job + 1, tensor.session, tensor.id, size);
      TIER_CHECK(fits, "job {} has {} of {}, and {} more were refused: {}", job, asked_[job], part_, size,
                 node_.refusal());
      held_[job].push_back(tensor);
      asked_[job] += size;
      windows_most_ = std::max(windows_most_, node_.window_count());
      node_.TurnsFor(size);
      any |= size >= kBlockSize;
    }
    return any;
  }
  void FreeSome(uint32_t job) {
    std::vector<Held> kept;
    for (size_t i = 0; i < held_[job].size(); ++i) {
      const Held& tensor = held_[job][i];
      if (i % 3 != 0) {
        kept.push_back(tensor);
        continue;
      }
      node_.FreeTensor(job + 1, tensor.session, tensor.id);
      asked_[job] -= tensor.bytes;
    }
    held_[job] = std::move(kept);
  }
  void LeaseSome(uint32_t job, std::vector<Leased>* leased) {
    for (size_t i = 0; i < held_[job].size(); i += kLeasedEvery) {
      const Held& tensor = held_[job][i];
      Leased lease{.job = job, .session = tensor.session, .leases = {}};
      const Code code = node_.Lease(job + 1, tensor.session, tensor.id, &lease.leases);
      TIER_CHECK(code == Code::kOk, "job {} tensor {}: {}", job, tensor.id, node_.refusal());
      leased->push_back(std::move(lease));
    }
  }

  Node node_;
  uint32_t jobs_;
  uint32_t sessions_;
  uint64_t part_;
  std::vector<std::vector<Held>> held_;  // By job.
  std::vector<uint64_t> asked_;
  uint64_t tensors_ = 0;
  uint64_t windows_most_ = 0;
};

bool MeasureNodes(const std::vector<uint64_t>& arenas_gib, uint32_t jobs, uint32_t sessions) {
  fmt::print("a full node\n");
  bool kept = true;
  for (const uint64_t gib : arenas_gib) {
    FullNode node(gib * kGiB, jobs, sessions);
    node.Fill(0);
    kept &= node.Print("filled");
    node.Stir();
    kept &= node.Print("stirred");
    std::fflush(stdout);
  }
  return kept;
}

int Main(int argc, char** argv) {
  CLI::App app{"What jobs hold of the arena for what they ask, in simulated memory.", "pool_held"};
  std::vector<uint64_t> arenas = {64, 512, 4096, 8192};
  std::vector<uint64_t> populated = {512, 4096};
  uint32_t jobs = 64;
  uint32_t sessions = 1000;
  bool models_only = false;
  bool nodes_only = false;
  app.add_option("--arena", arenas, "GiB of the nodes that are filled")->check(CLI::Range(1, 16384));
  app.add_option("--populated", populated, "GiB of the nodes to which jobs come one after the other")
      ->check(CLI::Range(410, 16384));
  app.add_option("--jobs", jobs, "of such a node")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--sessions", sessions, "of such a node")->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_flag("--models-only", models_only, "no populated and no full nodes");
  app.add_flag("--nodes-only", nodes_only, "these alone")->excludes("--models-only");
  CLI11_PARSE(app, argc, argv);
  bool kept = true;
  if (!nodes_only) {
    kept &= MeasureModels();
    kept &= MeasureOddSizes();
    kept &= MeasureStaging();
  }
  if (!models_only) {
    kept &= MeasurePopulated(populated);
    kept &= MeasureNodes(arenas, jobs, std::max(sessions, jobs));
  }
  if (!kept) {
    fmt::print("a job holds more than {} ({} below 1 GiB) of what it asked for, or a node has more than {} windows\n",
               kHeldMax, kHeldMaxOfSmall, memory::kWindowsOfNode);
  }
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tier::held

int main(int argc, char** argv) { return tier::held::Main(argc, argv); }
