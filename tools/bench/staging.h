// Chunks that threads without a daemon move between a file and memory, each aligned for O_DIRECT.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tier::bench {

inline constexpr uint64_t kChunk = 2 << 20;  // A block of the daemon's, one page where pages are huge.

// Ends the program with what errno says of `what`.
[[noreturn]] inline void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

// `chunks` of kChunk bytes, populated. They live as long as the process.
class Staging {
 public:
  explicit Staging(size_t chunks) {
    const size_t bytes = (chunks + 1) * kChunk;
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Fail("mmap");
    first_ = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + kChunk - 1) & ~(kChunk - 1));
    (void)madvise(first_, chunks * kChunk, MADV_HUGEPAGE);  // Or the pages stay small, as windows do.
    std::memset(first_, 1, chunks * kChunk);
  }
  char* operator[](size_t chunk) const { return first_ + chunk * kChunk; }

 private:
  char* first_ = nullptr;
};

}  // namespace tier::bench
