// See job_processes.h.
#include "tools/tierctl/job_processes.h"

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "tools/tierctl/socket_verbs.h"

namespace tier::tierctl {
namespace {

constexpr int kNamed = 8;

std::string ProcessText(const v1::JobSession& session) {
  const std::string pid = session.client_pid() == 0 ? "of another pid namespace" : std::to_string(session.client_pid());
  return session.rank() < 0 ? pid : fmt::format("{} (rank {})", pid, session.rank());
}

}  // namespace

std::string ProcessesText(const v1::Job& job) {
  std::string text;
  for (const v1::JobSession& session : job.sessions()) text += (text.empty() ? "" : ", ") + ProcessText(session);
  return text.empty() ? "none" : text;
}

std::string AttachedText(const v1::ListJobsResponse& jobs) {
  std::string text;
  int named = 0;
  int all = 0;
  for (const v1::Job& job : jobs.jobs()) {
    all += job.sessions_size();
    if (job.sessions().empty() || named == kNamed) continue;
    text += fmt::format("{}{}/{}: ", text.empty() ? "" : "; ", UserText(job.uid(), job.owner()), job.name());
    bool first = true;
    for (const v1::JobSession& session : job.sessions()) {
      if (named == kNamed) break;
      text += (first ? "" : ", ") + ProcessText(session);
      first = false;
      ++named;
    }
  }
  return all > named ? fmt::format("{}, and {} more", text, all - named) : text;
}

std::string UnpersistedJobsText(const v1::ListJobsResponse& jobs) {
  std::string text;
  int all = 0;
  for (const v1::Job& job : jobs.jobs()) {
    if (job.persisted() || job.tensor_count() == 0 || ++all > kNamed) continue;
    text += fmt::format("{}{}/{} ({})", text.empty() ? "" : ", ", UserText(job.uid(), job.owner()), job.name(),
                        base::FormatBytes(job.logical_bytes()));
  }
  return all > kNamed ? fmt::format("{}, and {} more", text, all - kNamed) : text;
}

}  // namespace tier::tierctl
