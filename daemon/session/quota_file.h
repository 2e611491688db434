// The file of the quotas that were set at run time (docs/formats.md): lines of text that an administrator can read.
//
//   tierd-quotas 1
//   default jobs=4
//   user 1001 ram=68719476736 ssd=unlimited
//   group 100 guarantee=0
//   crc32c 1f2e3d4c
//
// Each user and group stands once, numbers are bytes (jobs: a count), and the checksum is of all lines before its own.
// The file is replaced as a whole. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "daemon/session/quota_table.h"
#include "proto/result.h"

namespace tier::session {

inline constexpr size_t kQuotaFileBytesMax = 1 << 20;

std::string FormatQuotas(const QuotaOverrides& quotas);
// CORRUPT names the line and what is wrong with it; VERSION: a later tierd wrote it.
Result<QuotaOverrides> ParseQuotas(std::string_view text);

// Where the file of a daemon stands that keeps something.
inline std::string QuotasPath(const std::string& data_directory) { return data_directory + "/quotas"; }
// No quotas where there is no file. Errors name the path and what to do.
Result<QuotaOverrides> LoadQuotas(const std::string& path);
// Durable when it returns. An error: what stood there stands there still. NO_SPACE, DENIED or IO_ERROR.
Status SaveQuotas(const std::string& path, const QuotaOverrides& quotas);

}  // namespace tier::session
