// A real daemon on block devices that fail as disks do, by the kernel's device mapper: altogether, in writes only, in
// one place, by hanging. What was acknowledged is whole afterwards. `tools/dev kernel` names the devices beneath.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/units.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"
#include "tests/support/storage/mapped_device.h"

namespace tier::crash {
namespace {

using proto::Op;
using std::chrono::seconds;
using std::chrono::steady_clock;
using storage::testing::MappedDevice;
using ::testing::HasSubstr;

constexpr uint64_t kTensor = 4 * kMiB;
constexpr uint64_t kSectorsPerBlock = 2 * kMiB / 512;
constexpr auto kIoError = static_cast<uint16_t>(Code::kIoError);

std::string Get(const std::string& port) {
  const proto::FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  if (::write(fd.get(), request.data(), request.size()) != static_cast<ssize_t>(request.size())) return {};
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(fd.get(), buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  return answer;
}

// A daemon with one device or two, and a trainer. Tensor `n` holds the byte `n`.
class MappedDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("TIER_FAULT_DEVICES");
    if (named == nullptr) GTEST_SKIP() << "needs TIER_FAULT_DEVICES: block devices to overwrite, with a colon between";
    if (!MappedDevice::Supported()) GTEST_SKIP() << "needs device mapper: /dev/mapper/control";
    std::stringstream names(named);
    for (std::string name; std::getline(names, name, ':');) beneath_.push_back(name);
    ASSERT_GE(beneath_.size(), 2u) << named;
  }
  void TearDown() override {
    for (const auto& device : devices_) device->Work();
    trainer_.reset();
    if (daemon_ != nullptr) {
      EXPECT_EQ(daemon_->Stop(), 0) << daemon_->Output();
    }
  }

  void Start(size_t count) {
    std::string paths;
    for (size_t i = 0; i < count; ++i) {
      devices_.push_back(std::make_unique<MappedDevice>("tier" + std::to_string(i), beneath_[i]));
      paths += (i == 0 ? "\"" : ", \"") + devices_[i]->path() + "\"";
    }
    daemon_ = std::make_unique<DaemonProcess>(
        scratch_,
        DaemonOptions{.arguments = {"--set", "ssd.devices=[" + paths + "]", "--set", "metrics.listen=127.0.0.1:0"},
                      .environment = {},
                      .uid = {},
                      .inherited = {}});
    ASSERT_TRUE(daemon_->WaitReady()) << daemon_->Output();
    trainer_ = std::make_unique<Trainer>(*daemon_, "train");
  }

  MappedDevice& device(size_t index) { return *devices_[index]; }
  uint16_t Put(unsigned char tensor, uint64_t size = kTensor) {
    return trainer_->Put(tensor, size, tensor).header.code;
  }
  uint16_t Flush(uint64_t tensor) { return trainer_->Ask(Op::kFlush, {.tensor = tensor}).header.code; }
  void PutOnSsd(unsigned char tensor, uint64_t size = kTensor) {
    ASSERT_EQ(Put(tensor, size), 0) << int{tensor};
    ASSERT_EQ(Flush(tensor), 0) << int{tensor};
    ASSERT_EQ(trainer_->Ask(Op::kDrop, {.tensor = tensor}).header.code, 0) << int{tensor};
  }
  void HoldsEach(unsigned char first, unsigned char last) {
    for (unsigned char tensor = first; tensor <= last; ++tensor) EXPECT_TRUE(trainer_->Holds(tensor, tensor));
  }
  // Asks without waiting for the answer.
  void Send(Op op, uint64_t tensor) {
    const proto::RequestItem item = {.tensor = tensor};
    ASSERT_TRUE(trainer_->client().ring().Send(op, {&item, 1}, 0));
    trainer_->client().Ring();
  }

