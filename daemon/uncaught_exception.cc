#include "daemon/uncaught_exception.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "daemon/exit_status.h"
#include "daemon/log_setup.h"

namespace tier {
namespace {

constexpr const char* kAdvice =
    ": the machine gives no more memory or threads; raise the limit on address space (RLIMIT_AS, LimitAS= of a systemd "
    "unit), on processes (RLIMIT_NPROC, TasksMax=) or on memory (MemoryMax=)";

bool IsShortage(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) return true;
  const auto* error = dynamic_cast<const std::system_error*>(&failure);
  return error != nullptr &&
         (error->code() == std::errc::resource_unavailable_try_again || error->code() == std::errc::not_enough_memory);
}

[[noreturn]] void OnTerminate() {
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& failure) {
    if (IsShortage(failure)) std::_Exit(RefuseException(failure));  // Other threads run: nothing can be torn down.
    std::fprintf(stderr, "%stierd: uncaught exception: %s\n", RefusalPrefix(), failure.what());
  } catch (...) {  // The core dump says the rest.
  }
  std::abort();
}

}  // namespace

int RefuseException(const std::exception& failure) {
  std::fprintf(stderr, "%stierd: %s%s\n", RefusalPrefix(), failure.what(), IsShortage(failure) ? kAdvice : "");
  return kExitFailure;
}

void EndOnUncaughtShortage() { (void)std::set_terminate(&OnTerminate); }

}  // namespace tier
