#include "daemon/uncaught_exception.h"

#include <csignal>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include <gtest/gtest.h>

namespace tier {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

template <typename Exception>
void ThrowOnAThread(const Exception& exception) {
  EndOnUncaughtShortage();
  std::thread([&] { throw exception; }).join();
}

TEST(UncaughtException, OfAShortageOnAnyThreadEndsTheProcessWithASentence) {
  EXPECT_EXIT(ThrowOnAThread(std::bad_alloc()), ExitedWithCode(1), "^tierd: .*RLIMIT_AS.*\n$");
  const std::system_error no_thread(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_EXIT(ThrowOnAThread(no_thread), ExitedWithCode(1), "^tierd: .*RLIMIT_NPROC.*\n$");
}

TEST(UncaughtException, OfAMistakeAborts) {
  EXPECT_EXIT(ThrowOnAThread(std::logic_error("a mistake")), KilledBySignal(SIGABRT), "a mistake");
  const std::system_error denied(std::make_error_code(std::errc::permission_denied));
  EXPECT_EXIT(ThrowOnAThread(denied), KilledBySignal(SIGABRT), "ermission denied");
  EXPECT_EXIT(ThrowOnAThread(std::string("no exception")), KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace tier
