#include "tools/tierctl/socket_verbs.h"

#include <cstdio>

#include <fmt/format.h>

#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

}  // namespace

std::string UserText(uint32_t uid, const std::string& owner) { return owner.empty() ? std::to_string(uid) : owner; }

std::string RenderSockets(const v1::ListSocketsResponse& answer, const OutputOptions& output) {
  const auto& sockets = answer.sockets();
  return RenderTable(
      {
          MakeColumn("OWNER", sockets, false, [](const v1::OwnerSocket& socket) { return socket.owner(); }),
          MakeColumn("UID", sockets, true, [](const v1::OwnerSocket& socket) { return std::to_string(socket.uid()); }),
          MakeColumn("STATE", sockets, false,
                     [](const v1::OwnerSocket& socket) { return std::string(socket.open() ? "open" : "closed"); }),
          MakeColumn("DIRECTORY", sockets, false, [](const v1::OwnerSocket& socket) { return socket.directory(); }),
      },
      output);
}

int OpenSocket(const DaemonOptions& options, const std::string& owner) {
  v1::OpenSocketRequest request;
  request.set_owner(owner);
  return Ask<v1::OpenSocketResponse>(options, &Stub::OpenSocket, request, [&](const v1::OpenSocketResponse& answer) {
    const v1::OwnerSocket& socket = answer.socket();
    options.output.json ? PrintJson(ToJson(socket))
                        : fmt::print("who connects in {} is owner {} (uid {})\n", Printable(socket.directory()),
                                     Printable(socket.owner()), socket.uid());
    return kExitOk;
  });
}

int CloseSocket(const DaemonOptions& options, const std::string& owner, bool purge) {
  v1::CloseSocketRequest request;
  request.set_owner(owner);
  request.set_purge(purge);
  return Ask<v1::CloseSocketResponse>(options, &Stub::CloseSocket, request, [&](const v1::CloseSocketResponse&) {
    options.output.json
        ? PrintJson({{"closed", owner}, {"purged", purge}})
        : fmt::print("closed the socket of owner {}{}\n", Printable(owner), purge ? ", and gave the name up" : "");
    return kExitOk;
  });
}

int ListSockets(const DaemonOptions& options) {
  return Ask<v1::ListSocketsResponse>(
      options, &Stub::ListSockets, v1::ListSocketsRequest(), [&](const v1::ListSocketsResponse& answer) {
        options.output.json ? PrintJson(ToJson(answer)) : fmt::print("{}", RenderSockets(answer, options.output));
        return kExitOk;
      });
}

}  // namespace tier::tierctl
