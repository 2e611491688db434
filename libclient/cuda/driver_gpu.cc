// Gpu over the driver; see the header.
#include "libclient/cuda/driver_gpu.h"

#include <unistd.h>

#include <array>
#include <utility>

namespace tier::cuda {
namespace {

constexpr const char* kDefaultLibrary = "libcuda.so.1";

driver::DevicePointer AsDevicePointer(const void* pointer) { return reinterpret_cast<driver::DevicePointer>(pointer); }
driver::Stream AsStream(StreamHandle stream) { return static_cast<driver::Stream>(stream); }
driver::EventHandle AsEvent(const Event& event) { return static_cast<driver::EventHandle>(event.handle()); }
driver::Context AsContext(void* context) { return static_cast<driver::Context>(context); }

std::string Bytes(uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

std::unexpected<Error> InAChild() {
  return Fail(Code::kDenied, "CUDA cannot be used in a forked child: connect again from a process started by exec");
}

// Registrations end with their context and with the driver.
bool IsGone(driver::Code code) {
  return code == driver::kHostMemoryNotRegistered || code == driver::kDeinitialized ||
         code == driver::kContextIsDestroyed || code == driver::kInvalidContext;
}

}  // namespace

DriverGpu::DriverGpu(std::string library)
    : library_(library.empty() ? kDefaultLibrary : std::move(library)),
      only_if_loaded_(library_ == kDefaultLibrary),
      process_(getpid()) {}

DriverGpu::~DriverGpu() {
  Session* const session = session_.load(std::memory_order_acquire);
  if (session == nullptr) return;
  if (Forked()) {  // The driver's state is invalid in a child: touch nothing, close nothing.
    session->contexts.Abandon();
    (void)session->driver.release();
    return;
  }
  for (void* const address : windows_.OwnAddresses()) {
    (void)UnregisterWindow(address);  // Best effort: there is no caller left for an error.
  }
  delete session;
}

bool DriverGpu::Forked() const { return getpid() != process_; }

GpuState DriverGpu::state() const {
  if (Forked()) return GpuState::kFailed;
  const MutexLock lock(load_mutex_);
  if (session_.load(std::memory_order_acquire) != nullptr && failure_.empty()) return GpuState::kReady;
  return failure_.empty() ? GpuState::kAbsent : GpuState::kFailed;
}

std::string DriverGpu::reason() const {
  if (Forked()) return InAChild().error().message;
  const MutexLock lock(load_mutex_);
  if (!failure_.empty()) return failure_;
  if (session_.load(std::memory_order_acquire) != nullptr) return "CUDA driver " + library_ + " in use";
  return "no CUDA driver has been loaded by this process";
}

Status DriverGpu::Open(OpenHow how) {
  if (session_.load(std::memory_order_acquire) != nullptr) return {};
  if (!failure_.empty()) return Fail(Code::kDenied, failure_);
  Result<std::unique_ptr<Driver>> driver = Driver::Open(library_, how);
  if (!driver) {
    failure_ = driver.error().message;
    return std::unexpected(driver.error());
  }
  if (*driver != nullptr) session_.store(new Session(std::move(*driver)), std::memory_order_release);
  return {};
}

DriverGpu::Session* DriverGpu::SessionIfPresent() {
  if (Session* const session = session_.load(std::memory_order_acquire)) return session;
  const uint64_t loaded = LibrariesLoaded();
  if (only_if_loaded_ && loaded == looked_at_.load(std::memory_order_relaxed)) return nullptr;
  const MutexLock lock(load_mutex_);
  (void)Open(only_if_loaded_ ? OpenHow::kIfLoaded : OpenHow::kLoad);  // A failure is kept in failure_.
  looked_at_.store(loaded, std::memory_order_relaxed);
  return session_.load(std::memory_order_acquire);
}

Result<DriverGpu::Session*> DriverGpu::SessionForDevice() {
  if (Forked()) return InAChild();
  const MutexLock lock(load_mutex_);
  if (Status opened = Open(OpenHow::kLoad); !opened) return std::unexpected(opened.error());
  Session* const session = session_.load(std::memory_order_acquire);
  if (!initialised_) {
    const driver::Code code = session->driver->call().Init(0);
    if (code != driver::kSuccess) {
      failure_ = session->driver->ErrorName(code) + " from cuInit of " + library_;
      return std::unexpected(session->driver->MakeError(code, "cuInit of " + library_));
    }
    failure_.clear();
    initialised_ = true;
  }
  return session;
}

std::string DriverGpu::PciAddress() {
  Session* const session = Forked() ? nullptr : SessionIfPresent();
  if (session == nullptr) return {};
  const Result<driver::Context> context = session->contexts.AnyActive();
  if (!context || *context == nullptr) return {};
  const ScopedContext scope(*session->driver, *context);
  driver::Device device{};
  std::array<char, 32> address{};
  const driver::Functions& call = session->driver->call();
  if (scope.code() != driver::kSuccess || call.CtxGetDevice(&device) != driver::kSuccess) return {};
  const driver::Code code = call.DeviceGetPCIBusId(address.data(), static_cast<int>(address.size() - 1), device);
  return code == driver::kSuccess ? std::string(address.data()) : std::string();
}

bool DriverGpu::IsDevicePointer(const void* pointer) {
  if (pointer == nullptr || Forked()) return false;
  Session* const session = SessionIfPresent();
  if (session == nullptr) return false;
  const driver::Functions& call = session->driver->call();
  unsigned type = 0;
  const driver::Code code = call.PointerGetAttribute(&type, driver::kAttributeMemoryType, AsDevicePointer(pointer));
  if (code != driver::kSuccess) return false;  // Memory that CUDA has never heard of.
  if (type != driver::kMemoryTypeHost) return true;
  unsigned managed = 0;
  const driver::Code asked = call.PointerGetAttribute(&managed, driver::kAttributeIsManaged, AsDevicePointer(pointer));
  return asked == driver::kSuccess && managed != 0;
}

Result<RegisterOutcome> DriverGpu::RegisterWindow(void* address, uint64_t size_bytes) {
  if (Forked()) return InAChild();
  Session* const session = SessionIfPresent();
  if (session == nullptr) {
    const MutexLock lock(load_mutex_);
    if (!failure_.empty()) return Fail(Code::kDenied, failure_);
    return RegisterOutcome::kNoContext;
  }
  const MutexLock lock(registration_mutex_);
  const Result<bool> known = windows_.Known(address, size_bytes);
  if (!known) return std::unexpected(known.error());
  if (*known) return RegisterOutcome::kAlreadyRegistered;
  return RegisterIn(*session, address, size_bytes);
}

Result<RegisterOutcome> DriverGpu::RegisterIn(Session& session, void* address, uint64_t size_bytes) {
  const Result<driver::Context> context = session.contexts.AnyActive();
  if (!context) return std::unexpected(context.error());
  if (*context == nullptr) return RegisterOutcome::kNoContext;
  const Driver& driver = *session.driver;
  const ScopedContext scope(driver, *context);
  if (Status pushed = driver.Check(scope.code(), "cuCtxPushCurrent"); !pushed) return std::unexpected(pushed.error());
  const driver::Code code = driver.call().MemHostRegister(address, size_bytes, driver::kHostRegisterPortable);
  if (code == driver::kHostMemoryAlreadyRegistered) {
    windows_.Add(address, {size_bytes, false, nullptr});
    return RegisterOutcome::kAlreadyRegistered;
  }
  if (code != driver::kSuccess) {
    return std::unexpected(driver.MakeError(code, "cuMemHostRegister of a window of " + Bytes(size_bytes)));
  }
  windows_.Add(address, {size_bytes, true, *context});
  return RegisterOutcome::kRegistered;
}

Status DriverGpu::UnregisterWindow(void* address) {
  if (Forked()) return InAChild();
  const MutexLock lock(registration_mutex_);
  const std::optional<RegisteredWindow> window = windows_.Find(address);
  if (!window) return {};
  if (window->own) {
    const Driver& driver = *session_.load(std::memory_order_acquire)->driver;
    const ScopedContext scope(driver, AsContext(window->context));
    driver::Code code = scope.code();
    if (code == driver::kSuccess) code = driver.call().MemHostUnregister(address);
    if (code != driver::kSuccess && !IsGone(code)) {
      return driver.Check(code, "cuMemHostUnregister of a window of " + Bytes(window->size_bytes));
    }
  }
  windows_.Remove(address);
  return {};
}

Status DriverGpu::CopyToDeviceAsync(std::span<const DeviceCopy> copies, StreamHandle stream) {
  return Copy(Direction::kToDevice, copies, stream);
}

Status DriverGpu::CopyFromDeviceAsync(std::span<const DeviceCopy> copies, StreamHandle stream) {
  return Copy(Direction::kFromDevice, copies, stream);
}

Status DriverGpu::Copy(Direction direction, std::span<const DeviceCopy> copies, StreamHandle stream) {
  const Result<Session*> session = SessionForDevice();
  if (!session) return std::unexpected(session.error());
  for (const DeviceCopy& copy : copies) {
    if (copy.bytes > 0 && (copy.device == nullptr || copy.host == nullptr)) {
      return Fail(Code::kInvalid, "a copy of " + Bytes(copy.bytes) + " has a null pointer");
    }
  }
  if (copies.empty()) return {};
  const Result<driver::Context> context = (*session)->contexts.OfStream(AsStream(stream), copies.front().device);
  if (!context) return std::unexpected(context.error());
  const Driver& driver = *(*session)->driver;
  const ScopedContext scope(driver, *context);
  if (Status pushed = driver.Check(scope.code(), "cuCtxPushCurrent"); !pushed) return pushed;
  for (const DeviceCopy& copy : copies) {
    if (Status queued = CopyParts(**session, direction, copy, stream); !queued) return queued;
  }
  return {};
}

Status DriverGpu::CopyParts(Session& session, Direction direction, const DeviceCopy& copy, StreamHandle stream) {
  const driver::Functions& call = session.driver->call();
  auto* host = static_cast<std::byte*>(copy.host);
  driver::DevicePointer device = AsDevicePointer(copy.device);
  for (size_t left = copy.bytes; left > 0;) {
    const size_t part = windows_.PartBytes(host, left);
    const bool to_device = direction == Direction::kToDevice;
    const driver::Code code = to_device ? call.MemcpyHtoDAsync(device, host, part, AsStream(stream))
                                        : call.MemcpyDtoHAsync(host, device, part, AsStream(stream));
    if (code != driver::kSuccess) {
      return session.driver->Check(code, (to_device ? "cuMemcpyHtoDAsync of " : "cuMemcpyDtoHAsync of ") + Bytes(part));
    }
    host += part;
    device += part;
    left -= part;
  }
  return {};
}

Result<StreamHandle> DriverGpu::OwnStream(const void* device_pointer) {
  const Result<Session*> session = SessionForDevice();
  if (!session) return std::unexpected(session.error());
  const Result<driver::Context> context = (*session)->contexts.OfPointer(device_pointer);
  if (!context) return std::unexpected(context.error());
  const Result<driver::Stream> stream = (*session)->contexts.OwnStream(*context);
  if (!stream) return std::unexpected(stream.error());
  return StreamHandle{*stream};
}

Result<Event> DriverGpu::RecordEvent(StreamHandle stream, const void* device_pointer) {
  const Result<Session*> session = SessionForDevice();
  if (!session) return std::unexpected(session.error());
  const Result<driver::Context> context = (*session)->contexts.OfStream(AsStream(stream), device_pointer);
  if (!context) return std::unexpected(context.error());
  const Driver& driver = *(*session)->driver;
  const ScopedContext scope(driver, *context);
  if (Status pushed = driver.Check(scope.code(), "cuCtxPushCurrent"); !pushed) return std::unexpected(pushed.error());
  driver::EventHandle handle{};
  const driver::Code made =
      driver.call().EventCreate(&handle, driver::kEventBlockingSync | driver::kEventDisableTiming);
  if (made != driver::kSuccess) return std::unexpected(driver.MakeError(made, "cuEventCreate"));
  Event event(this, handle, *context);
  const driver::Code recorded = driver.call().EventRecord(handle, AsStream(stream));
  if (recorded != driver::kSuccess) return std::unexpected(driver.MakeError(recorded, "cuEventRecord"));
  return event;
}

Status DriverGpu::StreamWait(StreamHandle stream, const Event& event) {
  const Result<Session*> session = SessionForDevice();
  if (!session) return std::unexpected(session.error());
  const Driver& driver = *(*session)->driver;
  const ScopedContext scope(driver, AsContext(event.context()));
  if (Status pushed = driver.Check(scope.code(), "cuCtxPushCurrent"); !pushed) return pushed;
  return driver.Check(driver.call().StreamWaitEvent(AsStream(stream), AsEvent(event), 0), "cuStreamWaitEvent");
}

Status DriverGpu::WaitEvent(const Event& event) {
  const Result<Session*> session = SessionForDevice();
  if (!session) return std::unexpected(session.error());
  const Driver& driver = *(*session)->driver;
  const ScopedContext scope(driver, AsContext(event.context()));
  if (Status pushed = driver.Check(scope.code(), "cuCtxPushCurrent"); !pushed) return pushed;
  return driver.Check(driver.call().EventSynchronize(AsEvent(event)), "cuEventSynchronize");
}

Result<bool> DriverGpu::QueryEvent(const Event& event) {
  const Result<Session*> session = SessionForDevice();
  if (!session) return std::unexpected(session.error());
  const Driver& driver = *(*session)->driver;
  const ScopedContext scope(driver, AsContext(event.context()));
  if (Status pushed = driver.Check(scope.code(), "cuCtxPushCurrent"); !pushed) return std::unexpected(pushed.error());
  const driver::Code code = driver.call().EventQuery(AsEvent(event));
  if (code == driver::kSuccess) return true;
  if (code == driver::kNotReady) return false;
  return std::unexpected(driver.MakeError(code, "cuEventQuery"));
}

void DriverGpu::DestroyEvent(void* event, void* context) noexcept {
  Session* const session = session_.load(std::memory_order_acquire);
  if (session == nullptr || Forked()) return;
  const ScopedContext scope(*session->driver, AsContext(context));
  if (scope.code() != driver::kSuccess) return;  // The context is gone, and the event with it.
  (void)session->driver->call().EventDestroy(static_cast<driver::EventHandle>(event));  // Best effort.
}

}  // namespace tier::cuda
