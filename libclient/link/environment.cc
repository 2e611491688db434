#include "libclient/link/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <string_view>

#include "proto/handshake.h"
#include "proto/socket_places.h"

namespace tier::link {
namespace {

std::string ValueOf(const Lookup& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string() : std::string(value);
}

template <typename T>
void FillNumber(const Lookup& environment, const char* name, T open_value, T& field) {
  if (field != open_value) return;
  const std::string text = ValueOf(environment, name);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) field = value;
}

// Job names are [A-Za-z0-9._:/@-]+: everything else becomes '-'.
std::string AsJobName(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::strchr("._:/@-", c) == nullptr) c = '-';
  }
  if (text.size() >= proto::kJobNameSize) text.resize(proto::kJobNameSize - 1);
  return text;
}

struct Launch {
  std::string name;
  std::string text;  // What all ranks of this launch share, and those of no other launch of this user.
};

Launch FindLaunch(const Lookup& environment) {
  if (const std::string run = ValueOf(environment, "TORCHELASTIC_RUN_ID"); !run.empty()) {
    const std::string restart = ValueOf(environment, "TORCHELASTIC_RESTART_COUNT");
    const std::string port = ValueOf(environment, "MASTER_PORT");
    return {"torchrun-" + run + "." + port + "." + restart,
            "torchrun\n" + run + "\n" + ValueOf(environment, "MASTER_ADDR") + "\n" + port + "\n" + restart};
  }
  if (const std::string job = ValueOf(environment, "SLURM_JOB_ID"); !job.empty()) {
    const std::string step = ValueOf(environment, "SLURM_STEP_ID");
    const std::string restart = ValueOf(environment, "SLURM_RESTART_COUNT");
    return {"slurm-" + job + "." + step + (restart.empty() ? "" : "." + restart),
            "slurm\n" + job + "\n" + step + "\n" + restart};
  }
  return {};
}

}  // namespace

std::vector<std::string> SocketCandidates(const std::string& given, const Lookup& environment) {
  const std::string named = given.empty() ? ValueOf(environment, "TIERD_SOCKET") : given;
  if (!named.empty()) return {proto::SocketIn(named, "tierd.sock")};
  std::vector<std::string> candidates = proto::SocketDirectories(environment("XDG_RUNTIME_DIR"), ::geteuid());
  for (std::string& candidate : candidates) candidate += "/tierd.sock";
  return candidates;
}

JobIdentity CompleteIdentity(JobIdentity given, const Lookup& environment) {
  const bool asked = given.rank != -1 || given.world_size != 0;
  FillNumber(environment, "RANK", -1, given.rank);
  FillNumber(environment, "WORLD_SIZE", 0, given.world_size);
  // Half a launcher's environment is none; what the caller asked for is the daemon's to judge.
  const bool complete = given.rank >= 0 && given.rank < given.world_size;
  if (!asked && !complete) given.world_size = 0, given.rank = -1;
  if (given.token.empty()) given.token = ValueOf(environment, "TIERD_JOB_TOKEN");
  const Launch launch = FindLaunch(environment);
  if (given.name.empty()) given.name = AsJobName(launch.name);
  if (given.token.empty()) given.launch = launch.text;
  return given;
}

}  // namespace tier::link
