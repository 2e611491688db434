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
  data_ = static_cast<std::byte*>(mapped);
}

ZeroedMemory::~ZeroedMemory() {
  if (data_ != nullptr) (void)::munmap(data_, size_);  // It fails for wrong arguments alone.
}

void ZeroedMemory::TrimFront(size_t bytes) {
  TIER_CHECK(bytes % kPageSize == 0 && bytes <= size_, "{} bytes of {}", bytes, size_);
  if (bytes == 0) return;
  TIER_CHECK(::munmap(data_, bytes) == 0, "munmap of {} bytes: errno {}", bytes, errno);
  size_ -= bytes;
  data_ = size_ == 0 ? nullptr : data_ + bytes;
}

}  // namespace tier::base
