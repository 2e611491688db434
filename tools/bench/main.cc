// tier_bench: one part of a measurement against a running daemon. `tools/dev bench` (run.py) composes the parts.

#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "tools/bench/parts.h"

int main(int argc, char** argv) {
  using tier::bench::PartOptions;
  const std::map<std::string, void (*)(const PartOptions&)> parts = {
      {"swap-ram", tier::bench::SwapInRam},
      {"fused", tier::bench::FusedPass},
      {"lease-busy", tier::bench::LeaseLatency},
      {"lease-idle", tier::bench::LeaseLatencyIdle},
      {"crowd", tier::bench::Crowd},
      {"lease-shell", tier::bench::LeaseShell},
      {"lease-rate", tier::bench::LeaseRate},
      {"many", tier::bench::ManyTensors},
      {"ssd", tier::bench::SsdShell},
      {"bare-copy", tier::bench::BareCopyShell},
      {"bare-moves", tier::bench::BareMovesShell},
      {"scatter", tier::bench::ScatterShell},
      {"take", tier::bench::TakeShell},
      {"bare-windows", tier::bench::BareWindowsShell},
  };
  PartOptions options;
  std::string part;
  std::string spin = "auto";
  CLI::App app("Runs one part of a measurement against a running tierd; prints JSON lines.", "tier_bench");
  app.add_option("part", part, "Which part")->required()->check(CLI::IsMember(parts));
  app.add_option("--socket", options.socket, "Data socket of the daemon; bare-windows needs none");
  app.add_option("--file", options.file, "File that is written without a daemon (bare-copy, bare-moves)");
  app.add_option("--offset", options.offset, "First byte of that file that may be overwritten");
  app.add_option("--bytes", options.bytes, "Bytes of one transfer, of one window (bare-windows), or to take");
  app.add_option("--total", options.total, "Bytes of all tensors together, or of all windows");
  app.add_option("--rounds", options.rounds, "Rounds");
  app.add_option("--count", options.count, "Tensors or operations");
  app.add_option("--jobs", options.jobs, "Jobs that the sessions belong to (crowd)");
  app.add_option("--cpu", options.cpu, "Processor of this process (lease-idle)");
  app.add_option("--peer-cpu", options.peer_cpu, "Processor of the futex peer (lease-idle)");
  app.add_option("--job", options.job, "Name of the job (scatter, take)");
  app.add_option("--guarantee", options.guarantee, "Guarantee of the job (scatter, take, lease-shell)");
  app.add_option("--quantile", options.quantile, "Which quantile of the times (lease-shell)");
  app.add_option("--threads", options.threads, "Threads that make and punch windows (bare-windows)");
  app.add_flag("--collapse", options.collapse, "Huge pages for these windows, by MADV_COLLAPSE");
  app.add_flag("--pool", options.pool, "Huge pages for these windows, of the kernel's pool");
  app.add_option("--spin", spin, "How the client waits")->check(CLI::IsMember({"auto", "always", "never"}));
  CLI11_PARSE(app, argc, argv);
  options.spin = spin == "always" ? 1 : spin == "never" ? 2 : 0;
  parts.at(part)(options);
  return 0;
}
