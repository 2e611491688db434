#include "daemon/session/job_words.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"

namespace tier::session {
namespace {

// 0 stands for none in all four terms.
std::string BytesOrNone(uint64_t bytes) { return bytes == 0 ? "none" : base::FormatBytes(bytes); }

}  // namespace

std::string TermsText(const tiering::JobCounters& has) {
  return fmt::format("RAM guarantee {}, RAM limit {}, SSD guarantee {}, SSD limit {}",
                     BytesOrNone(has.own_guarantee_bytes), BytesOrNone(has.limit_bytes),
                     BytesOrNone(has.ssd_guarantee_bytes), BytesOrNone(has.ssd_limit_bytes));
}

std::string ProcessText(int32_t client_pid) {
  TIER_CHECK(client_pid >= 0, "process {}", client_pid);
  return client_pid == 0 ? std::string() : fmt::format(", process {}", client_pid);
}

std::string ProcessText(const Job& job, tiering::SessionId session) {
  const auto member = std::ranges::find(job.members, session, &Member::session);
  return member == job.members.end() ? std::string() : ProcessText(member->client_pid);
}

std::string AttachedText(int32_t rank, std::string_view process) {
  TIER_CHECK(process.empty() || process.starts_with(", "), "'{}' is no process in words", process);
  if (rank >= 0) return fmt::format(" (rank {}{})", rank, process);
  return process.empty() ? std::string() : fmt::format(" ({})", process.substr(std::string_view(", ").size()));
}

}  // namespace tier::session
