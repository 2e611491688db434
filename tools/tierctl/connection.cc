#include "tools/tierctl/connection.h"

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tier::tierctl {

Result<std::unique_ptr<control_client::Channel>> Connect(const DaemonOptions& options) {
  const char* token = options.token.empty() ? nullptr : options.token.c_str();
  if (!options.socket.empty()) return control_client::Channel::Connect(options.socket.c_str(), token);
  std::string tried;
  for (const std::string& control : control_client::SocketCandidates(nullptr)) {
    const std::string admin = control.substr(0, control.rfind('/') + 1) + "admin.sock";
    for (const std::string& path : {admin, control}) {
      auto channel = control_client::Channel::Connect(path.c_str(), token);
      if (channel || channel.error().code == Code::kVersion) return channel;
      tried += (tried.empty() ? "" : ", ") + path;
    }
  }
  return Fail(Code::kDisconnected,
              "no tierd answers (tried " + tried +
                  "); start one with `systemctl start tierd` or `tierd`, or name its socket with --socket");
}

int Explain(const Error& error) {
  fmt::print(stderr, "tierctl: {}: {}\n", CodeName(error.code), error.message);
  switch (error.code) {
    case Code::kNotFound: return kExitNotFound;
    case Code::kDisconnected:
    case Code::kVersion: return kExitUnreachable;
    case Code::kInvalid: return kExitUsage;
    case Code::kDenied:
    case Code::kAlreadyExists:
    case Code::kNoMemory:
    case Code::kNoSpace: return kExitRefused;
    default: return kExitFailure;
  }
}

}  // namespace tier::tierctl
