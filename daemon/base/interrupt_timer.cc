#include "daemon/base/interrupt_timer.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <mutex>

namespace tier::base {
namespace {

// A real-time signal that neither the C library nor the daemon uses.
int InterruptSignal() { return SIGRTMIN + 4; }

void InstallHandler() {
  struct sigaction action{};
  action.sa_handler = [](int) {};  // Without SA_RESTART: the call that waits ends.
  (void)::sigaction(InterruptSignal(), &action, nullptr);
}

}  // namespace

InterruptTimer::InterruptTimer() {
  static std::once_flag installed;
  std::call_once(installed, InstallHandler);
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, InterruptSignal());
  (void)::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = InterruptSignal();
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
  made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
}

InterruptTimer::~InterruptTimer() {
  if (made_) (void)::timer_delete(timer_);
}

void InterruptTimer::Set(std::chrono::nanoseconds interval) {
  if (!made_) return;
  const timespec time = {.tv_sec = 0, .tv_nsec = interval.count()};
  const itimerspec setting = {.it_interval = time, .it_value = time};
  (void)::timer_settime(timer_, 0, &setting, nullptr);
}

void InterruptTimer::Start() { Set(kInterruptInterval); }
void InterruptTimer::Stop() { Set(std::chrono::nanoseconds(0)); }

}  // namespace tier::base
