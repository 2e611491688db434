// tier_sim: runs simulations of the engine from seeds; prints the first finding and the command that replays it.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tests/sim/simulation.h"

namespace {

using tier::tiering::sim::Outcome;
using tier::tiering::sim::Plan;
using tier::tiering::sim::Simulation;

struct Kind {
  bool crowded = false;
  bool scattered = false;
  bool hand_over = false;
  bool pressed = false;
  bool quotas = false;
};

Plan PlanOf(const Kind& kind, uint64_t seed) {
  if (kind.hand_over) return tier::tiering::sim::HandOverPlan(seed);
  if (kind.scattered) return tier::tiering::sim::ScatteredPlan(seed);
  if (kind.pressed) return tier::tiering::sim::PressedPlan(seed);
  if (kind.quotas) return tier::tiering::sim::QuotaPlan(seed);
  return kind.crowded ? tier::tiering::sim::CrowdedPlan(seed) : tier::tiering::sim::DrawPlan(seed);
}

const char* FlagOf(const Kind& kind) {
  if (kind.hand_over) return " --hand-over";
  if (kind.scattered) return " --scattered";
  if (kind.pressed) return " --pressed";
  if (kind.quotas) return " --quotas";
  return kind.crowded ? " --crowded" : "";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Simulates the engine of tierd with faulty devices and clients that die"};
  uint64_t seed = 1;
  uint64_t seeds = 100;
  uint64_t seconds = 0;
  Kind kind;
  bool verbose = false;
  app.add_option("--seed", seed, "First seed");
  app.add_option("--seeds", seeds, "How many seeds, one after the other");
  app.add_option("--seconds", seconds, "Stop after this many seconds of processor time; 0: after all seeds");
  app.add_flag("--crowded", kind.crowded, "65 jobs over an arena of a few windows");
  app.add_flag("--scattered", kind.scattered, "Tensors of all sizes in a few blocks: pieces move in RAM");
  app.add_flag("--hand-over", kind.hand_over, "Jobs with guarantees over a sparse arena: windows are emptied by moves");
  app.add_flag("--pressed", kind.pressed, "A host that runs short of memory again and again");
  app.add_flag("--quotas", kind.quotas, "Jobs of users whose quotas change again and again");
  app.add_flag("--verbose", verbose, "One line for each seed");
  CLI11_PARSE(app, argc, argv);

  uint64_t answered = 0;
  uint64_t granted = 0;
  uint64_t ran = 0;
  for (; ran < seeds; ++ran) {
    if (seconds != 0 && static_cast<uint64_t>(std::clock()) / CLOCKS_PER_SEC >= seconds) break;
    const uint64_t now = seed + ran;
    if (verbose) {
      fmt::print("seed {}: ", now);
      std::fflush(stdout);
    }
    Simulation simulation(PlanOf(kind, now));
    const Outcome outcome = simulation.Run();
    answered += outcome.answered;
    granted += outcome.granted;
    if (verbose) {
      fmt::print(
          "{} turns, {} sleeps, {} answered, {} granted, {} killed, {} revoked, {} bytes swapped in, {} moves, {} "
          "cancelled, {} moves to empty {} windows, {} shortages, {} paid, {} quotas, {} refused by them;{}\n",
          outcome.turns, outcome.sleeps, outcome.answered, outcome.granted, outcome.killed, outcome.revoked,
          outcome.swapped_in_bytes, outcome.moves, outcome.cancelled_moves, outcome.hand_over_moves,
          outcome.left_by_moves, outcome.shortages, outcome.paid, outcome.quota_changes, outcome.quota_refusals,
          outcome.codes);
    }
    if (!outcome.finding) continue;
    fmt::print("seed {}: {}\nreplay: tier_sim --seed {} --seeds 1{}\n", now, *outcome.finding, now, FlagOf(kind));
    return 1;
  }
  fmt::print("{} seeds, {} requests answered, {} leases granted, no finding\n", ran, answered, granted);
  return 0;
}
