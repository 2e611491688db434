// Whose process is behind a session, and how its end is seen: by a pidfd that the kernel gives or that a challenge
// proves, else by the hang-up.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using proto::PacketKind;
using ::testing::Contains;
using testing::DataClient;
using ::testing::HasSubstr;
using testing::InChild;
using testing::IncomingPacket;
using testing::MakeHello;
using ::testing::Not;
using testing::SessionWorld;

// A client process that has attached, and a child of it that holds the same socket and does nothing.
class ForkedClient {
 public:
  // `attach` runs in the client and returns whether it was welcomed.
  template <typename Attach>
  explicit ForkedClient(const Attach& attach) {
    int pipe_fds[2];
    EXPECT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
    client_ = ::fork();
    if (client_ == 0) {
      if (!attach()) ::_exit(1);
      const pid_t holder = ::fork();
      if (holder > 0) (void)!::write(pipe_fds[1], &holder, sizeof(holder));
      for (;;) ::pause();
    }
    ::close(pipe_fds[1]);
    EXPECT_EQ(::read(pipe_fds[0], &holder_, sizeof(holder_)), static_cast<ssize_t>(sizeof(holder_)));
    ::close(pipe_fds[0]);
  }
  ~ForkedClient() {
    KillClient();
    if (holder_ > 0) ::kill(holder_, SIGKILL);
  }
  void KillClient() {
    if (client_ <= 0) return;
    ::kill(client_, SIGKILL);
    ::waitpid(std::exchange(client_, -1), nullptr, 0);
  }
  void KillHolder() { ::kill(std::exchange(holder_, -1), SIGKILL); }

 private:
  pid_t client_ = -1;
  pid_t holder_ = -1;
};

class PeerProcess : public ::testing::TestWithParam<PidfdSource> {};

TEST_P(PeerProcess, EndIsSeenThoughAForkedChildHoldsTheSocket) {
  SessionWorld world({.pidfd_source = GetParam()});
  std::unique_ptr<DataClient> client;
  ForkedClient process([&] {
    client = std::make_unique<DataClient>(world.socket_path());
    return client->Attach(MakeHello("train")).code == 0;
  });
  EXPECT_EQ(world.sessions(), 1u);
  world.OnSocketThread([] {});  // Behind the answer to a challenge.
  process.KillClient();
  EXPECT_TRUE(world.WaitForSessions(0));
  EXPECT_THAT(world.EngineLog(), Contains(HasSubstr("its process ended")));
}

TEST_P(PeerProcess, EndIsSeenByTheHangUpToo) {
  SessionWorld world({.pidfd_source = GetParam()});
  const int status = InChild([&] {
    DataClient client(world.socket_path());
    return client.Attach(MakeHello("train")).code == 0 ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(world.WaitForSessions(0));
}

INSTANTIATE_TEST_SUITE_P(Sources, PeerProcess, ::testing::Values(PidfdSource::kSocket, PidfdSource::kNumber),
                         [](const auto& about) { return about.param == PidfdSource::kSocket ? "Socket" : "Number"; });

// Hello, and the nonce of the challenge that precedes the welcome.
proto::ProcessPacket ProofFor(DataClient& client, const proto::Hello& hello) {
  EXPECT_TRUE(client.Send(hello));
  auto proof = client.Receive().As<proto::ProcessPacket>();
  EXPECT_EQ(proof.header.kind, static_cast<uint16_t>(PacketKind::kProcessChallenge));
  EXPECT_NE(proof.nonce, 0u);
  proof.header.kind = static_cast<uint16_t>(PacketKind::kProcessProof);
  return proof;
}

TEST(ProcessChallenge, AnswerOfAnotherProcessLeavesTheHangUp) {
  SessionWorld world({.pidfd_source = PidfdSource::kNumber});
  std::unique_ptr<DataClient> client;
  ForkedClient process([&] {
    client = std::make_unique<DataClient>(world.socket_path());
    const auto proof = ProofFor(*client, MakeHello("train"));
    (void)InChild([&] { return client->Send(proof) ? 0 : 1; });
    return client->Receive().As<proto::Welcome>().code == 0;
  });
  world.OnSocketThread([] {});
  process.KillClient();
  DataClient other(world.socket_path());  // Whatever the daemon was told of that end, it has heard before this one.
  ASSERT_EQ(other.Attach(MakeHello("other")).code, 0);
  EXPECT_EQ(world.sessions(), 2u) << "the number that connect() left proves nothing";
  process.KillHolder();
  EXPECT_TRUE(world.WaitForSessions(1));
  EXPECT_THAT(world.EngineLog(), Not(Contains(HasSubstr("its process ended"))));
}

TEST(ProcessChallenge, WithoutAnAnswerTheClientIsServed) {
  SessionWorld world({.pidfd_source = PidfdSource::kNumber});
  DataClient client(world.socket_path());
  (void)ProofFor(client, MakeHello("train"));
  EXPECT_EQ(client.Receive().As<proto::Welcome>().code, 0);
  EXPECT_EQ(world.sessions(), 1u);
}

TEST(ProcessChallenge, WrongSecondAndUnaskedAnswersEndTheSession) {
  for (const int lie : {0, 1, 2}) {
    SessionWorld world({.pidfd_source = lie == 2 ? PidfdSource::kSocket : PidfdSource::kNumber});
    DataClient client(world.socket_path());
    proto::ProcessPacket proof = MakeProcessChallenge(1);
    proof.header.kind = static_cast<uint16_t>(PacketKind::kProcessProof);
    if (lie == 2) {
      ASSERT_EQ(client.Attach(MakeHello("train")).code, 0);
    } else {
      proof = ProofFor(client, MakeHello("train"));
      ASSERT_EQ(client.Receive().As<proto::Welcome>().code, 0);
    }
    if (lie == 0) proof.nonce ^= 1;
    const int answers = lie == 1 ? 2 : 1;
    for (int i = 0; i < answers; ++i) ASSERT_TRUE(client.Send(proof));
    const auto end = client.Receive().As<proto::SessionEnd>();
    EXPECT_EQ(end.code, static_cast<uint16_t>(Code::kRevoked)) << lie;
    EXPECT_THAT(end.message, HasSubstr("answers no challenge")) << lie;
  }
}

}  // namespace
}  // namespace tier::session
