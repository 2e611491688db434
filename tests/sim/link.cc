// See link.h.
#include "tests/sim/link.h"

#include <sys/eventfd.h>

#include <utility>

#include "proto/handshake.h"

namespace tier::tiering::sim {
namespace {

constexpr std::chrono::milliseconds kRequestTimeout{100};  // The simulated engine's default.

proto::WindowPacket PacketOf(const memory::WindowShape& window) {
  return {.header = {},
          .window = Value(window.index),
          .kind = static_cast<uint16_t>(window.kind),
          .reserved0 = 0,
          .page_size = window.page_size,
          .reserved1 = 0,
          .size = window.size,
          .place = window.place};
}

proto::Mapping MapRegion(const AttachedSession& session) {
  return proto::Mapping::Map(session.region.get(), 0, proto::kSessionRegionSize, proto::Access::kReadWrite).value();
}

}  // namespace

void SimWaiter::Sleep(std::atomic<uint32_t>& word, uint32_t expected, client::Clock::time_point deadline) {
  // Rarely for no reason: else a wake-up that is lost would not be seen.
  uint64_t steps = chance_.OneIn(4) ? chance_.Between(1, 8) : UINT64_MAX;
  while (steps-- != 0 && word.load() == expected && Now() < deadline) step_();
}

Link::Link(AttachedSession session, const LinkOptions& options, SimWaiter& waiter)
    : region_(MapRegion(session)),
      page_(proto::Mapping::Map(options.page, 0, kPageSize, proto::Access::kReadOnly).value()),
      doorbell_(std::move(session.doorbell)),
      channel_(region_.data(), reinterpret_cast<const proto::EnginePage*>(page_.data()), doorbell_.get(),
               {.spin = client::SpinMode::kNever, .request_timeout = kRequestTimeout, .waiter = &waiter}),
      windows_(client::WindowMap::Reserve(options.windows_max, options.address_space).value()) {}

void Link::RingDoorbell() { (void)::eventfd_write(doorbell_.get(), 1); }

void Link::Deliver(const memory::WindowShape& window, std::shared_ptr<const proto::FileDescriptor> file) {
  packets_.push_back({window, std::move(file)});
}

void Link::DeliverReturn(WindowIndex window) { packets_.push_back({{.index = window}, nullptr}); }

Result<std::optional<WindowIndex>> Link::ServePacket() {
  const Packet packet = std::move(packets_.front());
  packets_.pop_front();
  const Status served = packet.file == nullptr ? windows_->Unmap(Value(packet.window.index))
                                               : windows_->Map(PacketOf(packet.window), packet.file->get());
  if (!served) return std::unexpected(served.error());
  if (packet.file != nullptr) return std::optional<WindowIndex>();
  return std::optional(packet.window.index);
}

}  // namespace tier::tiering::sim
