// One gRPC channel to a daemon's control socket. Thread-safe: gRPC's stub is, and nothing else is kept.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "proto/result.h"
#include "tier/v1/control.grpc.pb.h"

namespace tier::control_client {

inline constexpr std::chrono::milliseconds kConnectTimeout{5'000};
inline constexpr std::chrono::milliseconds kCallTimeout{10'000};

struct Sockets {
  std::vector<std::string> paths;  // To try in turn, most specific first.
  bool named = false;              // The caller chose them, by argument or environment.
};

// `socket` alone if given, else $TIERD_SOCKET alone; control.sock beside it if it is tierd.sock, or in it if it is a
// directory. Without either those of the runtime directories.
Sockets SocketCandidates(const char* socket);

// The code that the daemon sent beside a gRPC status (metadata tier-code), or the nearest for gRPC's own failures:
// TIMEOUT for a call that was turned away, as too many ran (crowded.h).
Error ToError(const grpc::Status& status, const grpc::ClientContext& context, const std::string& socket);

// Whether this user may connect to a socket: NOT_FOUND where there is none, DENIED without the right. Whether a daemon
// listens on it is not asked.
Status Reach(const std::string& path);

struct SocketFailure {
  std::string socket;
  Error error;
};
// One error for all sockets tried: each with its reason, and the most telling code: TIMEOUT, DENIED or DISCONNECTED;
// and what to do, which is to name a socket only where none was `named`.
Error Summary(std::span<const SocketFailure> failures, bool named);

class Channel {
 public:
  static Result<std::unique_ptr<Channel>> Connect(const char* socket, const char* token);
  // The first socket on which a daemon answers: a stale one does not hide those behind it. Fails as Summary says, or
  // with what a daemon answered.
  static Result<std::unique_ptr<Channel>> ConnectToFirst(const Sockets& sockets, const char* token,
                                                         std::chrono::milliseconds timeout = kConnectTimeout);

  // Calls `method` of the stub with a deadline and the token. Until the deadline the call is made again where the
  // daemon's gRPC turned it away; never where tierd refused it.
  template <typename Method, typename RequestMessage, typename ResponseMessage>
  Status Call(Method method, const RequestMessage& request, ResponseMessage* response,
              std::chrono::milliseconds timeout = kCallTimeout) const {
    return CallInTime(timeout,
                      [&](grpc::ClientContext* context) { return (stub_.get()->*method)(context, request, response); })
        .status;
  }
  // Calls for page after page of a list and puts them together in `whole`, until there is none or `more(whole,
  // &request)`, which may change the size of the next page, says that there are enough.
  template <typename Method, typename RequestMessage, typename ResponseMessage, typename More>
  Status CallPages(Method method, RequestMessage request, ResponseMessage* whole, More&& more) const {
    do {
      ResponseMessage page;
      if (auto called = Call(method, request, &page); !called) return called;
      const bool is_last = page.next_page_token().empty() || page.next_page_token() == request.page_token();
      request.set_page_token(page.next_page_token());
      whole->MergeFrom(page);
      if (is_last) whole->clear_next_page_token();
    } while (!whole->next_page_token().empty() && more(*whole, &request));
    return {};
  }
  template <typename Method, typename RequestMessage, typename ResponseMessage>
  Status CallPages(Method method, const RequestMessage& request, ResponseMessage* whole) const {
    return CallPages(method, request, whole, [](const ResponseMessage&, RequestMessage*) { return true; });
  }
  void Prepare(grpc::ClientContext* context) const;
  v1::ControlService::Stub& stub() const { return *stub_; }
  const std::string& socket() const { return socket_; }

 private:
  struct Outcome {
    Status status;
    bool turned_away = false;  // TIMEOUT: a daemon is there, and had no room for the call.
  };
  Outcome CallInTime(std::chrono::milliseconds timeout,
                     const std::function<grpc::Status(grpc::ClientContext*)>& call) const;
  void Open(const std::string& path, const std::string& token);

  std::string socket_;
  std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ControlService::Stub> stub_;
};

}  // namespace tier::control_client
