// One client as the fake sees it: its socket, its region, its rings.
#pragma once

#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/session_fake/fake_daemon.h"

namespace tier::session_fake {

struct FakeDaemon::Client {
  proto::FileDescriptor socket;
  proto::FileDescriptor doorbell;
  proto::FileDescriptor region_fd;
  proto::Mapping region;
  std::optional<proto::RingConsumer> requests;
  std::optional<proto::RingProducer> completions;
  std::vector<Request> held;
  bool greeted = false;
  bool has_token = false;  // Its hello had the one of every welcome.
  bool gone = false;

  void MakeRegion(uint64_t epoch, uint64_t session) {
    region_fd = std::move(*proto::CreateMemoryFile("fake-session", proto::kSessionRegionSize));
    region = std::move(*proto::Mapping::Map(region_fd.get(), 0, proto::kSessionRegionSize, proto::Access::kReadWrite));
    auto& header = *reinterpret_cast<proto::SessionHeader*>(region.data());
    header = {proto::kSessionMagic,
              proto::kRingLayoutVersion,
              proto::kRequestEntries,
              proto::kCompletionEntries,
              0,
              epoch,
              session,
              proto::kRequestOffset,
              proto::kCompletionOffset,
              proto::kSessionRegionSize};
    requests.emplace(proto::RequestRing(region.data()));
    completions.emplace(proto::CompletionRing(region.data()));
  }

  void SendWith(const void* message, uint32_t size, std::span<const int> fds) {
    iovec part{const_cast<void*>(message), size};
    alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
    }
    if (::sendmsg(socket.get(), &header, MSG_NOSIGNAL) < 0) gone = true;
  }

  void PublishStaged() {
    completions->Publish();
    WakeConsumer();
  }

  void WakeConsumer() {
    auto& control = *proto::CompletionRing(region.data()).control;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (control.consumer_waiting.exchange(0) == 0) return;
    control.wake_sequence.fetch_add(1);
    ::syscall(SYS_futex, &control.wake_sequence, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  void BreakTail() {
    proto::CompletionRing(region.data()).control->tail.fetch_add(proto::kCompletionEntries + 1);
    WakeConsumer();
  }
};

}  // namespace tier::session_fake
