#include "libclient/client/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace tier::client {
namespace {

// Plain arrays: a child may not allocate, its malloc lock can be held by a thread that is not there.
Mutex g_mutex;
std::array<int, ForkGuard::kDescriptorsMax> g_descriptors TIER_GUARDED_BY(g_mutex);
uint32_t g_count TIER_GUARDED_BY(g_mutex) = 0;
std::once_flag g_installed;

}  // namespace

std::atomic<uint32_t> ForkGuard::generation_{0};

void ForkGuard::Install() { ::pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild); }

void ForkGuard::CloseInChild(int fd) {
  std::call_once(g_installed, &Install);
  const MutexLock lock(g_mutex);
  if (g_count < g_descriptors.size()) g_descriptors[g_count++] = fd;
}

void ForkGuard::Release(int fd) {
  const MutexLock lock(g_mutex);
  const auto end = g_descriptors.begin() + g_count;
  const auto found = std::find(g_descriptors.begin(), end, fd);
  if (found == end) return;
  *found = g_descriptors[g_count - 1];
  g_count--;
}

void ForkGuard::BeforeFork() { g_mutex.Lock(); }

void ForkGuard::AfterForkInParent() { g_mutex.Unlock(); }

void ForkGuard::AfterForkInChild() {
  for (uint32_t i = 0; i < g_count; ++i) ::close(g_descriptors[i]);
  g_count = 0;
  generation_.fetch_add(1, std::memory_order_relaxed);
  g_mutex.Unlock();
}

}  // namespace tier::client
