// Finding the driver and its functions. cuGetProcAddress hands out, for each name, the variant of API version 11.3 with
// the legacy default stream; no suffixed symbol is ever looked up by hand.
#include "libclient/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <utility>

namespace tier::cuda {
namespace {

using GetProcAddress11 = driver::Code (*)(const char* name, void** function, int version, uint64_t flags);
using GetProcAddress12 = driver::Code (*)(const char* name, void** function, int version, uint64_t flags, void* status);

Code CodeFor(driver::Code code) {
  switch (static_cast<unsigned>(code)) {
    case static_cast<unsigned>(driver::kOutOfMemory): return Code::kNoMemory;
    case static_cast<unsigned>(driver::kInvalidValue):
    case static_cast<unsigned>(driver::kInvalidContext):
    case static_cast<unsigned>(driver::kInvalidHandle):
    case static_cast<unsigned>(driver::kInvalidDevice): return Code::kInvalid;
    case static_cast<unsigned>(driver::kNotInitialized):
    case static_cast<unsigned>(driver::kDeinitialized):
    case static_cast<unsigned>(driver::kNoDevice):
    case static_cast<unsigned>(driver::kNotPermitted):
    case static_cast<unsigned>(driver::kNotSupported): return Code::kDenied;
    default: return Code::kIoError;
  }
}

// Either generation of the one entry point that is looked up by name.
class SymbolFinder {
 public:
  explicit SymbolFinder(void* library)
      : get12_(reinterpret_cast<GetProcAddress12>(dlsym(library, "cuGetProcAddress_v2"))),
        get11_(reinterpret_cast<GetProcAddress11>(dlsym(library, "cuGetProcAddress"))) {}
  bool usable() const { return get12_ != nullptr || get11_ != nullptr; }

  template <class Function>
  bool Find(const char* name, Function* function) const {
    void* found = nullptr;
    const driver::Code code = get12_ != nullptr ? get12_(name, &found, driver::kDriverVersion, 0, nullptr)
                                                : get11_(name, &found, driver::kDriverVersion, 0);
    if (code != driver::kSuccess || found == nullptr) return false;
    *function = reinterpret_cast<Function>(found);
    return true;
  }

 private:
  GetProcAddress12 get12_;
  GetProcAddress11 get11_;
};

}  // namespace

uint64_t LibrariesLoaded() {
  uint64_t loaded = 0;
  const auto first_only = [](dl_phdr_info* module, size_t, void* count) {
    *static_cast<uint64_t*>(count) = module->dlpi_adds;
    return 1;
  };
  (void)dl_iterate_phdr(first_only, &loaded);  // Answers with what the callback returns.
  return loaded;
}

Result<std::unique_ptr<Driver>> Driver::Open(const std::string& library, OpenHow how) {
  const int flags = RTLD_NOW | RTLD_LOCAL | (how == OpenHow::kIfLoaded ? RTLD_NOLOAD : 0);
  void* const handle = dlopen(library.c_str(), flags);
  if (handle == nullptr) {
    const char* const why = dlerror();
    if (how == OpenHow::kIfLoaded) return std::unique_ptr<Driver>();
    return Fail(Code::kDenied,
                std::string("no CUDA driver: ") + (why != nullptr ? why : library + " cannot be loaded"));
  }
  std::unique_ptr<Driver> driver(new Driver(handle, library));
  if (Status resolved = driver->Resolve(); !resolved) return std::unexpected(resolved.error());
  return driver;
}

Driver::~Driver() { (void)dlclose(handle_); }  // Gives back one count; the trainer's own keeps the library.

Status Driver::Resolve() {
  const SymbolFinder finder(handle_);
  if (!finder.usable()) {
    return Fail(Code::kDenied, library_ + " has no cuGetProcAddress: install an NVIDIA driver of CUDA 11.3 or newer");
  }
  driver::Functions& f = functions_;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    if (!finder.Find(name, function) && missing == nullptr) missing = name;
  };
  find("cuInit", &f.Init);
  find("cuDriverGetVersion", &f.DriverGetVersion);
  find("cuGetErrorName", &f.GetErrorName);
  find("cuPointerGetAttribute", &f.PointerGetAttribute);
  find("cuDeviceGetCount", &f.DeviceGetCount);
  find("cuDeviceGet", &f.DeviceGet);
  find("cuDeviceGetPCIBusId", &f.DeviceGetPCIBusId);
  find("cuDevicePrimaryCtxGetState", &f.DevicePrimaryCtxGetState);
  find("cuDevicePrimaryCtxRetain", &f.DevicePrimaryCtxRetain);
  find("cuDevicePrimaryCtxRelease", &f.DevicePrimaryCtxRelease);
  find("cuCtxGetCurrent", &f.CtxGetCurrent);
  find("cuCtxGetDevice", &f.CtxGetDevice);
  find("cuCtxPushCurrent", &f.CtxPushCurrent);
  find("cuCtxPopCurrent", &f.CtxPopCurrent);
  find("cuMemHostRegister", &f.MemHostRegister);
  find("cuMemHostUnregister", &f.MemHostUnregister);
  find("cuMemcpyHtoDAsync", &f.MemcpyHtoDAsync);
  find("cuMemcpyDtoHAsync", &f.MemcpyDtoHAsync);
  find("cuStreamCreate", &f.StreamCreate);
  find("cuStreamDestroy", &f.StreamDestroy);
  find("cuStreamGetCtx", &f.StreamGetCtx);
  find("cuStreamWaitEvent", &f.StreamWaitEvent);
  find("cuEventCreate", &f.EventCreate);
  find("cuEventRecord", &f.EventRecord);
  find("cuEventQuery", &f.EventQuery);
  find("cuEventSynchronize", &f.EventSynchronize);
  find("cuEventDestroy", &f.EventDestroy);
  if (missing == nullptr) return {};
  return Fail(Code::kDenied, library_ + " has no " + missing + ": install an NVIDIA driver of CUDA 11.3 or newer");
}

std::string Driver::ErrorName(driver::Code code) const {
  const char* name = nullptr;
  if (functions_.GetErrorName(code, &name) == driver::kSuccess && name != nullptr) return name;
  return "CUDA error " + std::to_string(static_cast<unsigned>(code));
}

Error Driver::MakeError(driver::Code code, const std::string& what) const {
  return {CodeFor(code), ErrorName(code) + " from " + what};
}

Status Driver::Check(driver::Code code, const std::string& what) const {
  if (code == driver::kSuccess) return {};
  return std::unexpected(MakeError(code, what));
}

}  // namespace tier::cuda
