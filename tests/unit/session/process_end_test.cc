// The end of processes by force, and which of them are remembered.
#include "daemon/session/process_end.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/session/data_client.h"

namespace tier::session {
namespace {

// A child that waits to be killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  proto::FileDescriptor Open() const {
    return proto::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  // What ended it, once it has ended.
  int Reap() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  void Kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    Reap();
  }

 private:
  pid_t pid_;
};

TEST(ProcessEnd, AProcessIsKilledAndOneThatHasEndedIsNotFound) {
  Child child;
  const proto::FileDescriptor pidfd = child.Open();
  ASSERT_TRUE(pidfd);
  EXPECT_TRUE(EndProcess(pidfd.get()));
  EXPECT_EQ(child.Reap(), SIGKILL);
  const Status again = EndProcess(pidfd.get());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kNotFound);
}

TEST(ProcessEnd, ProcessesThatHaveEndedAreNotFound) {
  boost::asio::io_context io;
  LeftProcesses left(io);
  Child first;
  Child second;
  left.Add(1, first.Open());
  EXPECT_GE(left.Find(1), 0);
  EXPECT_EQ(left.Find(2), -1);
  first.Kill();
  EXPECT_EQ(left.Find(1), -1);
  left.Add(2, second.Open());
  EXPECT_GE(left.Find(2), 0);
}

// Not only when another session ends: the last one would leave it for as long as the daemon lives.
TEST(ProcessEnd, ThePidfdOfAProcessThatEndsIsClosed) {
  boost::asio::io_context io;
  LeftProcesses left(io);
  Child first;
  Child second;
  left.Add(1, first.Open());
  left.Add(2, second.Open());
  const int pidfd = left.Find(1);
  first.Kill();
  ASSERT_EQ(io.run_one(), 1U);
  EXPECT_EQ(left.size(), 1U);
  EXPECT_EQ(::fcntl(pidfd, F_GETFD), -1);
  EXPECT_GE(left.Find(2), 0);
}

TEST(ProcessEnd, ThereIsAMaximumOfProcesses) {
  boost::asio::io_context io;
  LeftProcesses left(io);
  Child child;
  for (uint64_t session = 1; session <= LeftProcesses::kProcessesMax + 1; ++session) left.Add(session, child.Open());
  EXPECT_EQ(left.size(), LeftProcesses::kProcessesMax);
  EXPECT_EQ(left.Find(1), -1);
  EXPECT_GE(left.Find(LeftProcesses::kProcessesMax + 1), 0);
  // The wait for the one that was dropped ends without an effect.
  io.poll();
  EXPECT_EQ(left.size(), LeftProcesses::kProcessesMax);
}

TEST(ProcessEnd, TheRightIsThatOfTheKernel) {
  // A process of root has it, unless it was taken away; where it has not, the kernel refuses.
  if (::geteuid() == 0) {
    EXPECT_TRUE(MayEndOthers());
  }
  const int status = testing::InChild([] {
    const bool dropped = ::setuid(65533) == 0;
    return !dropped ? 2 : MayEndOthers() ? 1 : 0;
  });
  if (status == 2) GTEST_SKIP() << "needs root: becomes another user";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tier::session
