// A trainer's side of the fake driver: loads it as torch would load libcuda, makes a context, device memory and work on
// streams. Loading lasts for the process; everything else is reset by the constructor.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/cuda/fake_cuda.h"

namespace tier::cuda {

class Trainer {
 public:
  // `library`: the path of a fake driver. No call of the driver's own is made yet.
  explicit Trainer(const std::string& library, int devices = 1) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    get_ = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress"));
    control_ = reinterpret_cast<decltype(&fake_cuda_control)>(dlsym(handle, "fake_cuda_control"))();
    control_->reset(devices);
  }
  ~Trainer() { control_->reset(-1); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const fake_cuda_control_table& control() const { return *control_; }

  // cuName(arguments...) through cuGetProcAddress; the driver's code as an int.
  template <class... Arguments>
  int Call(const char* name, Arguments... arguments) const {
    void* function = nullptr;
    if (get_(name, &function, 11030, 0) != 0) throw std::runtime_error(std::string("no ") + name);
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
  }

  // cuInit and the primary context of `device`, made current here.
  void* UseDevice(int device = 0) const {
    void* context = nullptr;
    Expect(Call("cuInit", 0u), "cuInit");
    Expect(Call("cuDevicePrimaryCtxRetain", &context, device), "cuDevicePrimaryCtxRetain");
    Expect(Call("cuCtxSetCurrent", context), "cuCtxSetCurrent");
    return context;
  }
  void* Allocate(size_t bytes) const {
    unsigned long long pointer = 0;
    Expect(Call("cuMemAlloc", &pointer, bytes), "cuMemAlloc");
    return reinterpret_cast<void*>(pointer);
  }
  void* MakeStream() const {
    void* stream = nullptr;
    Expect(Call("cuStreamCreate", &stream, 1u), "cuStreamCreate");
    return stream;
  }
  void* Current() const {
    void* context = nullptr;
    (void)Call("cuCtxGetCurrent", &context);
    return context;
  }
  // A kernel that fills device memory when the stream gets there.
  void LaunchFill(void* stream, void* target, size_t bytes, int value) {
    fills_.push_back(std::make_unique<Fill>(Fill{target, bytes, value}));
    const auto run = +[](void* argument) {
      const auto* const fill = static_cast<Fill*>(argument);
      std::memset(fill->target, fill->value, fill->bytes);
    };
    Expect(Call("cuLaunchHostFunc", stream, run, static_cast<void*>(fills_.back().get())), "cuLaunchHostFunc");
  }

 private:
  using GetProcAddress = int (*)(const char*, void**, int, uint64_t);
  struct Fill {
    void* target;
    size_t bytes;
    int value;
  };

  static void Expect(int code, const char* what) {
    if (code != 0) throw std::runtime_error(std::string(what) + " answered " + std::to_string(code));
  }

  GetProcAddress get_;
  const fake_cuda_control_table* control_;
  std::vector<std::unique_ptr<Fill>> fills_;
};

}  // namespace tier::cuda
