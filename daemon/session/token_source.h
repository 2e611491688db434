// Job tokens: 64 hexadecimal digits that let a process join a job. A holder of the token may do what the job's owner
// may.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/handshake.h"
#include "proto/result.h"

namespace tier::session {

// Where randomness comes from: the kernel in the daemon, a counter in tests. Thread-compatible.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual uint64_t Random() = 0;  // 64 bits that no client can guess.
  std::string MakeToken();        // 64 hexadecimal digits.
  std::string MakeJobName();      // "job-" and 8 hexadecimal digits.
};

// getrandom(2). CHECK-fails if the kernel has none to give (it never has, past early boot).
class KernelTokenSource final : public TokenSource {
 public:
  uint64_t Random() override;
};

bool IsToken(std::string_view text);  // 64 hexadecimal digits.
// Compares without telling by its duration where the difference is.
bool SameToken(std::string_view a, std::string_view b);

}  // namespace tier::session
