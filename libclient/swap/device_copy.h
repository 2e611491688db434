// DevicePort: the GPU side of one swap: its place in the caller's stream, and copies between device memory and leases.
//
// The copies run on a stream of the shim's own, after all work that the caller had queued when it started the swap.
// Threads: one at a time in Start and CopyThroughHost (ensured by CopyOperation::Claim); any in Await.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "libclient/client/session.h"
#include "libclient/cuda/process_gpu.h"
#include "libclient/swap/copy_request.h"
#include "libclient/swap/range_copy.h"

namespace tier::swap {

class DevicePort {
 public:
  // Null when the request's memory is host memory. Called on the caller's thread: it marks the position in the stream.
  static Result<std::unique_ptr<DevicePort>> Open(const CopyRequest& request);

  // Queues the copy of one range and marks its end. Pins the windows of `lease` first; where the driver refuses, the
  // copy goes on unpinned.
  Result<cuda::Event> Start(client::Session& session, const CopyRequest& request, const client::Lease& lease,
                            std::span<const Segment> segments);
  // Copies through a buffer of this port, when elements are cast, checked or summed. Blocks until copied.
  Result<RangeOutcome> CopyThroughHost(const CopyRequest& request, uint64_t tensor_offset,
                                       std::span<const Segment> segments);
  static Status Await(const cuda::Event& event) { return cuda::ProcessGpu().WaitEvent(event); }

 private:
  Status Order();
  Status Move(Direction direction, std::byte* device, std::span<const Segment> host);

  cuda::StreamHandle stream_ = nullptr;
  cuda::Event before_;  // After the work that the caller had queued.
  bool ordered_ = false;
  std::vector<std::byte> buffer_;
};

}  // namespace tier::swap
