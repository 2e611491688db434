#include "tools/tierctl/connection.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "tools/tierctl/printable.h"

namespace tier::tierctl {

namespace {

// admin.sock beside every control.sock of the usual places; a path alone, or both sockets of a directory, where the
// option or TIERD_SOCKET names one. The data socket, which libtier takes too, stands for its directory.
control_client::Sockets SocketsOf(const std::string& option) {
  const char* const environment = std::getenv("TIERD_SOCKET");
  const std::string given = option.empty() && environment != nullptr ? environment : option;
  if (!given.empty()) {
    std::filesystem::path path(given);
    const bool is_data = path.filename() == "tierd.sock";
    if (is_data) path = path.has_parent_path() ? path.parent_path() : ".";
    std::error_code ignored;
    if (!is_data && !std::filesystem::is_directory(path, ignored)) return {.paths = {given}, .named = true};
    return {.paths = {(path / "admin.sock").string(), (path / "control.sock").string()}, .named = true};
  }
  const control_client::Sockets controls = control_client::SocketCandidates(nullptr);
  control_client::Sockets sockets{.paths = {}, .named = controls.named};
  for (const std::string& control : controls.paths) {
    sockets.paths.push_back(control.substr(0, control.rfind('/') + 1) + "admin.sock");
    sockets.paths.push_back(control);
  }
  return sockets;
}

}  // namespace

Result<std::unique_ptr<control_client::Channel>> Connect(const DaemonOptions& options,
                                                         std::optional<std::chrono::milliseconds> within) {
  const char* token = options.token.empty() ? nullptr : options.token.c_str();
  const control_client::Sockets sockets = SocketsOf(options.socket);
  auto each = control_client::kConnectTimeout;
  if (within) each = std::min(each, *within / std::max<int64_t>(std::ssize(sockets.paths), 1));
  return control_client::Channel::ConnectToFirst(sockets, token, each);
}

bool IsForAdministrators(const control_client::Channel& channel) {
  return std::filesystem::path(channel.socket()).filename() == "admin.sock";
}

Error AdministratorsOnly(const char* what) {
  return {Code::kDenied,
          fmt::format("only an administrator may {}: use the admin socket as root or a member of group tierd", what)};
}

bool SocketIsNamed(const DaemonOptions& options) { return SocketsOf(options.socket).named; }

int ExitCodeOf(Code code) {
  switch (code) {
    case Code::kOk: return kExitOk;
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

int Explain(const Error& error) {
  fmt::print(stderr, "tierctl: {}: {}\n", CodeName(error.code), Printable(error.message));
  return ExitCodeOf(error.code);
}

}  // namespace tier::tierctl
