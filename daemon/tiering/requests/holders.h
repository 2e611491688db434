// Holders: which jobs have the memory that a request was refused, in words for refusals. Engine thread only.
#pragma once

#include <string>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

inline constexpr uint32_t kRefusalCost = 32;  // Units of work for finding and naming the session or job that blocks it.

// "job 1/a holds 40 MiB, of which 0 bytes are leased or torn, ..." for the other jobs that hold most. Empty: none does.
std::string OtherHolders(const Tables& tables, const JobState& self);
// "; job 1/a was asked for windows 2.5 s ago and has not returned 4 MiB of them" for those that owe most. Empty: none.
std::string Debtors(const Tables& tables);
// "; the job may lease 8 MiB ..." where what other jobs are guaranteed bounds that. Empty: it does not.
std::string GuaranteesNote(const Tables& tables, const JobState& job);

}  // namespace tier::tiering
