// The accept loop over plain descriptors: an eventfd that is readable stands for a socket with a connection.
#include "daemon/control/accept_loop.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/mapping.h"

namespace tier::control {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  const auto take = [&](size_t listener) {
    taken.push_back(listener);
    if (taken.size() == 3) Stop();
    return true;
  };
  AcceptUntilStopped(listeners_, stop_.get(), {.take = take, .warn = {}});
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
    AcceptUntilStopped(listeners_, stop_.get(), {.take = refuse, .warn = {}}, hours(1));
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
  AcceptUntilStopped(listeners_, stop_.get(), {.take = take, .warn = {}}, milliseconds(1));
  EXPECT_EQ(times, 2);
}

// Leaves poll() this process's right to as many descriptors, for as long as it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t soft) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lowered{.rlim_cur = soft, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  }
  ~DescriptorLimit() { Lift(); }
  void Lift() const { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

TEST_F(AcceptLoopTest, ServesAgainWhenPollingWorksAgainAndHasSaidWhyOnce) {
  std::vector<std::string> warnings;
  int times = 0;
  const DescriptorLimit one_at_a_time(1);  // Three are polled: EINVAL.
  const auto take = [&](size_t) {
    ++times;
    Stop();
    return true;
  };
  const auto warn = [&](const std::string& text) {
    warnings.push_back(text);
    one_at_a_time.Lift();
  };
  AcceptUntilStopped(listeners_, stop_.get(), {.take = take, .warn = warn}, milliseconds(1));
  EXPECT_EQ(times, 1);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("control connections are not taken: poll: Invalid argument")));
}

TEST_F(AcceptLoopTest, CanBeStoppedWhilePollingFails) {
  int warnings = 0;
  const int stop = stop_.get();
  const DescriptorLimit one_at_a_time(1);
  // No member call: the sanitizer's look at the object needs descriptors.
  const auto warn = [&](const std::string&) {
    ++warnings;
    (void)::eventfd_write(stop, 1);
  };
  AcceptUntilStopped(listeners_, stop_.get(), {.take = {}, .warn = warn}, hours(1));
  EXPECT_EQ(warnings, 1);
}

TEST_F(AcceptLoopTest, RestsWhereASocketIsBrokenAndServesTheOthers) {
  const std::array<int, 2> listeners = {ready_.get(), 1 << 20};  // The second is no descriptor.
  int warnings = 0;
  int times = 0;
  const auto take = [&](size_t listener) {
    EXPECT_EQ(listener, 0u);
    if (++times == 3) Stop();
    return true;
  };
  AcceptUntilStopped(listeners, stop_.get(), {.take = take, .warn = [&](const std::string&) { ++warnings; }},
                     milliseconds(1));
  EXPECT_EQ(times, 3);
  EXPECT_EQ(warnings, 1) << "and not in every round";
}

}  // namespace
}  // namespace tier::control
