// The accept loop over plain descriptors: an eventfd that is readable stands for a socket with a connection.
#include "daemon/control/accept_loop.h"

#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "proto/mapping.h"

namespace tier::control {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class AcceptLoopTest : public ::testing::Test {
 protected:
  static proto::FileDescriptor Event(unsigned value) {
    return proto::FileDescriptor(::eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  void Stop() { ASSERT_EQ(::eventfd_write(stop_.get(), 1), 0); }

  const proto::FileDescriptor ready_ = Event(1);
  const proto::FileDescriptor idle_ = Event(0);
  const proto::FileDescriptor stop_ = Event(0);
  const std::array<int, 2> listeners_ = {ready_.get(), idle_.get()};
};

TEST_F(AcceptLoopTest, TakesFromTheSocketsThatAreReadyUntilItIsStopped) {
  std::vector<size_t> taken;
  AcceptUntilStopped(listeners_, stop_.get(), [&](size_t listener) {
    taken.push_back(listener);
    if (taken.size() == 3) Stop();
    return true;
  });
  EXPECT_EQ(taken, (std::vector<size_t>{0, 0, 0}));
}

TEST_F(AcceptLoopTest, RestsWhileThereIsNoRoomAndStopsAllTheSame) {
  std::promise<void> asked;
  std::atomic<int> times{0};
  std::thread loop([&] {
    const auto refuse = [&](size_t) {
      if (++times == 1) asked.set_value();
      return false;
    };
    AcceptUntilStopped(listeners_, stop_.get(), refuse, hours(1));
  });
  asked.get_future().wait();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  Stop();
  loop.join();
  EXPECT_EQ(times, 1);
}

TEST_F(AcceptLoopTest, TriesAgainAfterTheRest) {
  int times = 0;
  const auto take = [&](size_t) {
    if (++times == 2) Stop();
    return times == 2;
  };
  AcceptUntilStopped(listeners_, stop_.get(), take, milliseconds(1));
  EXPECT_EQ(times, 2);
}

}  // namespace
}  // namespace tier::control
