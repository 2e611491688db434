// Which Gpu a process gets: the driver's, or the null twin.
//
// Thread-safety: every function from any thread. The environment is read at the first call of ProcessGpu.
#pragma once

#include <memory>
#include <string>

#include "libclient/cuda/gpu.h"

namespace tier::cuda {

struct GpuOptions {
  bool enabled = true;  // False: the null twin.
  std::string library;  // Path of the driver; empty: libcuda.so.1, and only if the process has loaded it.
};
// From TIER_CUDA and TIER_CUDA_LIBRARY.
GpuOptions GpuOptionsFromEnvironment();
// A separate Gpu, for tests. Unregisters its windows and releases its streams and contexts when destroyed.
std::unique_ptr<Gpu> MakeGpu(const GpuOptions& options);
// The Gpu of this process. It is never destroyed: at exit the driver may be gone already.
Gpu& ProcessGpu();

}  // namespace tier::cuda
