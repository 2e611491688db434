// See os_error.h.
#include "daemon/storage/os_error.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

namespace tier::storage {

Code CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENXIO:
    case ENODEV: return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS: return Code::kDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return Code::kNoSpace;
    case EEXIST:
    case EBUSY:
    case EWOULDBLOCK: return Code::kAlreadyExists;
    case EMFILE:  // Of this process, as the next is of the system: it says nothing of the file.
    case ENFILE:
    case ENOMEM: return Code::kNoMemory;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EOPNOTSUPP: return Code::kInvalid;
    default: return Code::kIoError;
  }
}

std::unexpected<Error> FailErrno(int error, std::string_view doing) {
  // error_category::message is thread-safe; strerror need not be.
  return Fail(CodeOfErrno(error), fmt::format("{}: {}", doing, std::generic_category().message(error)));
}

}  // namespace tier::storage
