// When a driver is looked for, which, and what happens when there is none.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/unit/libclient_cuda/gpu_fixture.h"

namespace tier::cuda {
namespace {

bool IsLoaded(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

TEST(Loading, NothingIsLoadedUntilSomethingIsAsked) {
  const std::unique_ptr<Gpu> gpu = MakeGpu({true, FAKE_LIBCUDA_11});
  EXPECT_EQ(gpu->state(), GpuState::kAbsent);
  EXPECT_FALSE(IsLoaded(FAKE_LIBCUDA_11));
  int host = 0;
  EXPECT_FALSE(gpu->IsDevicePointer(&host));
  EXPECT_TRUE(IsLoaded(FAKE_LIBCUDA_11));
  EXPECT_EQ(gpu->state(), GpuState::kReady);
}

// In a child of its own, because other tests load the fake driver for good.
int WithoutADriver() {
  const std::unique_ptr<Gpu> gpu = MakeGpu({});
  int host = 0;
  if (gpu->IsDevicePointer(&host)) return 1;
  if (gpu->RegisterWindow(&host, sizeof host).value() != RegisterOutcome::kNoContext) return 2;
  if (gpu->state() != GpuState::kAbsent || IsLoaded("libcuda.so.1")) return 3;
  if (dlopen(FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL) == nullptr) return 4;  // The trainer imports torch.
  if (gpu->IsDevicePointer(&host) || gpu->state() != GpuState::kReady) return 5;
  return 0;
}

TEST(LoadingDeathTest, TheDriverOfTheProcessIsUsedOnceTheProcessHasLoadedIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (IsLoaded("libcuda.so.1")) GTEST_SKIP() << "needs a fresh process: a driver is loaded already";
  EXPECT_EXIT(_exit(WithoutADriver()), testing::ExitedWithCode(0), "");
}

TEST(Loading, AMissingLibraryIsAnAnswerAndTheNullTwin) {
  const std::unique_ptr<Gpu> gpu = MakeGpu({true, "/nonexistent/libcuda.so.1"});
  int host = 0;
  EXPECT_FALSE(gpu->IsDevicePointer(&host));
  EXPECT_EQ(gpu->state(), GpuState::kFailed);
  EXPECT_NE(gpu->reason().find("/nonexistent/libcuda.so.1"), std::string::npos) << gpu->reason();
  EXPECT_EQ(gpu->RegisterWindow(&host, sizeof host).error().code, Code::kDenied);
  EXPECT_TRUE(gpu->UnregisterWindow(&host).has_value());
  const DeviceCopy copies[] = {{&host, &host, sizeof host}};
  const Status copied = gpu->CopyToDeviceAsync(copies, nullptr);
  ASSERT_FALSE(copied.has_value());
  EXPECT_EQ(copied.error().code, Code::kDenied);
  EXPECT_NE(copied.error().message.find("no CUDA driver"), std::string::npos) << copied.error().message;
  EXPECT_EQ(gpu->OwnStream(&host).error().code, Code::kDenied);
  EXPECT_EQ(gpu->RecordEvent(nullptr, &host).error().code, Code::kDenied);
}

TEST(Loading, ALibraryThatIsNoDriverIsRefusedByName) {
  const std::unique_ptr<Gpu> gpu = MakeGpu({true, "libm.so.6"});
  const DeviceCopy copies[] = {{nullptr, nullptr, 0}};
  const Status copied = gpu->CopyToDeviceAsync(copies, nullptr);
  ASSERT_FALSE(copied.has_value());
  EXPECT_NE(copied.error().message.find("no cuGetProcAddress"), std::string::npos) << copied.error().message;
  EXPECT_EQ(gpu->state(), GpuState::kFailed);
}

TEST(Loading, ADriverThatLacksAFunctionIsRefusedByItsName) {
  const Trainer trainer(FAKE_LIBCUDA);
  trainer.control().hide("cuStreamGetCtx");
  const std::unique_ptr<Gpu> gpu = MakeGpu({true, FAKE_LIBCUDA});
  int host = 0;
  EXPECT_FALSE(gpu->IsDevicePointer(&host));
  EXPECT_NE(gpu->reason().find("no cuStreamGetCtx"), std::string::npos) << gpu->reason();
}

TEST(Loading, TheFirstGenerationOfGetProcAddressIsEnough) {
  const Trainer trainer(FAKE_LIBCUDA_11);
  const std::unique_ptr<Gpu> gpu = MakeGpu({true, FAKE_LIBCUDA_11});
  trainer.UseDevice();
  EXPECT_TRUE(gpu->IsDevicePointer(trainer.Allocate(16)));
}

TEST(Loading, NoDeviceIsNamed) {
  const Trainer trainer(FAKE_LIBCUDA, 0);
  const std::unique_ptr<Gpu> gpu = MakeGpu({true, FAKE_LIBCUDA});
  int host = 0;
  const DeviceCopy copies[] = {{&host, &host, sizeof host}};
  const Status copied = gpu->CopyToDeviceAsync(copies, nullptr);
  ASSERT_FALSE(copied.has_value());
  EXPECT_EQ(copied.error().code, Code::kDenied);
  EXPECT_NE(copied.error().message.find("CUDA_ERROR_NO_DEVICE"), std::string::npos) << copied.error().message;
  EXPECT_EQ(gpu->state(), GpuState::kFailed);
}

TEST(Loading, AnErrorWithoutANameIsGivenByNumber) {
  const Trainer trainer(FAKE_LIBCUDA);
  trainer.control().fail("cuInit", 31337, 0, 1);
  const std::unique_ptr<Gpu> gpu = MakeGpu({true, FAKE_LIBCUDA});
  const DeviceCopy copies[] = {{nullptr, nullptr, 0}};
  EXPECT_NE(gpu->CopyToDeviceAsync(copies, nullptr).error().message.find("CUDA error 31337"), std::string::npos);
}

TEST(Loading, SwitchedOffMeansHostMemoryOnly) {
  const std::unique_ptr<Gpu> gpu = MakeGpu({false, FAKE_LIBCUDA_11});
  int host = 0;
  EXPECT_EQ(gpu->state(), GpuState::kDisabled);
  EXPECT_FALSE(gpu->IsDevicePointer(&host));
  EXPECT_EQ(gpu->RegisterWindow(&host, sizeof host).value(), RegisterOutcome::kNoContext);
  EXPECT_TRUE(gpu->UnregisterWindow(&host).has_value());
  EXPECT_EQ(gpu->windows_registered(), 0u);
  EXPECT_EQ(gpu->CopyToDeviceAsync({}, nullptr).error().code, Code::kDenied);
  EXPECT_EQ(gpu->CopyFromDeviceAsync({}, nullptr).error().code, Code::kDenied);
  EXPECT_EQ(gpu->OwnStream(&host).error().code, Code::kDenied);
  EXPECT_EQ(gpu->RecordEvent(nullptr, &host).error().code, Code::kDenied);
  EXPECT_EQ(gpu->StreamWait(nullptr, Event()).error().code, Code::kDenied);
  EXPECT_EQ(gpu->WaitEvent(Event()).error().code, Code::kDenied);
  EXPECT_EQ(gpu->QueryEvent(Event()).error().code, Code::kDenied);
  EXPECT_NE(gpu->reason().find("TIER_CUDA=off"), std::string::npos);
}

TEST(Loading, TheEnvironmentNamesTheLibraryAndSwitchesOff) {
  EXPECT_TRUE(GpuOptionsFromEnvironment().enabled);
  EXPECT_TRUE(GpuOptionsFromEnvironment().library.empty());
  setenv("TIER_CUDA", "off", 1);
  setenv("TIER_CUDA_LIBRARY", "/some/driver.so", 1);
  EXPECT_FALSE(GpuOptionsFromEnvironment().enabled);
  EXPECT_EQ(GpuOptionsFromEnvironment().library, "/some/driver.so");
  unsetenv("TIER_CUDA");
  unsetenv("TIER_CUDA_LIBRARY");
}

TEST(Loading, TheProcessHasOneGpu) { EXPECT_EQ(&ProcessGpu(), &ProcessGpu()); }

// The fake driver aborts when it is called in a forked child, so exit status 0 says that it was not.
int InAForkedChild(Gpu& gpu, std::byte* memory, const Event& event) {
  if (gpu.IsDevicePointer(memory)) return 1;
  if (gpu.RegisterWindow(memory, 4096).error().code != Code::kDenied) return 2;
  if (gpu.UnregisterWindow(memory).error().code != Code::kDenied) return 3;
  if (gpu.CopyToDeviceAsync({}, nullptr).error().code != Code::kDenied) return 4;
  if (gpu.WaitEvent(event).error().code != Code::kDenied) return 5;
  if (gpu.reason().find("forked") == std::string::npos) return 6;
  return 0;
}

TEST(Loading, AForkedChildNeverTouchesTheDriver) {
  const Trainer trainer(FAKE_LIBCUDA);
  std::unique_ptr<Gpu> gpu = MakeGpu({true, FAKE_LIBCUDA});
  trainer.UseDevice();
  std::vector<std::byte> memory(4096);
  void* const device = trainer.Allocate(64);
  ASSERT_TRUE(gpu->RegisterWindow(memory.data(), memory.size()).has_value());
  ASSERT_TRUE(gpu->OwnStream(device).has_value());
  Event event = gpu->RecordEvent(nullptr, device).value();
  const pid_t child = fork();
  if (child == 0) {
    const int outcome = InAForkedChild(*gpu, memory.data(), event);
    event = Event();
    gpu.reset();
    _exit(outcome);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  event = Event();
  gpu.reset();
  EXPECT_EQ(trainer.control().registrations(), 0u);
}

}  // namespace
}  // namespace tier::cuda
