// Driver: one loaded CUDA driver library and the functions found in it.
//
// Thread-safety: immutable after Open. Fork: the child must not call any of it (callers check).
#pragma once

#include <memory>
#include <string>

#include "libclient/cuda/driver_types.h"
#include "proto/result.h"

namespace tier::cuda {

enum class OpenHow {
  kIfLoaded,  // Only if the process has loaded that library already; nullptr otherwise.
  kLoad,
};

// How many libraries this process has ever loaded: while it stays the same, asking kIfLoaded again is pointless. Takes
// nanoseconds, where dlopen of a library that is not there searches the disk (70 µs, 2026-11-21).
uint64_t LibrariesLoaded();

class Driver {
 public:
  // nullptr: not there (kIfLoaded). DENIED: not there (kLoad), or one older than 11.3.
  static Result<std::unique_ptr<Driver>> Open(const std::string& library, OpenHow how);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const driver::Functions& call() const { return functions_; }
  const std::string& library() const { return library_; }

  // "CUDA_ERROR_OUT_OF_MEMORY": never null; "CUDA error 1234" for one the driver cannot name.
  std::string ErrorName(driver::Code code) const;
  // OK for kSuccess, else an Error with the CUDA name. `what`: "cuMemHostRegister of 4096 bytes".
  Status Check(driver::Code code, const std::string& what) const;
  Error MakeError(driver::Code code, const std::string& what) const;

 private:
  Driver(void* handle, std::string library) : handle_(handle), library_(std::move(library)) {}
  Status Resolve();

  void* handle_;
  std::string library_;
  driver::Functions functions_;
};

// Makes `context` current on this thread until the end of the scope, then restores what was.
class ScopedContext {
 public:
  ScopedContext(const Driver& driver, driver::Context context)
      : driver_(driver), code_(driver.call().CtxPushCurrent(context)) {}
  ~ScopedContext() {
    driver::Context popped;
    if (code_ == driver::kSuccess) (void)driver_.call().CtxPopCurrent(&popped);  // Pops what the constructor pushed.
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  driver::Code code() const { return code_; }

 private:
  const Driver& driver_;
  driver::Code code_;
};

}  // namespace tier::cuda
