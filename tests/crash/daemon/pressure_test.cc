// A real daemon in a control group of version 2 that runs short: memory.high is lowered below what is used, or tasks of
// the group wait for memory (PSI). It gives memory back, is not killed, and what was acknowledged is whole. Prints when
// and how fast. `tools/dev kernel` has the group and names the devices.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/units.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"

namespace tier::crash {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr char kTree[] = "/sys/fs/cgroup";
constexpr uint64_t kTensor = 4 * kMiB;

double MillisecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

// A group below the root that counts memory.
class MemoryGroup {
 public:
  MemoryGroup() : path_(std::string(kTree) + "/tierd-pressure-" + std::to_string(::getpid())) {
    Write(std::string(kTree) + "/cgroup.subtree_control", "+memory");
    std::filesystem::create_directory(path_);
  }
  ~MemoryGroup() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  static bool Supported() {
    std::string controllers;
    std::getline(std::ifstream(std::string(kTree) + "/cgroup.controllers"), controllers);
    return ::geteuid() == 0 && controllers.find("memory") != std::string::npos;
  }
  void Enter() const { Write(path_ + "/cgroup.procs", "0"); }
  static void Leave() { Write(std::string(kTree) + "/cgroup.procs", "0"); }
  void SetHigh(uint64_t bytes) const { Write(path_ + "/memory.high", std::to_string(bytes)); }
  uint64_t Current() const { return std::stoull(Read("memory.current")); }
  std::string Read(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(path_ + "/" + file).rdbuf();
    return text.str();
  }

 private:
  static void Write(const std::string& file, const std::string& text) {
    std::ofstream stream(file);
    stream << text;
    stream.flush();
    TIER_CHECK(stream.good(), "{} > {}: errno {}", text, file, errno);
  }
  std::string path_;
};

// Reads all of a device through the page cache, over and over, until it is killed.
class Reader {
 public:
  Reader(const MemoryGroup& group, const std::string& device) : pid_(::fork()) {
    TIER_CHECK(pid_ >= 0, "errno {}", errno);
    if (pid_ != 0) return;
    group.Enter();
    const int fd = ::open(device.c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<char> buffer(64 * kKiB);
    while (fd >= 0) {
      if (::read(fd, buffer.data(), buffer.size()) <= 0) ::lseek(fd, 0, SEEK_SET);
    }
    ::_exit(1);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

class PressedDaemon : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("TIER_FAULT_DEVICES");
    if (named == nullptr) GTEST_SKIP() << "needs TIER_FAULT_DEVICES: block devices to overwrite, with a colon between";
    if (!MemoryGroup::Supported()) GTEST_SKIP() << "needs cgroup v2 with the memory controller, and root";
    std::stringstream names(named);
    for (std::string name; std::getline(names, name, ':');) devices_.push_back(name);
    ASSERT_GE(devices_.size(), 2u) << named;
    group_ = std::make_unique<MemoryGroup>();
    group_->Enter();  // For the daemon, which inherits it.
    daemon_ = std::make_unique<DaemonProcess>(
        scratch_, DaemonOptions{.arguments = {"--set", "ssd.devices=[\"" + devices_[0] + "\"]", "--set",
                                              "arena.maximum=256MiB", "--set", "arena.minimum=16MiB"},
                                .environment = {},
                                .uid = {},
                                .inherited = {}});
    MemoryGroup::Leave();
    ASSERT_TRUE(daemon_->WaitReady()) << daemon_->Output();
    trainer_ = std::make_unique<Trainer>(*daemon_, "train");
    for (unsigned char tensor = 1; tensor <= kTensors; ++tensor) {
      ASSERT_EQ(trainer_->Put(tensor, kTensor, tensor).header.code, 0) << int{tensor};
      ASSERT_EQ(trainer_->Ask(proto::Op::kFlush, {.tensor = tensor}).header.code, 0) << int{tensor};
    }
  }
  void TearDown() override {
    if (daemon_ == nullptr) return;
    for (unsigned char tensor = 1; tensor <= kTensors; ++tensor) EXPECT_TRUE(trainer_->Holds(tensor, tensor));
    const std::string events = group_->Read("memory.events");
    EXPECT_NE(events.find("oom_kill 0"), std::string::npos) << events;
    trainer_.reset();
    EXPECT_EQ(daemon_->Stop(), 0) << daemon_->Output();
  }

  // Waits until what `use` says has begun to fall, and then until it has not for a while.
  void ExpectGivenBack(uint64_t at_least, steady_clock::time_point asked, const std::function<uint64_t()>& use_of) {
    const uint64_t before = use_of();
    const auto end = asked + seconds(60);
    double first = 0;
    double last = 0;
    uint64_t first_use = before;
    uint64_t least = before;
    while (steady_clock::now() < end && (first == 0 || MillisecondsSince(asked) - last < kQuietMs)) {
      if (const uint64_t use = use_of(); use + kMiB < least) {
        if (first == 0) {
          first = MillisecondsSince(asked);
          first_use = use;
        }
        least = use;
        last = MillisecondsSince(asked);
      }
      trainer_->ReturnWindows(milliseconds(1));
    }
    EXPECT_GE(before - least, at_least) << daemon_->Output();
    std::printf("giving back begins after %.0f ms; %llu MiB, the last %llu of them in %.1f ms\n", first,
                static_cast<unsigned long long>((before - least) / kMiB),
                static_cast<unsigned long long>((first_use - least) / kMiB), last - first);
  }
  // Shared memory of the group, the windows, as the kernel counts it together every other second.
  uint64_t Arena() const {
    const std::string stat = group_->Read("memory.stat");
    const size_t at = stat.find("\nshmem ");
    return at == std::string::npos ? 0 : std::stoull(stat.substr(at + 7));
  }

  static constexpr unsigned char kTensors = 20;
  static constexpr double kQuietMs = 4000;
  ScratchDirectory scratch_;
  std::vector<std::string> devices_;
  std::unique_ptr<MemoryGroup> group_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(PressedDaemon, GivesBackWhatALoweredMemoryHighLacks) {
  const auto asked = steady_clock::now();
  group_->SetHigh(group_->Current());  // All of the host reserve of 64 MiB is missing.
  ExpectGivenBack(48 * kMiB, asked, [&] { return group_->Current(); });
  EXPECT_TRUE(daemon_->WaitOutput("memory.high of /tierd-pressure-")) << daemon_->Output();
}

TEST_F(PressedDaemon, GivesBackWhileTasksOfItsGroupWaitForMemory) {
  // More than three quarters of the host reserve stay, as the page cache of the readers counts as available: what tells
  // of the shortage is that they wait.
  group_->SetHigh(group_->Current() + 62 * kMiB);
  const auto asked = steady_clock::now();
  const std::array<Reader, 4> readers = {Reader(*group_, devices_[1]), Reader(*group_, devices_[1]),
                                         Reader(*group_, devices_[1]), Reader(*group_, devices_[1])};
  ExpectGivenBack(32 * kMiB, asked, [&] { return Arena(); });
  EXPECT_TRUE(daemon_->WaitOutput("tasks of the control group waited for memory")) << daemon_->Output();
}

}  // namespace
}  // namespace tier::crash
