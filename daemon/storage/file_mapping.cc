// See file_mapping.h.
#include "daemon/storage/file_mapping.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include "daemon/storage/os_error.h"
#include "proto/units.h"

namespace tier::storage {
namespace {

struct MappedFile {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uint64_t offset = 0;
  std::string file;  // Device and inode, as the kernel prints them.
};

std::vector<MappedFile> MappedFiles() {
  std::vector<MappedFile> all;
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    MappedFile mapped;
    char device[16] = {};
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*4s %lx %15s %lu", &mapped.begin, &mapped.end, &mapped.offset, device,
                    &inode) != 5) {
      continue;
    }
    mapped.file = fmt::format("{} {}", device, inode);
    all.push_back(std::move(mapped));
  }
  return all;
}

}  // namespace

Result<std::span<const std::byte>> FindMapping(int fd, uint64_t size) {
  // The kernel may print other numbers for the file than stat gives (btrfs, overlayfs), so they are read at a mapping
  // of our own. Without access it is never merged with another.
  void* const own = ::mmap(nullptr, kPageSize, PROT_NONE, MAP_PRIVATE, fd, 0);
  if (own == MAP_FAILED) return FailErrno(errno, "mapping a page");
  const std::vector<MappedFile> all = MappedFiles();
  ::munmap(own, kPageSize);
  const auto address = reinterpret_cast<uintptr_t>(own);
  std::string file;
  for (const MappedFile& mapped : all) {
    if (mapped.begin == address) file = mapped.file;
  }
  for (const MappedFile& mapped : all) {
    if (mapped.file != file || mapped.offset != 0 || mapped.begin == address || mapped.end - mapped.begin < size) {
      continue;
    }
    return std::span(reinterpret_cast<const std::byte*>(mapped.begin), mapped.end - mapped.begin);
  }
  return Fail(Code::kNotFound, fmt::format("/proc/self/maps has no mapping of {} bytes of the file", size));
}

}  // namespace tier::storage
