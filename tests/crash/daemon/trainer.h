// Trainer: a client of a real daemon that maps its windows, puts tensors of one byte and looks at them.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/base/check.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/support/session/data_client.h"

namespace tier::crash {

class Trainer {
 public:
  Trainer(const DaemonProcess& daemon, const std::string& job) : Trainer(daemon, session::testing::MakeHello(job)) {}
  Trainer(const DaemonProcess& daemon, const proto::Hello& hello)
      : client_(daemon.socket()), welcome_(client_.Attach(hello)) {}

  session::testing::ReceivedCompletion Ask(proto::Op op, proto::RequestItem item, uint32_t flags = 0) {
    EXPECT_TRUE(client_.ring().Send(op, {&item, 1}, flags));
    client_.Ring();
    return client_.WaitForCompletions(1).at(0);
  }
  // Creates a tensor, fills it, seals it.
  session::testing::ReceivedCompletion Put(uint64_t tensor, uint64_t size, unsigned char byte) {
    auto created = Ask(proto::Op::kCreate, {.tensor = tensor, .offset = 0, .length = size, .value = size});
    if (created.header.code != 0) return created;
    for (const proto::SpanRecord& span : created.spans) std::memset(Place(span), byte, span.length);
    return Ask(proto::Op::kRelease, {.value = created.spans.at(0).lease});
  }
  // Sends one request, and returns its answer.
  session::testing::ReceivedCompletion AskAll(proto::Op op, const std::vector<proto::RequestItem>& items) {
    EXPECT_TRUE(client_.ring().Send(op, items, 0));
    client_.Ring();
    return client_.WaitForCompletions(1).at(0);
  }
  // Creates and seals tensors [first, first + count) in one request each; their bytes stay what they are.
  void PutAll(uint64_t first, uint64_t count, uint64_t size) {
    std::vector<proto::RequestItem> items;
    for (uint64_t i = 0; i < count; ++i) items.push_back({.tensor = first + i, .length = size, .value = size});
    const auto created = AskAll(proto::Op::kCreate, items);
    ASSERT_EQ(created.header.code, 0) << created.detail;
    items.clear();
    for (const proto::SpanRecord& span : created.spans) {
      (void)Place(span);
      items.push_back({.value = span.lease});
    }
    ASSERT_EQ(AskAll(proto::Op::kRelease, items).header.code, 0);
  }
  // Whether the tensor holds that byte throughout.
  bool Holds(uint64_t tensor, unsigned char byte) {
    const auto acquired = Ask(proto::Op::kAcquire, {.tensor = tensor});
    EXPECT_EQ(acquired.header.code, 0) << acquired.detail;
    bool same = acquired.header.code == 0;
    for (const proto::SpanRecord& span : acquired.spans) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(Place(span));
      for (uint64_t i = 0; i < span.length; ++i) same &= bytes[i] == byte;
    }
    if (!acquired.spans.empty()) (void)Ask(proto::Op::kRelease, {.value = acquired.spans[0].lease});
    return same;
  }
  // As only a hostile client does: every window it has seen loses its bytes.
  void PunchWindows() {
    for (const auto& [window, mapping] : windows_) {
      ASSERT_EQ(::fallocate(window_files_.at(window).get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                            static_cast<off_t>(mapping.size())),
                0);
    }
  }
  // Unmaps what the daemon asks back within this time, and says so.
  void ReturnWindows(std::chrono::milliseconds time) {
    pollfd socket{.fd = client_.socket(), .events = POLLIN, .revents = 0};
    while (::poll(&socket, 1, static_cast<int>(time.count())) == 1) {
      session::testing::IncomingPacket packet = client_.Receive();
      TIER_CHECK(packet.kind() == proto::PacketKind::kWindowReturn, "kind {}", static_cast<int>(packet.kind()));
      auto returned = packet.As<proto::WindowReturnPacket>();
      windows_.erase(returned.window);
      window_files_.erase(returned.window);
      returned.header.kind = static_cast<uint16_t>(proto::PacketKind::kWindowReturned);
      TIER_CHECK(client_.Send(returned), "window {}", returned.window);
    }
  }
  session::testing::DataClient& client() { return client_; }
  const proto::Welcome& welcome() const { return welcome_; }

 private:
  std::byte* Place(const proto::SpanRecord& span) {
    while (!windows_.contains(span.window)) {
      session::testing::IncomingPacket packet = client_.Receive();
      TIER_CHECK(packet.kind() == proto::PacketKind::kWindow, "kind {}", static_cast<int>(packet.kind()));
      const auto window = packet.As<proto::WindowPacket>();
      windows_[window.window] =
          proto::Mapping::Map(packet.descriptors.at(0).get(), 0, window.size, proto::Access::kReadWrite).value();
      window_files_[window.window] = std::move(packet.descriptors.at(0));
    }
    return windows_.at(span.window).data() + span.offset;
  }

  session::testing::DataClient client_;
  proto::Welcome welcome_;
  std::map<uint32_t, proto::Mapping> windows_;
  std::map<uint32_t, proto::FileDescriptor> window_files_;
};

}  // namespace tier::crash
