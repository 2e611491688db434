// tier_sim: runs simulations of the engine from seeds; prints the first finding and the command that replays it.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tests/sim/simulation.h"

int main(int argc, char** argv) {
  CLI::App app{"Simulates the engine of tierd with faulty devices and clients that die"};
  uint64_t seed = 1;
  uint64_t seeds = 100;
  uint64_t seconds = 0;
  bool crowded = false;
  bool scattered = false;
  bool hand_over = false;
  bool verbose = false;
  app.add_option("--seed", seed, "First seed");
  app.add_option("--seeds", seeds, "How many seeds, one after the other");
  app.add_option("--seconds", seconds, "Stop after this many seconds of processor time; 0: after all seeds");
  app.add_flag("--crowded", crowded, "65 jobs over an arena of a few windows");
  app.add_flag("--scattered", scattered, "Tensors of all sizes in a few blocks: pieces move in RAM");
  app.add_flag("--hand-over", hand_over, "Jobs with guarantees over a sparse arena: windows are emptied by moves");
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
    using tier::tiering::sim::Simulation;
    const auto plan_of = [&] {
      if (hand_over) return tier::tiering::sim::HandOverPlan(now);
      if (scattered) return tier::tiering::sim::ScatteredPlan(now);
      return crowded ? tier::tiering::sim::CrowdedPlan(now) : tier::tiering::sim::DrawPlan(now);
    };
    Simulation simulation(plan_of());
    const tier::tiering::sim::Outcome outcome = simulation.Run();
    answered += outcome.answered;
    granted += outcome.granted;
    if (verbose) {
      fmt::print(
          "{} turns, {} sleeps, {} answered, {} granted, {} killed, {} revoked, {} bytes swapped in, {} moves, {} "
          "cancelled, {} moves to empty {} windows;{}\n",
          outcome.turns, outcome.sleeps, outcome.answered, outcome.granted, outcome.killed, outcome.revoked,
          outcome.swapped_in_bytes, outcome.moves, outcome.cancelled_moves, outcome.hand_over_moves,
          outcome.left_by_moves, outcome.codes);
    }
    if (!outcome.finding) continue;
    fmt::print("seed {}: {}\nreplay: tier_sim --seed {} --seeds 1{}\n", now, *outcome.finding, now,
               hand_over ? " --hand-over" : (scattered ? " --scattered" : (crowded ? " --crowded" : "")));
    return 1;
  }
  fmt::print("{} seeds, {} requests answered, {} leases granted, no finding\n", ran, answered, granted);
  return 0;
}
