// See job_processes.h.
#include "tools/tierctl/job_processes.h"

#include <sys/stat.h>

#include <fstream>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "tools/tierctl/socket_verbs.h"

namespace tier::tierctl {
namespace {

constexpr int kNamed = 8;

// Processes of an owner of a socket run as any user.
bool IsStopped(const v1::Job& job, int64_t pid, const std::string& root) {
  const std::string folder = fmt::format("{}/proc/{}", root, pid);
  struct stat about{};
  if (pid == 0 || ::stat(folder.c_str(), &about) != 0) return false;
  if (job.owner().empty() && about.st_uid != job.uid()) return false;
  std::ifstream file(folder + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t name_end = line.rfind(") ");  // The name before it may have any characters.
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  const char state = line[name_end + 2];
  return state == 'T' || state == 't';
}

std::string ProcessText(const v1::Job& job, const v1::JobSession& session, const std::string& root) {
  const std::string pid = session.client_pid() == 0 ? "of another pid namespace" : std::to_string(session.client_pid());
  const bool is_stopped = IsStopped(job, session.client_pid(), root);
  if (session.rank() < 0) return pid + (is_stopped ? " (stopped)" : "");
  return fmt::format("{} (rank {}{})", pid, session.rank(), is_stopped ? ", stopped" : "");
}

}  // namespace

std::string ProcessesText(const v1::Job& job, const std::string& root) {
  std::string text;
  for (const v1::JobSession& session : job.sessions())
    text += (text.empty() ? "" : ", ") + ProcessText(job, session, root);
  return text.empty() ? "none" : text;
}

std::string AttachedText(const v1::ListJobsResponse& jobs, const std::string& root) {
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
      text += (first ? "" : ", ") + ProcessText(job, session, root);
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
