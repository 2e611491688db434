#include "daemon/metrics/http_endpoint.h"

#include <sys/socket.h>

#include <atomic>
#include <charconv>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "daemon/base/check.h"
#include "proto/start_thread.h"

namespace tier::metrics {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr uint32_t kHeaderBytesMax = 8 * 1024;
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

struct Address {
  std::string host;
  std::string port;
};

// "[::1]:9464" is "::1" and "9464".
std::optional<Address> SplitAddress(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  Address address{listen.substr(0, colon), listen.substr(colon + 1)};
  uint16_t number = 0;
  const char* const end = address.port.data() + address.port.size();
  const auto [rest, error] = std::from_chars(address.port.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  const bool bracketed = address.host.starts_with('[');
  if (bracketed && address.host.ends_with(']')) return Address{address.host.substr(1, colon - 2), address.port};
  if (bracketed || address.host.empty()) return std::nullopt;
  return address;
}

Result<tcp::endpoint> Resolve(asio::io_context& io, const std::string& listen) {
  const auto address = SplitAddress(listen);
  if (!address) return Fail(Code::kInvalid, "not ADDRESS:PORT");
  error_code error;
  // What looks like a number is no name to ask a server about.
  const bool numeric = address->host.find_first_not_of("0123456789.:") == std::string::npos;
  const auto flags = tcp::resolver::passive | tcp::resolver::numeric_service;
  const auto found = tcp::resolver(io).resolve(address->host, address->port,
                                               numeric ? flags | tcp::resolver::numeric_host : flags, error);
  if (error) return Fail(Code::kInvalid, error.message());
  TIER_CHECK(!found.empty(), "{} has no address", listen);
  return found.begin()->endpoint();
}

// Two sockets of one user may listen on one port, at different addresses or the same, while both allow it.
void AllowSharing(int socket, bool allow) {
  const int value = allow ? 1 : 0;
  (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &value, sizeof value);  // Without it the port is refused.
}

Result<tcp::acceptor> ListenAt(asio::io_context& io, const tcp::endpoint& endpoint, bool shares) {
  tcp::acceptor acceptor(io);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && shares) AllowSharing(acceptor.native_handle(), true);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) return Fail(Code::kInvalid, error.message());
  if (shares) AllowSharing(acceptor.native_handle(), false);
  return acceptor;
}

std::string Text(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(endpoint.port());
}

class Connection;
using Waiting = std::list<Connection*>;  // The one that has waited for its peer longest comes first.

// What all connections share. The endpoint's thread, once it runs.
struct Shared {
  HttpLimits limits;
  HttpEndpoint::Serve serve;
  Waiting waiting;
};

