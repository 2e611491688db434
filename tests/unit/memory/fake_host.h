// A /proc and /sys of the test's own, in a temporary folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "proto/units.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::memory {

class FakeHost {
 public:
  std::string root() const { return root_.string(); }
  void Write(const std::string& path, const std::string& text) const {
    const auto file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Remove(const std::string& path) const { std::filesystem::remove(root_ / path); }
  void SetMemory(uint64_t total, uint64_t available, uint64_t huge_pages_free = 0) const {
    Write("proc/meminfo", fmt::format("MemTotal:       {} kB\nMemFree:        1 kB\nMemAvailable:   {} kB\n"
                                      "HugePages_Total:      9\nHugePages_Free:     {}\nHugePages_Rsvd:        0\n"
                                      "Hugepagesize:       2048 kB\n",
                                      total / kKiB, available / kKiB, huge_pages_free));
  }
  // A v2 group and its ancestors have no limit but those that the test writes.
  void SetGroup(const std::string& path) const { Write("proc/self/cgroup", "0::" + path + "\n"); }
  void SetGroupFile(const std::string& path, const std::string& file, uint64_t bytes) const {
    Write("sys/fs/cgroup" + path + "/" + file, fmt::format("{}\n", bytes));
  }
  void SetPressure(double some, double full) const {
    Write("proc/pressure/memory",
          fmt::format("some avg10={:.2f} avg60=0.00 avg300=0.00 total=5\nfull avg10={:.2f} avg60=0.00 avg300=0.00 "
                      "total=4\n",
                      some, full));
  }

 private:
  const session::testing::TemporaryDirectory folder_;
  const std::filesystem::path root_ = folder_.path();
};

}  // namespace tier::memory
