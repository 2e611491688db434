// A daemon that hangs without hanging up (stopped, deadlocked): no call waits for it forever, and none gives up on
// a daemon that still may answer. Time passes as the test says, in the channel's own watch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "libclient/abi/handle.h"
#include "tests/support/session/temporary_directory.h"
#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using client::Session;
using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class LateAnswerTest : public ClientTest {
 protected:
  bool LateAfter(milliseconds elapsed) { return !client_->session->channel().CheckForLate(elapsed); }
  // A request that the daemon does not answer: for whole seconds up to `last` it may still come.
  void ExpectLateAfter(Op op, const std::function<int()>& call, seconds last) {
    daemon_->Hold(op);
    std::thread waiting([&] { EXPECT_TIER_OK(call()); });
    daemon_->Await([&] { return daemon_->held() == 1; });
    EXPECT_FALSE(LateAfter(last));
    EXPECT_TRUE(LateAfter(milliseconds(1)));
    daemon_->Resume();
    waiting.join();
  }
};

TEST_F(LateAnswerTest, WhatTheDaemonAnswersAtOnceIsLateSoon) {
  Start();
  ExpectLateAfter(Op::kStep, [&] { return tier_step(client_, 1); }, seconds(30));
}

TEST_F(LateAnswerTest, WhatMayWaitHasItsDeadlineFirst) {
  Start();
  tier_seal(Create(1, 4096));
  const tier_range range{1, 0, 0, 0};
  tier_lease* lease = nullptr;
  ExpectLateAfter(Op::kAcquire, [&] { return tier_acquire(client_, &range, 0, 4000, &lease); }, seconds(34));
  tier_release(lease, 0);
}

TEST_F(LateAnswerTest, AFlushHasTheDeadlineThatTheDaemonGivesByItself) {
  Start({.request_timeout_ms = 600'000});
  ExpectLateAfter(Op::kFlush, [&] { return tier_flush(client_, nullptr, 0, 0); }, seconds(630));
}

TEST_F(LateAnswerTest, ADaemonThatDoesNotSayGivesAMinute) {
  Start();
  ExpectLateAfter(Op::kFlush, [&] { return tier_flush(client_, nullptr, 0, 0); }, seconds(90));
}

TEST_F(LateAnswerTest, APersistHasTimeToCommit) {
  Start();
  const auto refused = [&] { return tier_persist(client_, nullptr, 0, 0) == TIER_DENIED ? TIER_OK : TIER_INVALID; };
  ExpectLateAfter(Op::kPersist, refused, seconds(390));
}

TEST_F(LateAnswerTest, WhatIsAnsweredIsNotLateHoweverLongNobodyTakesIt) {
  Start();
  tier_seal(Create(1, 4096));
  const tier_range range{1, 0, 0, 0};
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &range, 1, 0, 0, &lease, &op));
  while (tier_poll(op, 1000) == 0) continue;
  EXPECT_FALSE(LateAfter(std::chrono::hours(24)));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  tier_release(lease, 0);
}

TEST_F(LateAnswerTest, EveryWaitEndsWithWhatToDo) {
  FakeDaemon daemon;
  daemon.Hold(Op::kStep);
  daemon.Hold(Op::kFlush);
  auto session = Session::Open({.attach = {.sockets = {daemon.socket_path()}},
                                .late_check_period = milliseconds(1),
                                .lateness_max = milliseconds(2)});
  ASSERT_TRUE(session) << session.error().message;
  std::thread flushing([&] {
    const auto status = (*session)->AskStatus({.op = Op::kFlush});
    EXPECT_EQ(status.error().code, Code::kDisconnected);
  });
  const auto status = (*session)->AskStatus({.op = Op::kStep});
  flushing.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kDisconnected);
  EXPECT_THAT(status.error().message, HasSubstr("the daemon hangs, or was stopped"));
  EXPECT_THAT(status.error().message, HasSubstr(daemon.socket_path()));
  EXPECT_THAT(status.error().message, HasSubstr("restart it, and connect again"));
  EXPECT_FALSE((*session)->Alive());
  (*session)->Close();
  (*session)->Drop();
}

TEST(Greeting, ADaemonThatSaysNothingIsATimeout) {
  const FakeDaemon daemon({.silent = true});
  const auto attached = link::Attach({.sockets = {daemon.socket_path()}, .timeout = milliseconds(1)});
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().code, Code::kTimeout);
  EXPECT_THAT(attached.error().message, HasSubstr("has not answered within 1 ms"));
  EXPECT_THAT(attached.error().message, HasSubstr(daemon.socket_path()));
}

// A stopped daemon's listening socket, once as many wait as it was made for.
TEST(Greeting, ADaemonThatAcceptsNobodyIsATimeout) {
  const proto::FileDescriptor listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const session::testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/tierd.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  ASSERT_EQ(::bind(listening.get(), name, sizeof address), 0);
  ASSERT_EQ(::listen(listening.get(), 0), 0);
  std::vector<proto::FileDescriptor> before;
  do {
    before.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (::connect(before.back().get(), name, sizeof address) == 0);
  const auto attached = link::Attach({.sockets = {path}, .timeout = milliseconds(1)});
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().code, Code::kTimeout);
  EXPECT_THAT(attached.error().message, HasSubstr("takes no connection"));
  EXPECT_THAT(attached.error().message, HasSubstr(path));
}

}  // namespace
}  // namespace tier::session_fake
