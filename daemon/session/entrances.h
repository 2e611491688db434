// Entrances: the listening sockets of the data path: that of every user, and those of owners, whose clients are all one
// user.
//
// Socket thread. The calls are made there too. Invariant: once it is stopped no socket of an owner listens, also one
// that is given to it later.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/session/acceptor.h"
#include "daemon/session/owner_table.h"
#include "proto/mapping.h"

namespace tier::session {

struct EntranceCalls {
  // A client has come: by the socket of this owner, or by that of every user.
  std::function<void(proto::FileDescriptor socket, std::optional<uint32_t> owner)> admit;
  std::function<bool()> has_room;  // AcceptorCalls has this and the next.
  std::function<void(const std::string&)> on_warning;
};

class Entrances {
 public:
  // REQUIRES: what the calls need outlives this.
  Entrances(boost::asio::io_context& io, EntranceCalls calls) : io_(io), calls_(std::move(calls)) {}
  ~Entrances() { Stop(); }
  Entrances(const Entrances&) = delete;
  Entrances& operator=(const Entrances&) = delete;

  void Start(proto::FileDescriptor listening);
  // REQUIRES: IsOwnerUid(owner), and it has no socket here.
  void StartFor(uint32_t owner, proto::FileDescriptor listening);
  // Nothing connects there any more. Does nothing where it was not started.
  void StopFor(uint32_t owner);
  void Stop();

 private:
  std::shared_ptr<Acceptor> MakeAcceptor(std::optional<uint32_t> owner) const;

  boost::asio::io_context& io_;
  const EntranceCalls calls_;
  std::shared_ptr<Acceptor> ordinary_;                       // Null before Start.
  std::map<uint32_t, std::shared_ptr<Acceptor>> of_owners_;  // By uid; at most kOwnersMax.
  bool stopped_ = false;
};

}  // namespace tier::session
