#include "libclient/cuda/process_gpu.h"

#include <cstdlib>
#include <string_view>

#include "libclient/cuda/driver_gpu.h"
#include "libclient/cuda/null_gpu.h"

namespace tier::cuda {
namespace {

std::string_view Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

GpuOptions GpuOptionsFromEnvironment() {
  GpuOptions options;
  options.enabled = Environment("TIER_CUDA") != "off";
  options.library = Environment("TIER_CUDA_LIBRARY");
  return options;
}

std::unique_ptr<Gpu> MakeGpu(const GpuOptions& options) {
  if (!options.enabled) return std::make_unique<NullGpu>("CUDA is switched off (TIER_CUDA=off)");
  return std::make_unique<DriverGpu>(options.library);
}

Gpu& ProcessGpu() {
  static Gpu* const gpu = MakeGpu(GpuOptionsFromEnvironment()).release();
  return *gpu;
}

}  // namespace tier::cuda
