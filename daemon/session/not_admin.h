// NotAdmin: the refusal of what administrators alone may do. Threads: any.
#pragma once

#include <expected>

#include <fmt/format.h>

#include "proto/result.h"

namespace tier::session {

// DENIED, for who came by another socket than that of administrators; `what`: "drain the daemon".
inline std::unexpected<Error> NotAdmin(const char* what) {
  return Fail(
      Code::kDenied,
      fmt::format("only an administrator may {}: use the admin socket as root or a member of group tierd", what));
}

}  // namespace tier::session
