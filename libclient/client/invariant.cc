#include "libclient/client/invariant.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tier::client {
namespace {

#if defined(NDEBUG)
constinit std::atomic<bool> g_abort{false};
#else
constinit std::atomic<bool> g_abort{true};
#endif

}  // namespace

bool AbortsOnBrokenInvariant() { return g_abort.load(std::memory_order_relaxed); }

void SetAbortOnBrokenInvariant(bool abort) { g_abort.store(abort, std::memory_order_relaxed); }

std::string BrokenInvariant(const char* file, int line, const char* condition, const std::string& values) {
  const std::string_view path(file);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const std::string sentence = "libtier broke a rule of its own (" + std::string(name) + ":" + std::to_string(line) +
                               ": " + condition + "; " + values + ")";
  if (AbortsOnBrokenInvariant()) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
    std::abort();
  }
  return sentence;
}

}  // namespace tier::client
