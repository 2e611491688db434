// Who listens for the owners of sockets in the running daemon: the listener, on the main thread, and gRPC.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "daemon/control/grpc_server.h"
#include "daemon/session/listener.h"
#include "daemon/session/owner_sockets.h"

namespace tier {

struct OwnerSocketParts {
  boost::asio::io_context& io;  // Of the main thread.
  const std::unique_ptr<session::Listener>& listener;
  const std::unique_ptr<control::GrpcServer>& grpc;  // Null at the end: then only calls that stop may come.
};

// REQUIRES: `parts` outlive the calls.
session::OwnerSocketCalls MakeOwnerSocketCalls(const OwnerSocketParts& parts);

}  // namespace tier
