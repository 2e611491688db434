// ThreadShortage: a machine that gives this process only so many more threads, as a small RLIMIT_AS does. New threads
// get stacks of 1 GiB, and the limit on address space has room for `remaining` of these: what a stack needs is far from
// what else the test allocates, so the outcome is the same on every run. Also as root, whom RLIMIT_NPROC does not bind.
//
// Made and destroyed by a thread of the test while no other one starts threads; the threads that it let start may
// outlive it. REQUIRES: remaining <= 4.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>

#include <gtest/gtest.h>

namespace tier::testing {

class ThreadShortage {
 public:
  explicit ThreadShortage(unsigned remaining = 0) {
    EXPECT_LE(remaining, 4u);
    EXPECT_EQ(::pthread_getattr_default_np(&attributes_before_), 0);
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &limit_before_), 0);
    pthread_attr_t attributes;
    EXPECT_EQ(::pthread_getattr_default_np(&attributes), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&attributes, kStackSize), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&attributes), 0);
    (void)::pthread_attr_destroy(&attributes);
    rlimit limit = limit_before_;
    limit.rlim_cur = AddressSpaceUsed() + remaining * kStackSize + kStackSize / 2;
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~ThreadShortage() {
    (void)::setrlimit(RLIMIT_AS, &limit_before_);
    (void)::pthread_setattr_default_np(&attributes_before_);
    (void)::pthread_attr_destroy(&attributes_before_);
  }
  ThreadShortage(const ThreadShortage&) = delete;
  ThreadShortage& operator=(const ThreadShortage&) = delete;

 private:
  static constexpr size_t kStackSize = size_t{1} << 30;

  static uint64_t AddressSpaceUsed() {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_NE(pages, 0u) << "no /proc/self/statm";
    return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  }

  pthread_attr_t attributes_before_;
  rlimit limit_before_{};
};

}  // namespace tier::testing
