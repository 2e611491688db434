// See process_end.h.
#include "daemon/session/process_end.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/capability.h"
#include "daemon/base/check.h"

namespace tier::session {

bool MayEndOthers() { return base::HasCapability(CAP_KILL); }

Status EndProcess(int pidfd) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0) == 0) return {};
  if (errno == ESRCH) return Fail(Code::kNotFound, "the process has ended");
  return Fail(Code::kDenied, fmt::format("the kernel refuses to end the process: {}", std::strerror(errno)));
}

void LeftProcesses::Add(uint64_t session, proto::FileDescriptor pidfd) {
  TIER_CHECK(session != 0 && pidfd, "session {}, pidfd {}", session, pidfd.get());
  std::erase_if(processes_, [](const auto& process) { return HasEnded(process.second.get()); });
  if (HasEnded(pidfd.get())) return;
  if (processes_.size() == kProcessesMax) processes_.erase(processes_.begin());
  processes_.insert_or_assign(session, std::move(pidfd));
}

int LeftProcesses::Find(uint64_t session) const {
  const auto process = processes_.find(session);
  return process == processes_.end() || HasEnded(process->second.get()) ? -1 : process->second.get();
}

}  // namespace tier::session
