// A machine without enough address space for the threads and the memory of a daemon: it serves, or it says why not.
#include <cstdint>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/units.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"

namespace tier::crash {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uint64_t kLimitMax = 4 * kGiB;  // Serves there.
constexpr uint64_t kStep = 2 * kMiB;      // A quarter of a thread's stack.

// With less the program cannot even be loaded, and what is said then is the loader's.
uint64_t LeastToLoad(const ScratchDirectory& scratch) {
  uint64_t fails = 0;
  uint64_t loads = kLimitMax;
  while (loads - fails > kMiB) {
    const uint64_t middle = (loads + fails) / 2;
    (RunTierd(scratch, {"--version"}, {}, middle).status == 0 ? loads : fails) = middle;
  }
  return loads;
}

std::string LastLine(const std::string& text) {
  const std::string lines = text.substr(0, text.find_last_not_of('\n') + 1);
  return lines.substr(lines.find_last_of('\n') + 1);
}

class Shortage : public ::testing::TestWithParam<const char*> {};

TEST_P(Shortage, OfAddressSpaceIsServedWithOrRefusedInASentence) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "needs a build without sanitizers: they take terabytes of address space";
#endif
  ScratchDirectory scratch;
  bool threads_refused = false;
  for (uint64_t limit = LeastToLoad(scratch);; limit += kStep) {
    ASSERT_LE(limit, kLimitMax);
    std::filesystem::remove(scratch / "output");
    DaemonProcess daemon(scratch, {.arguments = {"--set", std::string("ssd.engine=") + GetParam()},
                                   .environment = {},
                                   .uid = {},
                                   .inherited = {},
                                   .address_space_max = limit});
    const bool serves = daemon.WaitReady();
    const int status = serves ? daemon.Stop() : daemon.Wait();
    if (serves && status == 0) break;
    EXPECT_EQ(status, 1) << limit << " bytes: " << daemon.Output();
    const std::string sentence = LastLine(daemon.Output());
    EXPECT_THAT(sentence, StartsWith("tierd: ")) << limit << " bytes";
    threads_refused |= sentence.find("cannot start the thread") != std::string::npos;
    EXPECT_THAT(daemon.Output(), Not(HasSubstr("terminate called"))) << limit << " bytes";
  }
  EXPECT_TRUE(threads_refused);
}

INSTANTIATE_TEST_SUITE_P(Engines, Shortage, ::testing::Values("auto", "threads"),
                         [](const auto& about) { return std::string(about.param); });

}  // namespace
}  // namespace tier::crash