// Lives for as long as one of its operations is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, tcp::socket socket)
      : shared_(shared), stream_(std::move(socket)), place_(shared.waiting.insert(shared.waiting.end(), this)) {}
  ~Connection() { LeaveList(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Its operation ends, and with that the connection.
  void Close() {
    LeaveList();
    error_code ignored;
    stream_.socket().close(ignored);
  }

  void AwaitRequest(std::chrono::milliseconds limit) {
    parser_.emplace();
    parser_->header_limit(kHeaderBytesMax);
    stream_.expires_after(limit);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, size_t) { self->OnRequest(error); });
  }

 private:
  void LeaveList() {
    if (place_) shared_.waiting.erase(*place_);
    place_.reset();
  }

  void OnRequest(error_code error) {
    if (!place_) return;  // Closed for another.
    const bool is_http_error = error.category() == http::make_error_code(http::error::bad_method).category();
    if (error && is_http_error && error != http::error::end_of_stream && error != http::error::partial_message)
      return Answer({.status = 400, .type = "text/plain; charset=utf-8", .body = "this is no HTTP request\n"}, {});
    if (error) return;
    const auto& request = parser_->get();
    const http::verb verb = request.method();
    if (verb != http::verb::get && verb != http::verb::head)
      return Answer({.status = 405, .type = "text/plain; charset=utf-8", .body = "only GET and HEAD are served\n"}, {});
    const std::string_view target(request.target().data(), request.target().size());
    // A body would have to be read to come to the next request.
    const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) != 0;
    Answer(shared_.serve(target.substr(0, target.find('?'))),
           {.no_body = verb == http::verb::head, .keep = request.keep_alive() && !has_body});
  }

  struct Manner {
    bool no_body = false;
    bool keep = false;
  };
  void Answer(HttpPage page, Manner manner) {
    response_ = {};
    response_.version(11);
    response_.result(page.status);
    response_.set(http::field::content_type, page.type);
    if (page.status == 405) response_.set(http::field::allow, "GET, HEAD");
    response_.keep_alive(manner.keep);
    response_.content_length(page.body.size());
    if (!manner.no_body) response_.body() = std::move(page.body);
    stream_.expires_after(shared_.limits.answer_max);
    http::async_write(stream_, response_, [self = shared_from_this(), keep = manner.keep](error_code error, size_t) {
      self->OnAnswered(error, keep);
    });
  }

  void OnAnswered(error_code error, bool keep) {
    if (!place_ || error) return;
    if (!keep) {
      error_code ignored;
      stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      return;
    }
    shared_.waiting.splice(shared_.waiting.end(), shared_.waiting, *place_);
    AwaitRequest(shared_.limits.idle_max);
  }

  Shared& shared_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{2 * kHeaderBytesMax};
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<Waiting::iterator> place_;  // Nothing: it is to end.
};

}  // namespace

bool NamesAHost(const std::string& listen) {
  const auto address = SplitAddress(listen);
  error_code error;
  if (address) (void)asio::ip::make_address(address->host, error);
  return address && error;
}

struct HttpEndpoint::State {
  Shared shared;
  std::optional<tcp::endpoint> bound;  // Where it listens. With the next one, of the thread of Listen.
  int listening = -1;                  // The socket.
  std::string address;
  std::atomic<uint64_t> closed_for_others{0};
  asio::io_context io{1};  // Its operations own the connections, which leave the list above.
  tcp::acceptor acceptor{io};
  asio::steady_timer retry{io};
  // The thread goes on while it serves nowhere.
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  bool stopping = false;    // The endpoint's thread, as the next.
  uint64_t move_count = 0;  // What was begun before the last one is over.
  std::thread thread;

  // Takes the address. The acceptor is for the endpoint's thread.
  Result<tcp::acceptor> Bind(const tcp::endpoint& endpoint);
  // The socket that listened until now: its address is free at once, also for a next Move. The endpoint's thread, which
  // may be busy with a page, closes it when it takes over what comes after it, and so not before this call ends.
  void GiveUp(int given_up);
  void Accept();
  void OnAccepted(error_code error, tcp::socket socket);
  void TakeOver(std::optional<tcp::acceptor> next);
  void CloseAll();
  void Stop();
};

Result<tcp::acceptor> HttpEndpoint::State::Bind(const tcp::endpoint& endpoint) {
  const bool shares = bound && bound->port() == endpoint.port();
  if (shares) AllowSharing(listening, true);
  auto next = ListenAt(io, endpoint, shares);
  if (shares) AllowSharing(listening, false);
  if (!next) return next;
  error_code error;
  const tcp::endpoint there = next->local_endpoint(error);
  if (error) return Fail(Code::kInvalid, error.message());
  GiveUp(listening);
  bound = there;
  listening = next->native_handle();
  address = Text(there);
  return next;
}

void HttpEndpoint::State::GiveUp(int given_up) {
  if (given_up >= 0) (void)::shutdown(given_up, SHUT_RDWR);  // It fails where the system has ended the socket already.
}

void HttpEndpoint::State::Accept() {
  acceptor.async_accept([this, count = move_count](error_code error, tcp::socket socket) {
    if (count == move_count) OnAccepted(error, std::move(socket));
  });
}

