#include "libclient/swap/swap_handle.h"

namespace tier::swap {

Result<std::shared_ptr<Operation>> StartSwap(const std::shared_ptr<CopyScheduler>& scheduler,
                                             const CopyRequest& request) {
  if (auto fits = CheckRequest(request); !fits) return std::unexpected(fits.error());
  auto device = DevicePort::Open(request);
  if (!device) return std::unexpected(device.error());
  auto swap = scheduler->Start(request, std::move(*device));
  if (!swap) return std::unexpected(swap.error());
  return std::make_shared<SwapHandle>(scheduler, std::move(*swap));
}

}  // namespace tier::swap
