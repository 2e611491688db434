// Result<T>: a value, or a Code with one sentence of context. For causes outside our own code; our own bugs are CHECKs.
#pragma once

#include <expected>
#include <string>
#include <utility>

#include "proto/codes.h"

namespace tier {

struct Error {
  Code code = Code::kInvalid;
  std::string message;  // One sentence: what was asked, what stood in the way, what to do. No trailing newline.
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

inline std::unexpected<Error> Fail(Code code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}

}  // namespace tier
