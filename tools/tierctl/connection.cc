#include "tools/tierctl/connection.h"

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tier::tierctl {

Result<std::unique_ptr<control_client::Channel>> Connect(const DaemonOptions& options) {
  const char* token = options.token.empty() ? nullptr : options.token.c_str();
  if (!options.socket.empty()) return control_client::Channel::Connect(options.socket.c_str(), token);
  std::vector<std::string> sockets;
  for (const std::string& control : control_client::SocketCandidates(nullptr)) {
    sockets.push_back(control.substr(0, control.rfind('/') + 1) + "admin.sock");
    sockets.push_back(control);
  }
  return control_client::Channel::ConnectToFirst(sockets, token);
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
