// Finding contexts; see the header.
#include "libclient/cuda/context_set.h"

#include <string>

namespace tier::cuda {
namespace {

driver::DevicePointer AsDevicePointer(const void* pointer) { return reinterpret_cast<driver::DevicePointer>(pointer); }

}  // namespace

ContextSet::~ContextSet() {
  for (const auto& [context, stream] : streams_) {
    const ScopedContext scope(driver_, context);
    if (scope.code() == driver::kSuccess) (void)driver_.call().StreamDestroy(stream);  // Gone with a destroyed context.
  }
  // At exit the driver may have torn its contexts down before; nothing can be done about a refusal.
  for (const auto& [device, context] : primaries_) (void)driver_.call().DevicePrimaryCtxRelease(device);
}

void ContextSet::Abandon() {
  streams_.clear();
  primaries_.clear();
}

Result<driver::Context> ContextSet::HoldPrimary(driver::Device device) {
  const MutexLock lock(mutex_);
  if (const auto held = primaries_.find(device); held != primaries_.end()) return held->second;
  unsigned flags = 0;
  int active = 0;
  const driver::Code state = driver_.call().DevicePrimaryCtxGetState(device, &flags, &active);
  if (state != driver::kSuccess) return std::unexpected(driver_.MakeError(state, "cuDevicePrimaryCtxGetState"));
  if (active == 0) return driver::Context{};
  if (primaries_.size() >= kDevicesMax) {
    return Fail(Code::kNoMemory, "more than " + std::to_string(kDevicesMax) + " devices hold tensors of this process");
  }
  driver::Context context{};
  const driver::Code code = driver_.call().DevicePrimaryCtxRetain(&context, device);
  if (code != driver::kSuccess) return std::unexpected(driver_.MakeError(code, "cuDevicePrimaryCtxRetain"));
  primaries_.emplace(device, context);
  return context;
}

Status ContextSet::HoldCurrent(driver::Context context) {
  {
    const MutexLock lock(mutex_);
    for (const auto& [device, held] : primaries_) {
      if (held == context) return {};
    }
  }
  driver::Device device{};
  if (const driver::Code code = driver_.call().CtxGetDevice(&device); code != driver::kSuccess) {
    return driver_.Check(code, "cuCtxGetDevice");
  }
  const Result<driver::Context> primary = HoldPrimary(device);
  if (!primary) return std::unexpected(primary.error());
  return {};  // A context of the program's own making lives as long as the program says.
}

Result<driver::Context> ContextSet::AnyActive() {
  driver::Context current{};
  const driver::Code code = driver_.call().CtxGetCurrent(&current);
  if (code == driver::kNotInitialized) return driver::Context{};  // The driver is loaded, but not used yet.
  if (code != driver::kSuccess) return std::unexpected(driver_.MakeError(code, "cuCtxGetCurrent"));
  if (current != nullptr) {
    if (Status held = HoldCurrent(current); !held) return std::unexpected(held.error());
    return current;
  }
  int count = 0;
  if (const driver::Code counted = driver_.call().DeviceGetCount(&count); counted != driver::kSuccess) {
    return std::unexpected(driver_.MakeError(counted, "cuDeviceGetCount"));
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    driver::Device device{};
    if (driver_.call().DeviceGet(&device, ordinal) != driver::kSuccess) continue;  // Hidden or lost: look at the next.
    const Result<driver::Context> primary = HoldPrimary(device);
    if (!primary || *primary != nullptr) return primary;
  }
  return driver::Context{};
}

Result<driver::Context> ContextSet::OfPointer(const void* device_pointer) {
  driver::Context context{};
  const auto pointer = AsDevicePointer(device_pointer);
  const driver::Code code =
      driver_.call().PointerGetAttribute(static_cast<void*>(&context), driver::kAttributeContext, pointer);
  if (code != driver::kSuccess) {
    return std::unexpected(driver_.MakeError(code, "cuPointerGetAttribute of a pointer given as device memory"));
  }
  if (context != nullptr) return context;
  int ordinal = 0;
  driver::Device device{};
  driver::Code found =
      driver_.call().PointerGetAttribute(&ordinal, driver::kAttributeDeviceOrdinal, AsDevicePointer(device_pointer));
  if (found == driver::kSuccess) found = driver_.call().DeviceGet(&device, ordinal);
  if (found != driver::kSuccess) return std::unexpected(driver_.MakeError(found, "looking up the device of a pointer"));
  Result<driver::Context> primary = HoldPrimary(device);
  if (primary && *primary == nullptr) {
    return Fail(Code::kInvalid, "device " + std::to_string(ordinal) + " has no active CUDA context: use it once first");
  }
  return primary;
}

Result<driver::Context> ContextSet::OfStream(driver::Stream stream, const void* device_pointer) {
  if (reinterpret_cast<uintptr_t>(stream) <= driver::kDefaultStreamLast) return OfPointer(device_pointer);
  driver::Context context{};
  const driver::Code code = driver_.call().StreamGetCtx(stream, &context);
  if (code != driver::kSuccess) return std::unexpected(driver_.MakeError(code, "cuStreamGetCtx"));
  return context;
}

Result<driver::Stream> ContextSet::OwnStream(driver::Context context) {
  const MutexLock lock(mutex_);
  if (const auto found = streams_.find(context); found != streams_.end()) return found->second;
  if (streams_.size() >= kDevicesMax) {
    return Fail(Code::kNoMemory,
                "more than " + std::to_string(kDevicesMax) + " CUDA contexts hold tensors of this process");
  }
  const ScopedContext scope(driver_, context);
  if (Status pushed = driver_.Check(scope.code(), "cuCtxPushCurrent"); !pushed) return std::unexpected(pushed.error());
  driver::Stream stream{};
  const driver::Code code = driver_.call().StreamCreate(&stream, driver::kStreamNonBlocking);
  if (code != driver::kSuccess) return std::unexpected(driver_.MakeError(code, "cuStreamCreate"));
  streams_.emplace(context, stream);
  return stream;
}

}  // namespace tier::cuda