  double Figure(const std::string& metric) {
    std::string port;
    std::ifstream(daemon_->run_directory() + "/metrics.port") >> port;
    const std::string page = Get(port);
    const size_t at = page.find("\n" + metric + " ");
    return at == std::string::npos ? 0 : std::stod(page.substr(at + metric.size() + 2));
  }
  double OfDevice(const std::string& figure, size_t index) {
    return Figure("tier_device_" + figure + "_bytes{device=\"" + std::to_string(index) + "\"}");
  }
  bool Is(size_t index, const std::string& state) {
    const std::string labels = "{device=\"" + std::to_string(index) + "\",state=\"" + state + "\"}";
    return Figure("tierd_device_state" + labels) == 1;
  }
  static bool Within(seconds most, const std::function<bool()>& holds) {
    for (const auto end = steady_clock::now() + most; steady_clock::now() < end;) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  bool Becomes(size_t index, const std::string& state, seconds most = seconds(20)) {
    return Within(most, [&] { return Is(index, state); });
  }

  ScratchDirectory scratch_;
  std::vector<std::string> beneath_;
  std::vector<std::unique_ptr<MappedDevice>> devices_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(MappedDevices, WhatOneOfTwoFailsTheOtherTakesAndTheFirstComesBack) {
  ASSERT_NO_FATAL_FAILURE(Start(2));
  for (unsigned char tensor = 1; tensor <= 4; ++tensor) ASSERT_NO_FATAL_FAILURE(PutOnSsd(tensor));
  device(0).FailAll();
  const double before = OfDevice("live", 1);
  for (unsigned char tensor = 5; tensor <= 10; ++tensor) {
    ASSERT_EQ(Put(tensor), 0);
    ASSERT_EQ(Flush(tensor), 0) << "the other device's writes go on";
  }
  EXPECT_EQ(OfDevice("live", 1) - before, 6.0 * kTensor);
  EXPECT_TRUE(Becomes(0, "offline"));
  EXPECT_TRUE(Is(1, "online"));
  device(0).Work();
  EXPECT_TRUE(Becomes(0, "suspect"));
  unsigned char last = 10;
  const auto put_more = [&] {
    ++last;
    return Put(last) == 0 && Flush(last) == 0 && Is(0, "online");
  };
  EXPECT_TRUE(Within(seconds(20), put_more));
  HoldsEach(1, last);
  EXPECT_EQ(OfDevice("quarantined", 0), 0);
}

TEST_F(MappedDevices, ATensorWhoseReadsFailIsThereAgainWhenTheDeviceIs) {
  ASSERT_NO_FATAL_FAILURE(Start(1));
  for (unsigned char tensor = 1; tensor <= 4; ++tensor) ASSERT_NO_FATAL_FAILURE(PutOnSsd(tensor));
  device(0).FailAll();
  const auto refused = trainer_->Ask(Op::kAcquire, {.tensor = 1});
  EXPECT_EQ(refused.header.code, kIoError);
  EXPECT_THAT(refused.detail, HasSubstr("device 0"));
  EXPECT_TRUE(Becomes(0, "offline"));
  EXPECT_EQ(trainer_->Ask(Op::kAcquire, {.tensor = 2}).header.code, kIoError);
  device(0).Work();
  ASSERT_TRUE(Becomes(0, "suspect"));
  HoldsEach(1, 4);
  ASSERT_NO_FATAL_FAILURE(PutOnSsd(5));
  EXPECT_TRUE(Is(0, "online"));
}

TEST_F(MappedDevices, WritesThatFailKeepTheirTensorInRam) {
  ASSERT_NO_FATAL_FAILURE(Start(1));
  ASSERT_NO_FATAL_FAILURE(PutOnSsd(1));
  device(0).FailWrites();
  ASSERT_EQ(Put(2), 0);
  EXPECT_EQ(Flush(2), kIoError);
  HoldsEach(1, 2);
  EXPECT_FALSE(Is(0, "online"));
  device(0).Work();
  EXPECT_TRUE(Within(seconds(20), [&] { return Flush(2) == 0; }));
  EXPECT_TRUE(Becomes(0, "online"));
  EXPECT_EQ(trainer_->Ask(Op::kDrop, {.tensor = 2}).header.code, 0);
  HoldsEach(1, 2);
}

TEST_F(MappedDevices, ABadPlaceIsPutAsideAndTheRestGoesOn) {
  ASSERT_NO_FATAL_FAILURE(Start(1));
  // One page, ten blocks in: past the superblocks, before the first twelve tensors end.
  device(0).FailPlace(10 * kSectorsPerBlock + 8, 8);
  for (unsigned char tensor = 1; tensor <= 12; ++tensor) ASSERT_NO_FATAL_FAILURE(PutOnSsd(tensor));
  HoldsEach(1, 12);
  EXPECT_TRUE(Is(0, "online"));
  EXPECT_GT(OfDevice("doubtful", 0), 0);
  EXPECT_LE(OfDevice("doubtful", 0), 4.0 * kMiB);
}

TEST_F(MappedDevices, APlaceThatGoesBadUnderATensorCostsThatTensorAlone) {
  ASSERT_NO_FATAL_FAILURE(Start(1));
  for (unsigned char tensor = 1; tensor <= 12; ++tensor) ASSERT_NO_FATAL_FAILURE(PutOnSsd(tensor));
  device(0).FailPlace(10 * kSectorsPerBlock + 8, 8);
  int lost = 0;
  for (unsigned char tensor = 1; tensor <= 12; ++tensor) {
    const auto read = trainer_->Ask(Op::kAcquire, {.tensor = tensor});
    if (read.header.code != 0) {
      EXPECT_EQ(read.header.code, kIoError) << read.detail;
      ++lost;
      continue;
    }
    EXPECT_EQ(trainer_->Ask(Op::kRelease, {.value = read.spans.at(0).lease}).header.code, 0);
    EXPECT_TRUE(trainer_->Holds(tensor, tensor));
  }
  EXPECT_EQ(lost, 1);
  EXPECT_FALSE(Is(0, "offline"));
  ASSERT_NO_FATAL_FAILURE(PutOnSsd(13));
  HoldsEach(13, 13);
}

TEST_F(MappedDevices, ADeviceThatHangsHoldsUpNothingButItsOwn) {
  ASSERT_NO_FATAL_FAILURE(Start(2));
  ASSERT_NO_FATAL_FAILURE(PutOnSsd(1, 4 * kTensor));  // On both.
  device(0).Hang();
  Send(Op::kAcquire, 1);
  EXPECT_TRUE(Becomes(0, "suspect"));
  EXPECT_TRUE(Becomes(0, "offline", seconds(40)));
  EXPECT_TRUE(Is(1, "online"));
  Trainer other(*daemon_, "other");
  for (unsigned char tensor = 2; tensor <= 5; ++tensor) {
    ASSERT_EQ(other.Put(tensor, kTensor, tensor).header.code, 0);
    ASSERT_EQ(other.Ask(Op::kFlush, {.tensor = tensor}).header.code, 0) << "written to the other device";
    ASSERT_EQ(other.Ask(Op::kDrop, {.tensor = tensor}).header.code, 0);
    EXPECT_TRUE(other.Holds(tensor, tensor));
  }
  device(0).Resume();
  const auto read = trainer_->client().WaitForCompletions(1).at(0);
  EXPECT_EQ(read.header.code, 0) << "what was asked for before is there: " << read.detail;
  EXPECT_EQ(trainer_->Ask(Op::kRelease, {.value = read.spans.at(0).lease}).header.code, 0);
  EXPECT_TRUE(Within(seconds(20), [&] { return !Is(0, "offline"); }));
  EXPECT_TRUE(trainer_->Holds(1, 1));
}

TEST_F(MappedDevices, ASlowDeviceStaysOnline) {
  ASSERT_NO_FATAL_FAILURE(Start(1));
  device(0).Delay(300);
  for (unsigned char tensor = 1; tensor <= 4; ++tensor) ASSERT_NO_FATAL_FAILURE(PutOnSsd(tensor));
  HoldsEach(1, 4);
  EXPECT_TRUE(Is(0, "online"));
}

}  // namespace
}  // namespace tier::crash
