// See options.h.
#include "daemon/tiering/api/options.h"

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::tiering {
namespace {

// `of`: which limit, "a" or "an SSD".
Status CheckLimit(uint64_t guarantee_bytes, uint64_t limit_bytes, const char* of) {
  if (limit_bytes == 0 || guarantee_bytes <= limit_bytes) return {};
  return Fail(
      Code::kInvalid,
      fmt::format("{} limit of {} is below the guarantee of {}: raise the limit, or lower the guarantee with it", of,
                  base::FormatBytes(limit_bytes), base::FormatBytes(guarantee_bytes)));
}

}  // namespace

Status CheckRamLimit(uint64_t guarantee_bytes, uint64_t limit_bytes) {
  if (limit_bytes == 0 || limit_bytes >= kBlockSize) return CheckLimit(guarantee_bytes, limit_bytes, "a");
  return Fail(Code::kInvalid, fmt::format("a limit of {} is below {}, the least with which every tensor can be read: "
                                          "raise it, or give 0 for none",
                                          base::FormatBytes(limit_bytes), base::FormatBytes(kBlockSize)));
}

Status CheckSsdLimit(uint64_t guarantee_bytes, uint64_t limit_bytes) {
  return CheckLimit(guarantee_bytes, limit_bytes, "an SSD");
}

}  // namespace tier::tiering
