// The relay between a client that can send descriptors and gRPC, which must not meet them.
#include "daemon/control/stream_relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/proto/thread_shortage.h"
#include "tests/support/session/hostile_descriptor.h"

namespace tier::control {
namespace {

using session::testing::HostileDescriptor;
using session::testing::HostileKind;
using session::testing::kHostileWaitMs;
using session::testing::OpenDescriptors;

struct Ends {
  proto::FileDescriptor client;  // The client's own; blocking.
  proto::FileDescriptor accepted;
};

Ends Connected() {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return {proto::FileDescriptor(pair[0]), proto::FileDescriptor(pair[1])};
}

void SendAll(int socket, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = ::send(socket, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent > 0) at += static_cast<size_t>(sent);
    pollfd room = {.fd = socket, .events = POLLOUT, .revents = 0};
    if (sent < 0 && ::poll(&room, 1, kHostileWaitMs) != 1) return;
  }
}

// Until `size` bytes have come or the other side has ended.
std::string ReceiveAll(int socket, size_t size) {
  std::string all;
  while (all.size() < size) {
    pollfd entry = {.fd = socket, .events = POLLIN, .revents = 0};
    char bytes[4096];
    if (::poll(&entry, 1, kHostileWaitMs) != 1) return all + " and then nothing";
    const ssize_t got = ::recv(socket, bytes, std::min(sizeof(bytes), size - all.size()), MSG_DONTWAIT);
    if (got <= 0) break;
    all.append(bytes, static_cast<size_t>(got));
  }
  return all;
}

std::string Pattern(size_t size) {
  std::string bytes(size, 0);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

TEST(StreamRelay, PassesBytesBothWays) {
  const auto relay = StreamRelay::Start().value();
  Ends ends = Connected();
  const auto server = relay->Add(&ends.accepted);
  ASSERT_TRUE(server);
  EXPECT_FALSE(ends.accepted);
  const std::string bytes = Pattern(1 << 20);  // More than both sockets hold.
  std::thread sender([&] { SendAll(ends.client.get(), bytes); });
  EXPECT_TRUE(ReceiveAll(server->get(), bytes.size()) == bytes);
  sender.join();
  std::thread answerer([&] { SendAll(server->get(), bytes); });
  EXPECT_TRUE(ReceiveAll(ends.client.get(), bytes.size()) == bytes);
  answerer.join();
}

TEST(StreamRelay, PassesTheClientsEndAndStillTheAnswer) {
  const auto relay = StreamRelay::Start().value();
  Ends ends = Connected();
  auto server = relay->Add(&ends.accepted);
  SendAll(ends.client.get(), "ask");
  ASSERT_EQ(::shutdown(ends.client.get(), SHUT_WR), 0);
  EXPECT_EQ(ReceiveAll(server->get(), 4), "ask") << "and the end";
  SendAll(server->get(), "answer");
  EXPECT_EQ(ReceiveAll(ends.client.get(), 6), "answer");
  server->Reset();
  EXPECT_EQ(ReceiveAll(ends.client.get(), 1), "") << "the server's close is the client's";
}

TEST(StreamRelay, EndsWithTheClient) {
  const auto relay = StreamRelay::Start().value();
  Ends ends = Connected();
  const auto server = relay->Add(&ends.accepted);
  ends.client.Reset();
  EXPECT_EQ(ReceiveAll(server->get(), 1), "");
}

TEST(StreamRelay, LetsNoDescriptorPass) {
  const auto relay = StreamRelay::Start().value();
  Ends ends = Connected();
  const auto server = relay->Add(&ends.accepted);
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(session::testing::SendDescriptor(ends.client.get(), STDERR_FILENO), 0);
  EXPECT_EQ(ReceiveAll(server->get(), 10), std::string(10, 'x'));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(StreamRelay, IsRefusedWhereTheSystemGivesNoThread) {
  const tier::testing::ThreadShortage shortage;
  const auto relay = StreamRelay::Start();
  ASSERT_FALSE(relay);
  EXPECT_EQ(relay.error().code, Code::kNoMemory) << relay.error().message;
}

class RelayedDescriptor : public ::testing::TestWithParam<HostileKind> {};

TEST_P(RelayedDescriptor, WhoseLastReferenceTheRelayDropsHoldsNobodyUp) {
  std::string why_not;
  const auto hostile = HostileDescriptor::Make(GetParam(), &why_not);
  if (hostile == nullptr) GTEST_SKIP() << why_not;
  const auto relay = StreamRelay::Start().value();
  Ends ends = Connected();
  Ends other = Connected();
  if (session::testing::SendDescriptor(ends.client.get(), hostile->fd()) == 0) hostile->DropOwn();
  const auto server = relay->Add(&ends.accepted);
  const auto others = relay->Add(&other.accepted);
  SendAll(other.client.get(), "hello");
  EXPECT_EQ(ReceiveAll(others->get(), 5), "hello");
}

INSTANTIATE_TEST_SUITE_P(Kinds, RelayedDescriptor, ::testing::ValuesIn(session::testing::kHostileKinds),
                         [](const auto& about) { return std::string(HostileKindName(about.param)); });

}  // namespace
}  // namespace tier::control
