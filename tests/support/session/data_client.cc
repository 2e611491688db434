#include "tests/support/session/data_client.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include "daemon/base/check.h"

namespace tier::session::testing {

proto::PacketKind IncomingPacket::kind() const {
  return static_cast<proto::PacketKind>(As<proto::PacketHeader>().kind);
}

proto::Hello MakeHello(const std::string& job, const std::string& token) {
  proto::Hello hello{};
  hello.header = {.magic = proto::kHandshakeMagic,
                  .kind = static_cast<uint16_t>(proto::PacketKind::kHello),
                  .version = proto::kProtocolVersion,
                  .size = sizeof(hello)};
  hello.version_min = proto::kProtocolVersionMin;
  hello.rank = -1;
  hello.pid = ::getpid();
  std::copy_n(job.data(), job.size(), hello.job);
  std::copy_n(token.data(), token.size(), hello.token);
  std::strcpy(hello.client, "test");
  return hello;
}

int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

DataClient::DataClient(const std::string& socket_path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  TIER_CHECK(socket_path.size() < sizeof(address.sun_path), "{}", socket_path);
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  const int connected = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  TIER_CHECK(connected == 0, "connect to {}: errno {}", socket_path, errno);
}

bool DataClient::SendBytes(std::span<const std::byte> bytes, std::span<const int> descriptors) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(64 * sizeof(int))> control{};
  iovec part = {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

void DataClient::SendGoodbye() {
  proto::Goodbye goodbye{};
  goodbye.header = {.magic = proto::kHandshakeMagic,
                    .kind = static_cast<uint16_t>(proto::PacketKind::kGoodbye),
                    .version = proto::kProtocolVersion,
                    .size = sizeof(goodbye)};
  (void)Send(goodbye);
}

IncomingPacket DataClient::Receive(int wait_ms) {
  IncomingPacket packet;
  pollfd poll = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const int ready = ::poll(&poll, 1, wait_ms);
  TIER_CHECK(ready == 1, "nothing came within {} ms", wait_ms);
  packet.bytes.resize(8192);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(16 * sizeof(int))> control{};
  iovec part = {.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  packet.closed = received <= 0;
  packet.bytes.resize(received > 0 ? static_cast<size_t>(received) : 0);
  if (received < 0) return packet;  // Without anything in `control`.
  for (cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr; rights = CMSG_NXTHDR(&message, rights)) {
    for (size_t i = 0; i < (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(fd));
      packet.descriptors.emplace_back(fd);
    }
  }
  return packet;
}

proto::Welcome DataClient::ReceiveRefusal() {
  const IncomingPacket packet = Receive();
  TIER_CHECK(!packet.closed && packet.kind() == proto::PacketKind::kWelcome && packet.descriptors.empty(),
             "closed {} descriptors {}", packet.closed, packet.descriptors.size());
  TIER_CHECK(Receive().closed, "more came behind a refusal");
  return packet.As<proto::Welcome>();
}

proto::Welcome DataClient::Attach(const proto::Hello& hello) {
  (void)Send(hello);
  IncomingPacket packet = Receive();
  if (!packet.closed && packet.kind() == proto::PacketKind::kProcessChallenge) {
    auto proof = packet.As<proto::ProcessPacket>();
    proof.header.kind = static_cast<uint16_t>(proto::PacketKind::kProcessProof);
    (void)Send(proof);
    packet = Receive();
  }
  const auto welcome = packet.As<proto::Welcome>();
  if (packet.closed || welcome.code != 0) return welcome;
  TIER_CHECK(packet.descriptors.size() == 3, "descriptors {}", packet.descriptors.size());
  region_ = std::move(packet.descriptors[0]);
  page_file_ = std::move(packet.descriptors[1]);
  doorbell_ = std::move(packet.descriptors[2]);
  page_ = proto::Mapping::Map(page_file_.get(), 0, kPageSize, proto::Access::kReadOnly).value();
  ring_ = std::make_unique<RingClient>(region_.get());
  return welcome;
}

uint32_t DataClient::engine_sleeping() const {
  return reinterpret_cast<const proto::EnginePage*>(page_.data())->sleeping.load(std::memory_order_relaxed);
}

void DataClient::Ring() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool waiting = ring_->request_control().consumer_waiting.load(std::memory_order_relaxed) != 0;
  if (!proto::NeedsBell(engine_sleeping(), waiting, false)) return;
  const uint64_t one = 1;
  (void)!::write(doorbell_.get(), &one, sizeof(one));
}

std::vector<ReceivedCompletion> DataClient::WaitForCompletions(size_t count) {
  std::vector<ReceivedCompletion> all;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  while (all.size() < count) {
    auto& control = ring_->completion_control();
    const uint32_t sequence = control.wake_sequence.load(std::memory_order_acquire);
    control.consumer_waiting.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto some = ring_->Receive();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
    if (!some.empty()) continue;
    TIER_CHECK(std::chrono::steady_clock::now() < deadline, "{} of {} answers within {} ms", all.size(), count,
               kWaitMs);
    const timespec wait = {.tv_sec = 0, .tv_nsec = 100'000'000};
    ::syscall(SYS_futex, &control.wake_sequence, FUTEX_WAIT, sequence, &wait, nullptr, 0);
  }
  return all;
}

}  // namespace tier::session::testing
