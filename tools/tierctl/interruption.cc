#include "tools/tierctl/interruption.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <initializer_list>

namespace tier::tierctl {
namespace {

std::atomic<const char*> interrupted_sentence = nullptr;
static_assert(std::atomic<const char*>::is_always_lock_free, "a signal handler reads it");

// Not exit(): a shell must see that the signal ended it, and end its script too.
void OnInterrupt(int signal) {
  const char* const sentence = interrupted_sentence.load();
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, sentence, std::strlen(sentence));
  (void)::signal(signal, SIG_DFL);
  (void)::raise(signal);  // It is blocked until this returns.
}

}  // namespace

void SayWhenInterrupted(const char* sentence) {
  const bool is_first = interrupted_sentence.exchange(sentence) == nullptr;
  if (!is_first) return;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now{};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    struct sigaction action{};
    action.sa_handler = OnInterrupt;
    (void)::sigaction(signal, &action, nullptr);
  }
}

}  // namespace tier::tierctl
