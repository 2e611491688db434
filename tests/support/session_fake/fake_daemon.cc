// The fake's socket side and its switches. Requests: fake_engine.cc.
#include "tests/support/session_fake/fake_daemon.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "tests/support/session_fake/fake_client.h"

namespace tier::session_fake {
namespace {

constexpr uint64_t kEpoch = 77;
constexpr uint64_t kNonce = 0x6e6f6e6365;
const std::string kToken(64, 'a');

void Require(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

template <typename T>
T Must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

template <size_t N>
void WriteText(const std::string& text, char (&target)[N]) {
  std::memcpy(target, text.data(), std::min(text.size(), N - 1));
}

proto::PacketHeader HeaderOf(proto::PacketKind kind, uint32_t size, uint16_t version = proto::kProtocolVersion) {
  return {proto::kHandshakeMagic, static_cast<uint16_t>(kind), version, size};
}

}  // namespace

FakeDaemon::FakeDaemon(const FakeOptions& options) : options_(options) {
  char pattern[] = "/tmp/tier-fake-XXXXXX";
  Require(::mkdtemp(pattern) != nullptr, "mkdtemp");
  directory_ = pattern;
  socket_path_ = directory_ + "/tierd.sock";
  listener_ = proto::FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path_.data(), socket_path_.size());
  Require(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
  Require(::listen(listener_.get(), 128) == 0, "listen");
  wake_ = proto::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  engine_page_fd_ = Must(proto::CreateMemoryFile("fake-engine", kPageSize));
  engine_page_ = Must(proto::Mapping::Map(engine_page_fd_.get(), 0, kPageSize, proto::Access::kReadWrite));
  auto* const page = reinterpret_cast<proto::EnginePage*>(engine_page_.data());
  page->magic = proto::kEngineMagic;
  page->epoch = kEpoch;
  page->sleeping.store(proto::kSleeping);
  for (uint32_t i = 0; i < options_.windows; ++i) {
    windows_.push_back(Must(proto::CreateMemoryFile("fake-window", options_.window_size)));
    for (uint64_t at = 0; at < options_.window_size; at += kBlockSize) {
      free_blocks_.push_back(i * options_.window_size + at);
    }
  }
  // Taken from the back: first to last, unless scattered.
  if (!options_.scatter) std::reverse(free_blocks_.begin(), free_blocks_.end());
  thread_ = std::thread([this] { Serve(); });
}

FakeDaemon::~FakeDaemon() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  std::filesystem::remove_all(directory_);
}

void FakeDaemon::Wake() {
  const uint64_t one = 1;
  Require(::write(wake_.get(), &one, sizeof one) == sizeof one, "write");
}

void FakeDaemon::Serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    std::vector<Client*> clients;
    for (const auto& client : clients_) {
      entries.push_back({client->socket.get(), POLLIN, 0});
      entries.push_back({client->doorbell.get(), POLLIN, 0});
      clients.push_back(client.get());
    }
    lock.unlock();
    ::poll(entries.data(), entries.size(), -1);
    lock.lock();
    uint64_t drained;
    if (entries[0].revents != 0) Require(::read(wake_.get(), &drained, sizeof drained) > 0, "read");
    if (entries[1].revents != 0) Accept();
    for (size_t i = 0; i < clients.size(); ++i) {
      Client& client = *clients[i];
      if (entries[2 + 2 * i].revents != 0 && !ReadPacket(client)) client.gone = true;
      if (!client.gone && client.greeted) TakeRequests(client);
    }
    clients_.remove_if([](const auto& client) { return client->gone; });
    served_.notify_all();
  }
}

void FakeDaemon::Accept() {
  auto client = std::make_unique<Client>();
  client->socket = proto::FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  client->doorbell = proto::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  clients_.push_back(std::move(client));
}

bool FakeDaemon::ReadPacket(Client& client) {
  std::array<std::byte, 2048> bytes;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t got = ::recvmsg(client.socket.get(), &message, MSG_DONTWAIT);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  if ((message.msg_flags & MSG_CTRUNC) != 0) counters_.descriptors++;
  const auto& header = *reinterpret_cast<const proto::PacketHeader*>(bytes.data());
  switch (static_cast<proto::PacketKind>(header.kind)) {
    case proto::PacketKind::kHello:
      client.has_token = reinterpret_cast<const proto::Hello*>(bytes.data())->token == kToken;
      return Challenge(client);
    case proto::PacketKind::kProcessProof:
      if (reinterpret_cast<const proto::ProcessPacket*>(bytes.data())->nonce != kNonce) return false;
      Greet(client);
      return true;
    case proto::PacketKind::kGoodbye: counters_.goodbyes++; return false;
    case proto::PacketKind::kWindowReturned: counters_.windows_returned++; return true;
    default: return false;
  }
}

bool FakeDaemon::Challenge(Client& client) {
  if (!options_.challenges) {
    Greet(client);
    return true;
  }
  const proto::ProcessPacket challenge{
      HeaderOf(proto::PacketKind::kProcessChallenge, sizeof challenge, options_.protocol_version), kNonce};
  SendTo(client, &challenge, sizeof challenge);
  return true;
}

