#include "proto/start_thread.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <utility>

namespace tier::proto {
namespace {

constexpr size_t kNameMax = 15;  // The kernel's.

class SignalsBlocked {
 public:
  explicit SignalsBlocked(BlockedSignals which) {
    sigset_t blocked;
    ::sigfillset(&blocked);
    if (which == BlockedSignals::kAsynchronous) {
      for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) ::sigdelset(&blocked, fault);
    }
    ::pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Result<std::thread> StartThread(const std::string& name, BlockedSignals blocked, std::function<void()> body,
                                Urgency urgency) {
  const SignalsBlocked inherited(blocked);
  try {
    std::thread thread([body = std::move(body), urgency] {
      SetUrgency(urgency);
      body();
    });
    ::pthread_setname_np(thread.native_handle(), name.substr(0, kNameMax).c_str());
    return thread;
  } catch (const std::exception& failure) {  // A std::system_error, or std::bad_alloc.
    return Fail(Code::kNoMemory, "cannot start the thread " + name + " (" + failure.what() +
                                     "): raise the limit on processes (RLIMIT_NPROC, TasksMax= of a systemd unit, "
                                     "pids.max of the cgroup) or the one on address space (RLIMIT_AS)");
  }
}

}  // namespace tier::proto