void HttpEndpoint::State::OnAccepted(error_code error, tcp::socket socket) {
  // The socket was given up: what comes after it is on its way.
  if (stopping || error == asio::error::invalid_argument) return;
  const bool full = shared.waiting.size() >= shared.limits.connections_max;
  // Too many descriptors are open, or these connections are too many.
  if ((error || full) && !shared.waiting.empty()) {
    shared.waiting.front()->Close();
    closed_for_others.fetch_add(1, std::memory_order_relaxed);
  }
  if (!error) {
    std::make_shared<Connection>(shared, std::move(socket))->AwaitRequest(shared.limits.request_max);
    return Accept();
  }
  retry.expires_after(kAcceptRetry);
  retry.async_wait([this, count = move_count](error_code) {
    if (!stopping && count == move_count) Accept();
  });
}

void HttpEndpoint::State::TakeOver(std::optional<tcp::acceptor> next) {
  ++move_count;
  CloseAll();
  if (!next) return;
  acceptor = std::move(*next);
  Accept();
}

void HttpEndpoint::State::CloseAll() {
  error_code ignored;
  acceptor.close(ignored);
  retry.cancel();
  while (!shared.waiting.empty()) shared.waiting.front()->Close();
}

void HttpEndpoint::State::Stop() {
  if (!thread.joinable()) return;
  asio::post(io, [this] {
    stopping = true;
    work.reset();
    CloseAll();
  });
  thread.join();
}

HttpEndpoint::HttpEndpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpEndpoint::~HttpEndpoint() { state_->Stop(); }

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Listen(const std::string& listen, HttpLimits limits) {
  TIER_CHECK(limits.connections_max != 0, "no connection is served");
  auto state = std::make_unique<State>();
  state->shared.limits = limits;
  const auto endpoint = Resolve(state->io, listen);
  if (!endpoint) return std::unexpected(endpoint.error());
  auto acceptor = state->Bind(*endpoint);
  if (!acceptor) return std::unexpected(std::move(acceptor.error()));
  state->acceptor = std::move(*acceptor);
  return std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(state)));
}

Status HttpEndpoint::Start(Serve serve) {
  TIER_CHECK(!state_->thread.joinable(), "{} is served already", state_->address);
  state_->shared.serve = std::move(serve);
  state_->Accept();
  auto thread = proto::StartThread(
      "tierd-metrics", proto::BlockedSignals::kAsynchronous, [io = &state_->io] { io->run(); },
      proto::Urgency::kPrompt);  // The engine thread may wait for the end of its look.
  if (!thread) return std::unexpected(std::move(thread.error()));
  state_->thread = std::move(*thread);
  return {};
}

Status HttpEndpoint::Move(const std::string& listen) {
  TIER_CHECK(state_->thread.joinable(), "{} is not served yet", state_->address);
  std::optional<tcp::acceptor> next;
  if (listen.empty()) {
    state_->GiveUp(state_->listening);
    state_->bound.reset();
    state_->listening = -1;
    state_->address.clear();
  } else {
    if (NamesAHost(listen)) return Fail(Code::kInvalid, "only a start asks for the address of a name");
    const auto endpoint = Resolve(state_->io, listen);
    if (!endpoint) return std::unexpected(endpoint.error());
    if (state_->bound == *endpoint) return {};
    auto bound = state_->Bind(*endpoint);
    if (!bound) return std::unexpected(std::move(bound.error()));
    next = std::move(*bound);
  }
  asio::post(state_->io,
             [state = state_.get(), next = std::move(next)]() mutable { state->TakeOver(std::move(next)); });
  return {};
}

const std::string& HttpEndpoint::address() const { return state_->address; }
uint16_t HttpEndpoint::port() const { return state_->bound ? state_->bound->port() : 0; }
uint64_t HttpEndpoint::closed_for_others() const { return state_->closed_for_others.load(std::memory_order_relaxed); }

}  // namespace tier::metrics
