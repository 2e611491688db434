// The storage layer's one translation from errno to codes. Thread-safe.
#pragma once

#include <string_view>

#include "proto/result.h"

namespace tier::storage {

Code CodeOfErrno(int error);

// "<doing>: <errno's text>", with the code above.
std::unexpected<Error> FailErrno(int error, std::string_view doing);

}  // namespace tier::storage