void FakeDaemon::Greet(Client& client) {
  if (options_.silent) return;
  proto::Welcome welcome{};
  welcome.header = HeaderOf(proto::PacketKind::kWelcome, sizeof welcome, options_.protocol_version);
  const bool lacks_token = options_.wants_token && !client.has_token && std::exchange(job_is_open_, true);
  if (options_.refusal != Code::kOk || lacks_token) {
    welcome.code = static_cast<uint16_t>(lacks_token ? Code::kAlreadyExists : options_.refusal);
    WriteText(lacks_token ? "the job is live" : "the fake refuses everybody", welcome.message);
    SendTo(client, &welcome, sizeof welcome);
    return;
  }
  static std::atomic<uint64_t> sessions{0};
  welcome.epoch = kEpoch;
  welcome.session = ++sessions;
  welcome.window_size = options_.window_size;
  welcome.address_space_size = 2 * options_.windows * options_.window_size;
  welcome.windows_max = options_.windows;
  welcome.request_timeout_ms = options_.request_timeout_ms;
  welcome.session_region_size = proto::kSessionRegionSize;
  WriteText("fake-job", welcome.job_name);
  WriteText(kToken, welcome.token);
  WriteText("fake 0", welcome.daemon);
  if (options_.spoil_welcome) options_.spoil_welcome(welcome);
  client.MakeRegion(kEpoch, welcome.session);
  const int fds[3] = {client.region_fd.get(), engine_page_fd_.get(), client.doorbell.get()};
  client.SendWith(&welcome, sizeof welcome, fds);
  client.greeted = true;
  if (!options_.windows_late) SendWindowsTo(client);
}

void FakeDaemon::SendWindowsTo(Client& client) {
  for (uint32_t i = 0; i < options_.windows; ++i) {
    proto::WindowPacket packet{};
    packet.header = HeaderOf(proto::PacketKind::kWindow, sizeof packet);
    packet.window = i;
    packet.page_size = options_.page_size;
    packet.size = options_.window_size;
    packet.place = i * options_.window_size;
    if (options_.spoil_window) options_.spoil_window(packet);
    SendTo(client, &packet, sizeof packet, windows_[i].get());
  }
}

void FakeDaemon::SendTo(Client& client, const void* message, uint32_t size, int fd) {
  client.SendWith(message, size, fd < 0 ? std::span<const int>() : std::span<const int>(&fd, 1));
}

void FakeDaemon::Hold(proto::Op op, uint32_t skip) {
  std::lock_guard lock(mutex_);
  holding_[op] = skip;
}

void FakeDaemon::Resume() {
  {
    std::lock_guard lock(mutex_);
    holding_.clear();
    resuming_ = true;
    for (const auto& client : clients_) {
      auto waiting = std::exchange(client->held, {});
      held_count_ -= waiting.size();
      for (auto& request : waiting) HandleRequest(*client, {request.header, request.items, request.text});
      if (!waiting.empty()) client->PublishStaged();
    }
    resuming_ = false;
  }
  Wake();
}

void FakeDaemon::Refuse(proto::Op op, Code code, std::string detail, uint32_t skip) {
  std::lock_guard lock(mutex_);
  refusals_[op] = {{code, 0, {}, std::move(detail)}, skip};
}

void FakeDaemon::RewriteBeforeAcquires(uint64_t tensor, std::vector<std::byte> content, uint32_t skip, uint32_t count) {
  std::lock_guard lock(mutex_);
  rewriting_ = {tensor, std::move(content), skip, count};
}

void FakeDaemon::ReplaceBeforeAcquires(uint64_t tensor, std::vector<std::byte> content, uint32_t skip) {
  std::lock_guard lock(mutex_);
  rewriting_ = {tensor, std::move(content), skip, 1, true};
}

void FakeDaemon::Distort(std::function<void(std::vector<proto::CompletionEntry>&)> distortion) {
  std::lock_guard lock(mutex_);
  distortion_ = std::move(distortion);
}

void FakeDaemon::SaySleeping(uint32_t sleeping) {
  reinterpret_cast<proto::EnginePage*>(engine_page_.data())->sleeping.store(sleeping);
}

void FakeDaemon::SendWindows() {
  std::lock_guard lock(mutex_);
  for (const auto& client : clients_) SendWindowsTo(*client);
}

void FakeDaemon::AskBack(uint32_t window) {
  std::lock_guard lock(mutex_);
  const proto::WindowReturnPacket packet{HeaderOf(proto::PacketKind::kWindowReturn, sizeof packet), window, 0};
  for (const auto& client : clients_) SendTo(*client, &packet, sizeof packet);
}

void FakeDaemon::EndSessions(Code code, const std::string& reason) {
  std::lock_guard lock(mutex_);
  proto::SessionEnd end{};
  end.header = HeaderOf(proto::PacketKind::kSessionEnd, sizeof end);
  end.code = static_cast<uint16_t>(code);
  WriteText(reason, end.message);
  for (const auto& client : clients_) SendTo(*client, &end, sizeof end);
}

void FakeDaemon::HangUp() {
  {
    std::lock_guard lock(mutex_);
    for (const auto& client : clients_) ::shutdown(client->socket.get(), SHUT_RDWR);
  }
  Wake();
}

void FakeDaemon::BreakTail() {
  std::lock_guard lock(mutex_);
  for (const auto& client : clients_) client->BreakTail();
}

void FakeDaemon::Await(const std::function<bool()>& predicate) {
  std::unique_lock lock(mutex_);
  served_.wait(lock, predicate);
}

}  // namespace tier::session_fake
