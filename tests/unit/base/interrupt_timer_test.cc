#include "daemon/base/interrupt_timer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include <gtest/gtest.h>

#include "proto/mapping.h"

namespace tier::base {
namespace {

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    reader = proto::FileDescriptor(fds[0]);
    writer = proto::FileDescriptor(fds[1]);
  }
  proto::FileDescriptor reader;
  proto::FileDescriptor writer;
};

TEST(InterruptTimer, EndsACallThatWouldWaitWithoutEnd) {
  InterruptTimer timer;
  const Pipe pipe;
  char byte = 0;
  for (int i = 0; i < 3; ++i) {
    timer.Start();
    EXPECT_LT(::read(pipe.reader.get(), &byte, 1), 0);
    EXPECT_EQ(errno, EINTR);
    timer.Stop();
  }
}

TEST(InterruptTimer, LeavesOtherThreadsAlone) {
  const Pipe pipe;
  ssize_t got = 0;
  std::thread other([&] {
    char byte = 0;
    got = ::read(pipe.reader.get(), &byte, 1);
  });
  {
    InterruptTimer timer;
    const Pipe empty;
    char byte = 0;
    timer.Start();
    for (int i = 0; i < 20; ++i) EXPECT_LT(::read(empty.reader.get(), &byte, 1), 0);
  }
  EXPECT_EQ(::write(pipe.writer.get(), "x", 1), 1);
  other.join();
  EXPECT_EQ(got, 1);
}

}  // namespace
}  // namespace tier::base
