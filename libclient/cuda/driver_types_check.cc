// Built only with the toolkit: refuses to compile if the numbers and signatures of driver_types.h are not cuda.h's.
#include <type_traits>

#include <cudaTypedefs.h>

#include "libclient/cuda/driver_types.h"

namespace tier::cuda::driver {

static_assert(kSuccess == CUDA_SUCCESS && kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kDeinitialized == CUDA_ERROR_DEINITIALIZED && kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE && kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kInvalidHandle == CUDA_ERROR_INVALID_HANDLE && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(kHostMemoryAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(kHostMemoryNotRegistered == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
static_assert(kNotPermitted == CUDA_ERROR_NOT_PERMITTED && kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kAttributeContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(kAttributeMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kAttributeIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(kAttributeDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kMemoryTypeHost == CU_MEMORYTYPE_HOST && kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);

// What the declarations without cuda.h assume of the binary interface.
static_assert(sizeof(Code) == sizeof(unsigned) && sizeof(Attribute) == sizeof(unsigned));
static_assert(std::is_same_v<Device, int> && sizeof(DevicePointer) == 8);
static_assert(std::is_unsigned_v<DevicePointer> && std::is_pointer_v<Context>);
static_assert(std::is_pointer_v<Stream> && std::is_pointer_v<EventHandle>);

template <class Ours, class Theirs>
constexpr bool kSame = std::is_same_v<Ours, Theirs>;
static_assert(kSame<decltype(Functions::Init), PFN_cuInit_v2000>);
static_assert(kSame<decltype(Functions::DriverGetVersion), PFN_cuDriverGetVersion_v2020>);
static_assert(kSame<decltype(Functions::GetErrorName), PFN_cuGetErrorName_v6000>);
static_assert(kSame<decltype(Functions::PointerGetAttribute), PFN_cuPointerGetAttribute_v4000>);
static_assert(kSame<decltype(Functions::DeviceGetCount), PFN_cuDeviceGetCount_v2000>);
static_assert(kSame<decltype(Functions::DeviceGet), PFN_cuDeviceGet_v2000>);
static_assert(kSame<decltype(Functions::DeviceGetPCIBusId), PFN_cuDeviceGetPCIBusId_v4010>);
static_assert(kSame<decltype(Functions::DevicePrimaryCtxGetState), PFN_cuDevicePrimaryCtxGetState_v7000>);
static_assert(kSame<decltype(Functions::DevicePrimaryCtxRetain), PFN_cuDevicePrimaryCtxRetain_v7000>);
static_assert(kSame<decltype(Functions::DevicePrimaryCtxRelease), PFN_cuDevicePrimaryCtxRelease_v11000>);
static_assert(kSame<decltype(Functions::CtxGetCurrent), PFN_cuCtxGetCurrent_v4000>);
static_assert(kSame<decltype(Functions::CtxGetDevice), PFN_cuCtxGetDevice_v2000>);
static_assert(kSame<decltype(Functions::CtxPushCurrent), PFN_cuCtxPushCurrent_v4000>);
static_assert(kSame<decltype(Functions::CtxPopCurrent), PFN_cuCtxPopCurrent_v4000>);
static_assert(kSame<decltype(Functions::MemHostRegister), PFN_cuMemHostRegister_v6050>);
static_assert(kSame<decltype(Functions::MemHostUnregister), PFN_cuMemHostUnregister_v4000>);
static_assert(kSame<decltype(Functions::MemcpyHtoDAsync), PFN_cuMemcpyHtoDAsync_v3020>);
static_assert(kSame<decltype(Functions::MemcpyDtoHAsync), PFN_cuMemcpyDtoHAsync_v3020>);
static_assert(kSame<decltype(Functions::StreamCreate), PFN_cuStreamCreate_v2000>);
static_assert(kSame<decltype(Functions::StreamDestroy), PFN_cuStreamDestroy_v4000>);
static_assert(kSame<decltype(Functions::StreamGetCtx), PFN_cuStreamGetCtx_v9020>);
static_assert(kSame<decltype(Functions::StreamWaitEvent), PFN_cuStreamWaitEvent_v3020>);
static_assert(kSame<decltype(Functions::EventCreate), PFN_cuEventCreate_v2000>);
static_assert(kSame<decltype(Functions::EventRecord), PFN_cuEventRecord_v2000>);
static_assert(kSame<decltype(Functions::EventQuery), PFN_cuEventQuery_v2000>);
static_assert(kSame<decltype(Functions::EventSynchronize), PFN_cuEventSynchronize_v2000>);
static_assert(kSame<decltype(Functions::EventDestroy), PFN_cuEventDestroy_v4000>);

}  // namespace tier::cuda::driver
