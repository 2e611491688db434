// The end of a process that has found a bug in itself. Writes with write(2) only: the heap may be what is broken.
#include "daemon/base/check.h"

#include <unistd.h>

#include <string_view>

namespace tier::base {
namespace {

void Print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;  // stderr has no reader: only the abort is left to do.
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void CheckFailed(const char* file, int line, const char* condition, const std::string& values) noexcept {
  char number[16];
  const auto end = fmt::format_to_n(number, sizeof(number), "{}", line);
  Print(file);
  Print(":");
  Print(std::string_view(number, end.size));
  Print(": CHECK failed: ");
  Print(condition);
  if (!values.empty()) Print(": ");
  Print(values);
  Print("\n");
  std::abort();
}

}  // namespace tier::base
