#include "libclient/client/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace tier::client {
namespace {

// Plain arrays: a child may not allocate, its malloc lock can be held by a thread that is not there.
std::mutex g_mutex;
std::array<int, ForkGuard::kDescriptorsMax> g_descriptors;  // g_mutex
uint32_t g_count = 0;                                       // g_mutex
std::once_flag g_installed;

}  // namespace

std::atomic<uint32_t> ForkGuard::generation_{0};

void ForkGuard::Install() { ::pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild); }

void ForkGuard::CloseInChild(int fd) {
  std::call_once(g_installed, &Install);
  std::lock_guard lock(g_mutex);
  if (g_count < g_descriptors.size()) g_descriptors[g_count++] = fd;
}

void ForkGuard::Forget(int fd) {
  std::lock_guard lock(g_mutex);
  const auto end = g_descriptors.begin() + g_count;
  const auto found = std::find(g_descriptors.begin(), end, fd);
  if (found == end) return;
  *found = g_descriptors[g_count - 1];
  g_count--;
}

void ForkGuard::BeforeFork() { g_mutex.lock(); }

void ForkGuard::AfterForkInParent() { g_mutex.unlock(); }

void ForkGuard::AfterForkInChild() {
  for (uint32_t i = 0; i < g_count; ++i) ::close(g_descriptors[i]);
  g_count = 0;
  generation_.fetch_add(1, std::memory_order_relaxed);
  g_mutex.unlock();
}

}  // namespace tier::client
