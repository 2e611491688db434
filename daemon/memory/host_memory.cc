// See host_memory.h.
#include "daemon/memory/host_memory.h"

#include "daemon/memory/kernel_text.h"
#include "proto/units.h"

namespace tier::memory {
namespace {

// What the kernel has given this process, or swapped out of it, besides windows (which are shared memory).
uint64_t OwnBytes(const std::string& root) {
  const auto text = ReadText(root + "/proc/self/status");
  uint64_t kib = 0;
  for (const char* const field : {"RssAnon:", "VmSwap:", "VmPTE:"}) kib += text ? Field(*text, field).value_or(0) : 0;
  return kib * kKiB;
}

}  // namespace

Result<HostReading> ReadHost(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const auto text = ReadText(path);
  if (!text) return Fail(Code::kIoError, "cannot read " + path + ": is /proc mounted?");
  const auto total = Field(*text, "MemTotal:");
  const auto available = Field(*text, "MemAvailable:");
  if (!total || !available) return Fail(Code::kIoError, path + " lacks MemTotal or MemAvailable");
  HostReading reading;
  reading.memory_total = *total * kKiB;
  reading.memory_available = *available * kKiB;
  reading.memory_free = Field(*text, "MemFree:").value_or(*available) * kKiB;
  reading.huge_page_size = Field(*text, "Hugepagesize:").value_or(0) * kKiB;
  const uint64_t free = Field(*text, "HugePages_Free:").value_or(0);
  const uint64_t reserved = Field(*text, "HugePages_Rsvd:").value_or(0);
  reading.huge_pages_free = free > reserved ? free - reserved : 0;
  reading.own_bytes = OwnBytes(root);
  reading.cgroup = ReadCgroups(root);
  if (const auto stalls = ReadText(root + "/proc/pressure/memory")) reading.stalls = ParseStalls(*stalls);
  return reading;
}

}  // namespace tier::memory
