#include "daemon/session/token_source.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {

std::string TokenSource::MakeToken() {
  std::string token = fmt::format("{:016x}{:016x}{:016x}{:016x}", Random(), Random(), Random(), Random());
  TIER_CHECK(IsToken(token), "token of {} characters", token.size());
  return token;
}

std::string TokenSource::MakeJobName() { return fmt::format("job-{:08x}", static_cast<uint32_t>(Random())); }

uint64_t KernelTokenSource::Random() {
  uint64_t value = 0;
  ssize_t got = -1;
  do {
    got = ::getrandom(&value, sizeof(value), 0);
  } while (got < 0 && errno == EINTR);
  TIER_CHECK(got == static_cast<ssize_t>(sizeof(value)), "getrandom returned {} errno {}", got, errno);
  return value;
}

bool IsToken(std::string_view text) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
  return text.size() == proto::kTokenSize - 1 && std::all_of(text.begin(), text.end(), digit);
}

bool SameToken(std::string_view a, std::string_view b) {
  if (a.size() != b.size() || a.empty()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace tier::session
