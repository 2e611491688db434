// tierd-smart: reads the SMART log page of the NVMe devices behind the configured paths, and writes what it found for
// the daemon. Ends with 0 when the file was written, whatever the devices said; 1: it could not be; 2, 78: as tierd.
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "daemon/config/config.h"
#include "daemon/storage/smart_file.h"
#include "tools/smart/look.h"

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kConfig = 78;
constexpr char kSystemData[] = "/var/lib/tierd";

struct Arguments {
  std::string config = "/etc/tierd/tierd.toml";
  std::string out;
};

void Warn(const std::string& sentence) { fmt::print(stderr, "tierd-smart: {}\n", sentence); }

std::vector<std::string> PathsOf(const tier::config::Config& config) {
  if (config.ssd.devices == std::vector<std::string>{"none"}) return {};
  if (!config.ssd.devices.empty()) return config.ssd.devices;
  const std::string& directory = config.daemon.data_directory;
  return {(directory.empty() ? kSystemData : directory) + "/tier.ssd"};
}

// What the last run wrote; empty: there is none, or it is of no use.
tier::storage::SmartReport ReadBefore(const std::string& file) {
  const auto before = tier::storage::ReadSmartFile(file);
  if (before) return *before;
  if (before.error().code != tier::Code::kNotFound) Warn("the last report is left out: " + before.error().message);
  return {};
}

int Run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Reads the SMART log page of tierd's NVMe devices, and writes what it says for the daemon.",
               "tierd-smart");
  app.set_version_flag("--version", "tierd-smart " TIER_VERSION, "Print the version and end");
  app.add_option("--config", arguments.config, "The daemon's configuration: its devices, and where the file is")
      ->type_name("FILE");
  app.add_option("--out", arguments.out, "The file to write, in place of ssd.smart_file")->type_name("FILE");
  app.footer("Only root may ask a device. tierd-smart.timer runs it every 10 minutes. Manual: tierd-smart(8).");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const auto config = tier::config::LoadConfig(arguments.config);
  if (!config) {
    Warn(config.error().message);
    return kConfig;
  }
  const std::string out = arguments.out.empty() ? config->ssd.smart_file : arguments.out;
  if (out.empty()) return 0;  // Configured so.
  if (const auto ours = tier::storage::CheckSmartTarget(out); !ours && ours.error().code == tier::Code::kInvalid) {
    Warn(ours.error().message);
    return kConfig;
  }
  const auto report =
      tier::smart::Look(PathsOf(*config), ReadBefore(out), std::time(nullptr), tier::smart::PartsOfSystem(Warn));
  const auto written = tier::storage::WriteSmartFile(out, report);
  if (written) return 0;
  Warn(written.error().message);
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& failure) {
    Warn(failure.what());
    return kFailed;
  }
}
