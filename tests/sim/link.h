// Link: a simulated process's end of its session, made of libtier's own parts: a Channel over the real session region
// and a WindowMap. A call that would sleep lets the simulated world go on instead.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/memory/window_source.h"
#include "libclient/client/channel.h"
#include "libclient/client/window_map.h"
#include "tests/sim/daemon_side.h"
#include "tests/sim/plan.h"

namespace tier::tiering::sim {

// Sleeps by letting the world go on. As the futex does, it wakes when the word has changed, at the deadline, and
// sometimes for no reason.
class SimWaiter final : public client::Waiter {
 public:
  SimWaiter(const base::TimePoint& now, Chance& chance, std::function<void()> step)
      : now_(now), chance_(chance), step_(std::move(step)) {}
  client::Clock::time_point Now() override { return client::Clock::time_point(now_.since_start); }
  void Sleep(std::atomic<uint32_t>& word, uint32_t expected, client::Clock::time_point deadline) override;
  void WakeAll(std::atomic<uint32_t>&) override {}

 private:
  const base::TimePoint& now_;
  Chance& chance_;
  std::function<void()> step_;
};

struct LinkOptions {
  int page = -1;  // Descriptor of the daemon's engine page.
  uint32_t windows_max = 0;
  uint64_t address_space = 0;  // Bytes.
};

class Link {
 public:
  Link(AttachedSession session, const LinkOptions& options, SimWaiter& waiter);

  client::Channel& channel() { return channel_; }
  client::WindowMap& windows() { return *windows_; }
  std::byte* region() { return region_.data(); }
  void RingDoorbell();

  // Packets of the daemon, in their order.
  void Deliver(const memory::WindowShape& window, std::shared_ptr<const proto::FileDescriptor> file);
  void DeliverReturn(WindowIndex window);
  // Takes the next one in, as libtier's service thread does. Returns the window that was given back, or nothing; an
  // error when libtier would end the session.
  Result<std::optional<WindowIndex>> ServePacket();
  bool has_packets() const { return !packets_.empty(); }

 private:
  struct Packet {
    memory::WindowShape window;
    std::shared_ptr<const proto::FileDescriptor> file;  // Null: the window is asked back.
  };
  proto::Mapping region_;
  proto::Mapping page_;
  proto::FileDescriptor doorbell_;
  client::Channel channel_;
  std::unique_ptr<client::WindowMap> windows_;
  std::deque<Packet> packets_;
};

}  // namespace tier::tiering::sim
