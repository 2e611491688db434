// tier_sim: runs simulations of the engine from seeds; prints the first finding and the command that replays it.
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <span>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tests/sim/simulation.h"

namespace {

using tier::tiering::sim::Outcome;
using tier::tiering::sim::Plan;
using tier::tiering::sim::Simulation;

// What a plan is drawn for. The first is drawn of everything.
struct Kind {
  const char* flag;
  const char* help;
  Plan (*plan)(uint64_t seed);
};

constexpr std::array<Kind, 6> kKinds = {{
    {"", "", tier::tiering::sim::DrawPlan},
    {"--crowded", "65 jobs over an arena of a few windows", tier::tiering::sim::CrowdedPlan},
    {"--scattered", "Tensors of all sizes in a few blocks: pieces move in RAM", tier::tiering::sim::ScatteredPlan},
    {"--hand-over", "Jobs with guarantees over a sparse arena: windows are emptied by moves",
     tier::tiering::sim::HandOverPlan},
    {"--pressed", "A host that runs short of memory again and again", tier::tiering::sim::PressedPlan},
    {"--quotas", "Jobs of users whose quotas change again and again", tier::tiering::sim::QuotaPlan},
}};

// How the seed that runs is had again: said too where a check ends the process.
std::string replay;

void SayReplay(int) {
  // A handler may not call fmt.
  [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, replay.data(), replay.size());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Simulates the engine of tierd with faulty devices and clients that die"};
  uint64_t seed = 1;
  uint64_t seeds = 100;
  uint64_t seconds = 0;
  const Kind* asked = &kKinds.front();
  bool mixed = false;
  bool verbose = false;
  app.add_option("--seed", seed, "First seed");
  app.add_option("--seeds", seeds, "How many seeds, one after the other");
  app.add_option("--seconds", seconds, "Stop after this many seconds of processor time; 0: after all seeds");
  for (const Kind& kind : std::span(kKinds).subspan(1)) {
    app.add_flag_callback(kind.flag, [&asked, &kind] { asked = &kind; }, kind.help);
  }
  app.add_flag("--mixed", mixed, "Each seed of another of these kinds, in turn");
  app.add_flag("--verbose", verbose, "One line for each seed");
  CLI11_PARSE(app, argc, argv);

  std::signal(SIGABRT, SayReplay);
  uint64_t answered = 0;
  uint64_t granted = 0;
  uint64_t ran = 0;
  for (; ran < seeds; ++ran) {
    if (seconds != 0 && static_cast<uint64_t>(std::clock()) / CLOCKS_PER_SEC >= seconds) break;
    const uint64_t now = seed + ran;
    const Kind& kind = mixed ? kKinds[now % kKinds.size()] : *asked;
    replay = fmt::format("replay: tier_sim --seed {} --seeds 1 {}\n", now, kind.flag);
    if (verbose) {
      fmt::print("seed {}: ", now);
      std::fflush(stdout);
    }
    Simulation simulation(kind.plan(now));
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
    fmt::print("seed {}: {}\n{}", now, *outcome.finding, replay);
    return 1;
  }
  fmt::print("{} seeds, {} requests answered, {} leases granted, no finding\n", ran, answered, granted);
  return 0;
}
