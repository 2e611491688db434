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
  if (HasEnded(pidfd.get())) return;
  boost::asio::posix::stream_descriptor process(io_);
  boost::system::error_code error;
  (void)process.assign(pidfd.get(), error);
  if (error) return;  // It cannot be watched: then it is not known.
  (void)pidfd.Release();
  if (processes_.size() == kProcessesMax) processes_.erase(processes_.begin());
  processes_.erase(session);
  const auto added = processes_.emplace(session, std::move(process)).first;
  // A wait that is given up, with the record or with all of them, ends in an error.
  added->second.async_wait(boost::asio::posix::descriptor_base::wait_read,
                           [this, session](const boost::system::error_code& failed) {
                             if (!failed) processes_.erase(session);
                           });
}

int LeftProcesses::Find(uint64_t session) {
  const auto process = processes_.find(session);
  if (process == processes_.end() || HasEnded(process->second.native_handle())) return -1;
  return process->second.native_handle();
}

}  // namespace tier::session
