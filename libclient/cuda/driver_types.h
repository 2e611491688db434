// The types and numbers of the CUDA driver API that the shim uses. With the toolkit at build time they are cuda.h's
// own; without it, declarations of the same binary interface. driver_types_check.cc compares them where both exist.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(TIER_CUDA_TOOLKIT)
#include <cuda.h>
#endif

namespace tier::cuda::driver {

#if defined(TIER_CUDA_TOOLKIT)
using Code = ::CUresult;
using Attribute = ::CUpointer_attribute;
using Device = ::CUdevice;
using DevicePointer = ::CUdeviceptr;
using Context = ::CUcontext;
using Stream = ::CUstream;
using EventHandle = ::CUevent;
#else
enum Code : unsigned {};
enum Attribute : unsigned {};
using Device = int;
using DevicePointer = unsigned long long;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using EventHandle = struct EventTag*;
#endif

inline constexpr auto kSuccess = static_cast<Code>(0);
inline constexpr auto kInvalidValue = static_cast<Code>(1);
inline constexpr auto kOutOfMemory = static_cast<Code>(2);
inline constexpr auto kNotInitialized = static_cast<Code>(3);
inline constexpr auto kDeinitialized = static_cast<Code>(4);
inline constexpr auto kNoDevice = static_cast<Code>(100);
inline constexpr auto kInvalidDevice = static_cast<Code>(101);
inline constexpr auto kInvalidContext = static_cast<Code>(201);
inline constexpr auto kInvalidHandle = static_cast<Code>(400);
inline constexpr auto kNotReady = static_cast<Code>(600);
inline constexpr auto kContextIsDestroyed = static_cast<Code>(709);
inline constexpr auto kHostMemoryAlreadyRegistered = static_cast<Code>(712);
inline constexpr auto kHostMemoryNotRegistered = static_cast<Code>(713);
inline constexpr auto kNotPermitted = static_cast<Code>(800);
inline constexpr auto kNotSupported = static_cast<Code>(801);

inline constexpr auto kAttributeContext = static_cast<Attribute>(1);
inline constexpr auto kAttributeMemoryType = static_cast<Attribute>(2);
inline constexpr auto kAttributeIsManaged = static_cast<Attribute>(8);
inline constexpr auto kAttributeDeviceOrdinal = static_cast<Attribute>(9);

inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;

// Handles up to this one are not objects: null and 1 are the legacy default stream, 2 the per-thread one.
inline constexpr uintptr_t kDefaultStreamLast = 2;

// The oldest driver whose functions are asked for: 11.3 introduced cuGetProcAddress.
inline constexpr int kDriverVersion = 11030;

// One member per function, named like it without "cu".
struct Functions {
  Code (*Init)(unsigned flags) = nullptr;
  Code (*DriverGetVersion)(int* version) = nullptr;
  Code (*GetErrorName)(Code code, const char** name) = nullptr;
  Code (*PointerGetAttribute)(void* value, Attribute attribute, DevicePointer pointer) = nullptr;
  Code (*DeviceGetCount)(int* count) = nullptr;
  Code (*DeviceGet)(Device* device, int ordinal) = nullptr;
  Code (*DeviceGetPCIBusId)(char* address, int size, Device device) = nullptr;
  Code (*DevicePrimaryCtxGetState)(Device device, unsigned* flags, int* active) = nullptr;
  Code (*DevicePrimaryCtxRetain)(Context* context, Device device) = nullptr;
  Code (*DevicePrimaryCtxRelease)(Device device) = nullptr;
  Code (*CtxGetCurrent)(Context* context) = nullptr;
  Code (*CtxGetDevice)(Device* device) = nullptr;
  Code (*CtxPushCurrent)(Context context) = nullptr;
  Code (*CtxPopCurrent)(Context* context) = nullptr;
  Code (*MemHostRegister)(void* address, size_t bytes, unsigned flags) = nullptr;
  Code (*MemHostUnregister)(void* address) = nullptr;
  Code (*MemcpyHtoDAsync)(DevicePointer target, const void* source, size_t bytes, Stream stream) = nullptr;
  Code (*MemcpyDtoHAsync)(void* target, DevicePointer source, size_t bytes, Stream stream) = nullptr;
  Code (*StreamCreate)(Stream* stream, unsigned flags) = nullptr;
  Code (*StreamDestroy)(Stream stream) = nullptr;
  Code (*StreamGetCtx)(Stream stream, Context* context) = nullptr;
  Code (*StreamWaitEvent)(Stream stream, EventHandle event, unsigned flags) = nullptr;
  Code (*EventCreate)(EventHandle* event, unsigned flags) = nullptr;
  Code (*EventRecord)(EventHandle event, Stream stream) = nullptr;
  Code (*EventQuery)(EventHandle event) = nullptr;
  Code (*EventSynchronize)(EventHandle event) = nullptr;
  Code (*EventDestroy)(EventHandle event) = nullptr;
};

}  // namespace tier::cuda::driver
