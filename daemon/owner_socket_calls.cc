#include "daemon/owner_socket_calls.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace tier {

namespace asio = boost::asio;

session::OwnerSocketCalls MakeOwnerSocketCalls(const OwnerSocketParts& parts) {
  session::OwnerSocketCalls calls;
  calls.listen = [parts](uint32_t uid, proto::FileDescriptor listening) {
    auto socket = std::make_shared<proto::FileDescriptor>(std::move(listening));
    asio::post(parts.io, [parts, uid, socket] { parts.listener->StartFor(uid, std::move(*socket)); });
  };
  calls.stop = [parts](uint32_t uid) { asio::post(parts.io, [parts, uid] { parts.listener->StopFor(uid); }); };
  calls.listen_control = [parts](uint32_t uid, const std::string& path) { return parts.grpc->ListenFor(uid, path); };
  calls.stop_control = [parts](uint32_t uid) {
    if (parts.grpc) parts.grpc->StopFor(uid);
  };
  calls.end_control = [parts](uint32_t uid) {
    if (parts.grpc) parts.grpc->EndFor(uid);
  };
  return calls;
}

}  // namespace tier
