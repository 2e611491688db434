#include "tools/tierctl/connection.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tier::tierctl {

namespace {

// With a socket named already, the advice to name one is none.
Error WithoutSocketAdvice(Error error) {
  constexpr std::string_view kAdvice = ", or name the socket";
  if (error.message.ends_with(kAdvice)) error.message.resize(error.message.size() - kAdvice.size());
  return error;
}

}  // namespace

Result<std::unique_ptr<control_client::Channel>> Connect(const DaemonOptions& options) {
  const char* token = options.token.empty() ? nullptr : options.token.c_str();
  std::vector<std::string> sockets;
  if (!options.socket.empty()) {
    sockets = control_client::SocketCandidates(options.socket.c_str());
    const std::filesystem::path directory(options.socket);
    std::error_code ignored;
    if (std::filesystem::is_directory(directory, ignored))
      sockets = {(directory / "admin.sock").string(), (directory / "control.sock").string()};
    auto channel = control_client::Channel::ConnectToFirst(sockets, token);
    if (!channel) return std::unexpected(WithoutSocketAdvice(std::move(channel.error())));
    return channel;
  }
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
