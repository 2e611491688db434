// See entrances.h.
#include "daemon/session/entrances.h"

#include <sys/socket.h>

#include <utility>

#include "daemon/base/check.h"

namespace tier::session {

std::shared_ptr<Acceptor> Entrances::MakeAcceptor(std::optional<uint32_t> owner) const {
  return std::make_shared<Acceptor>(
      io_, AcceptorCalls{.on_client = [this, owner](auto socket) { calls_.admit(std::move(socket), owner); },
                         .has_room = calls_.has_room,
                         .on_warning = calls_.on_warning});
}

void Entrances::Start(proto::FileDescriptor listening) {
  TIER_CHECK(listening && ordinary_ == nullptr, "listening socket {}", listening.get());
  ordinary_ = MakeAcceptor(std::nullopt);
  ordinary_->Start(std::move(listening));
}

void Entrances::StartFor(uint32_t owner, proto::FileDescriptor listening) {
  TIER_CHECK(IsOwnerUid(owner) && !of_owners_.contains(owner), "the socket of owner {}", owner);
  if (stopped_) {  // Its opener has a descriptor of it too: clients would wait there for nothing.
    (void)::shutdown(listening.get(), SHUT_RDWR);
    return;
  }
  const auto acceptor = of_owners_.emplace(owner, MakeAcceptor(owner)).first->second;
  acceptor->Start(std::move(listening));
}

void Entrances::StopFor(uint32_t owner) {
  TIER_CHECK(IsOwnerUid(owner), "{} is no owner's uid", owner);
  const auto acceptor = of_owners_.extract(owner);
  if (!acceptor.empty()) acceptor.mapped()->End();
}

// The ordinary socket may be one that the service manager keeps open: its clients wait for the next daemon.
void Entrances::Stop() {
  stopped_ = true;
  if (ordinary_ != nullptr) ordinary_->Stop();
  for (const auto& [owner, acceptor] : std::exchange(of_owners_, {})) acceptor->End();
}

}  // namespace tier::session
