#include "libclient/swap/device_copy.h"

namespace tier::swap {

using cuda::Gpu;
using cuda::ProcessGpu;

Result<std::unique_ptr<DevicePort>> DevicePort::Open(const CopyRequest& request) {
  Gpu& gpu = ProcessGpu();
  if (!gpu.IsDevicePointer(request.memory)) {
    if (request.stream == nullptr) return nullptr;
    return Fail(Code::kInvalid, "a stream was given, but the pointer is not device memory (" + gpu.reason() + ")");
  }
  auto port = std::make_unique<DevicePort>();
  auto stream = gpu.OwnStream(request.memory);
  if (!stream) return std::unexpected(stream.error());
  port->stream_ = *stream;
  auto before = gpu.RecordEvent(request.stream, request.memory);
  if (!before) return std::unexpected(before.error());
  port->before_ = std::move(*before);
  return port;
}

Status DevicePort::Order() {
  if (ordered_) return {};
  ordered_ = true;
  return ProcessGpu().StreamWait(stream_, before_);
}

Status DevicePort::Move(Direction direction, std::byte* device, std::span<const Segment> host) {
  if (auto ordered = Order(); !ordered) return ordered;
  std::vector<cuda::DeviceCopy> copies;
  for (const Segment& segment : host) {
    copies.push_back({device, segment.data, segment.length});
    device += segment.length;
  }
  if (direction == Direction::kOut) return ProcessGpu().CopyFromDeviceAsync(copies, stream_);
  return ProcessGpu().CopyToDeviceAsync(copies, stream_);
}

Result<cuda::Event> DevicePort::Start(client::Session& session, const CopyRequest& request, const client::Lease& lease,
                                      std::span<const Segment> segments) {
  (void)session.pinned().Pin(ProcessGpu(), lease.runs);  // Unpinned copies are slower, not wrong.
  const auto moved = Move(request.direction, request.MemoryAt(lease.offset), segments);
  auto end = ProcessGpu().RecordEvent(stream_, request.memory);
  if (moved) return end;
  // Parts of it may be queued: the lease must not end under them.
  if (end) (void)ProcessGpu().WaitEvent(*end);
  return std::unexpected(moved.error());
}

Result<RangeOutcome> DevicePort::CopyThroughHost(const CopyRequest& request, uint64_t tensor_offset,
                                                 std::span<const Segment> segments) {
  uint64_t length = 0;
  for (const Segment& segment : segments) length += segment.length;
  const uint64_t tensor_element = copy::ElementSize(request.tensor_type);
  const uint64_t memory_element = copy::ElementSize(request.memory_type);
  buffer_.resize(length / tensor_element * memory_element);
  const Segment whole{buffer_.data(), buffer_.size()};
  const auto move = [&]() -> Status {
    if (auto moved = Move(request.direction, request.MemoryAt(tensor_offset), {&whole, 1}); !moved) return moved;
    auto end = ProcessGpu().RecordEvent(stream_, request.memory);
    if (!end) return std::unexpected(end.error());
    return ProcessGpu().WaitEvent(*end);
  };
  const bool out = request.direction == Direction::kOut;
  if (out) {
    if (auto moved = move(); !moved) return std::unexpected(moved.error());
  }
  const RangeOutcome outcome = CopyRange(request, tensor_offset, buffer_.data(), segments);
  if (!out) {
    if (auto moved = move(); !moved) return std::unexpected(moved.error());
  }
  return outcome;
}

}  // namespace tier::swap
