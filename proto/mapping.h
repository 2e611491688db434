// A shared mapping of a descriptor, and the descriptor itself: the one place where Boost.Interprocess is used. Managed
// segments and offset_ptr are not used: another process may write any value into shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <boost/interprocess/mapped_region.hpp>

#include "proto/result.h"

namespace tier::proto {

// Owns one descriptor; closes it. Movable, thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { Reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset();

 private:
  int fd_ = -1;
};

enum class Access { kReadOnly, kReadWrite };

// A MAP_SHARED mapping of `size` bytes of `fd` from `offset`. Movable; unmaps on destruction. The descriptor may be
// closed once mapped.
class Mapping {
 public:
  Mapping() = default;
  // Fails with IO_ERROR and errno's text. `address` non-null: at exactly that place (replacing what is there, which
  // the caller must own, such as a PROT_NONE reservation).
  static Result<Mapping> Map(int fd, uint64_t offset, uint64_t size, Access access, void* address = nullptr);
  std::byte* data() const { return static_cast<std::byte*>(region_.get_address()); }
  uint64_t size() const { return region_.get_size(); }

 private:
  boost::interprocess::mapped_region region_;
};

// An anonymous memory file, close-on-exec, mode 0600, sized and (if `seal`) sealed against shrinking, growing and
// further seals.
Result<FileDescriptor> CreateMemoryFile(const char* name, uint64_t size, bool seal = true);

}  // namespace tier::proto
