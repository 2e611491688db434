// Clients that are killed in every state of the protocol, and what becomes of what they held.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/cpp/real_daemon.h"

namespace tier::daemon_process {
namespace {

using std::chrono::milliseconds;

class ClientDeath : public RealDaemon, public ::testing::WithParamInterface<const char*> {};

TEST_P(ClientDeath, FreesWhatWasHeld) {
  Start();
  auto observer = Connect();
  for (int round = 0; round < 3; ++round) {
    ChildProcess victim(Victim(GetParam(), 10));
    ASSERT_EQ(victim.ReadLine(), "ready");
    victim.Signal(SIGKILL);
    ASSERT_TRUE(victim.AwaitDeath(milliseconds(5000)));
    std::string sentence;
    const int code = CodeOf([&] { observer.Create(1, 44 * kMiB, {}, 0, 2000).Seal(); }, &sentence);
    EXPECT_EQ(code, TIER_OK) << "round " << round << ": " << sentence;
    if (code == TIER_OK) observer.Free(1);
  }
  EXPECT_TRUE(daemon_->running());
}

INSTANTIATE_TEST_SUITE_P(Killed, ClientDeath,
                         ::testing::Values("idle", "create", "write", "read", "waiting", "swap_out", "swap_in"),
                         [](const auto& test) { return std::string(test.param); });

using ForkedClient = RealDaemon;

TEST_F(ForkedClient, AChildThatLivesOnHoldsNothingBack) {
  Start();
  auto observer = Connect();
  // A parent with a client and a lease forks a child that outlives it.
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    tier::Client client(Options());
    tier::Lease lease = client.Create(1, 40 * kMiB);
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) ::pause();
    }
    if (::write(pipe_ends[1], &child, sizeof child) != sizeof child) ::_exit(1);
    while (true) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(pipe_ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  std::string sentence;
  EXPECT_EQ(CodeOf([&] { observer.Create(1, 44 * kMiB, {}, 0, 2000).Seal(); }, &sentence), TIER_OK) << sentence;
  ::kill(child, SIGKILL);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_F(ForkedClient, IsDisconnectedWhileTheParentGoesOn) {
  Start();
  auto client = Connect();
  tier::Lease lease = client.Create(1, 4096);
  const pid_t child = ::fork();
  if (child == 0) {
    const int step = CodeOf([&] { client.Step(); });
    const int data = CodeOf([&] { lease.bytes(); });
    ::_exit(step == TIER_DISCONNECTED && data == TIER_DISCONNECTED ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  lease.bytes()[0] = std::byte{1};
  lease.Seal();
  EXPECT_EQ(client.Acquire(1).bytes()[0], std::byte{1});
}

}  // namespace
}  // namespace tier::daemon_process
