// See zeroed_memory.h.
#include "daemon/base/zeroed_memory.h"

#include <sys/mman.h>

#include <cerrno>

#include "daemon/base/check.h"
#include "proto/units.h"

namespace tier::base {

ZeroedMemory::ZeroedMemory(size_t bytes) : size_(bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TIER_CHECK(mapped != MAP_FAILED, "no memory for {} bytes: errno {}", bytes, errno);
  first_ = static_cast<std::byte*>(mapped);
}

ZeroedMemory::~ZeroedMemory() {
  if (trimmed_ + size_ != 0) (void)GiveBack(size_);
}

void ZeroedMemory::TrimFront(size_t bytes) {
  TIER_CHECK(bytes % kPageSize == 0 && bytes <= size_, "{} bytes of {}", bytes, size_);
  if (bytes == 0) return;
  const bool unmapped = GiveBack(bytes);
  size_ -= bytes;
  if (unmapped) {
    first_ += trimmed_ + bytes;
    trimmed_ = 0;
  } else {
    trimmed_ += bytes;
  }
}

bool ZeroedMemory::GiveBack(size_t bytes) {
  if (::munmap(first_, trimmed_ + bytes) == 0) return true;
  const int error = errno;
  TIER_CHECK(error == ENOMEM, "munmap of {} bytes: errno {}", trimmed_ + bytes, error);
  if (bytes != 0) {
    TIER_CHECK(::madvise(first_ + trimmed_, bytes, MADV_DONTNEED) == 0, "madvise of {} bytes: errno {}", bytes, errno);
  }
  return false;
}

}  // namespace tier::base
