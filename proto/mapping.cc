#include "proto/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <boost/interprocess/detail/os_file_functions.hpp>
#include <boost/interprocess/exceptions.hpp>

namespace tier::proto {
namespace {

// What mapped_region asks of a memory-mappable object: a handle that it does not own.
struct BorrowedFile {
  int fd;
  boost::interprocess::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
};

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void FileDescriptor::Reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Mapping> Mapping::Map(int fd, uint64_t offset, uint64_t size, Access access, void* address) {
  namespace bip = boost::interprocess;
  const auto mode = access == Access::kReadOnly ? bip::read_only : bip::read_write;
  // default_map_options is (map_options_t)-1; MAP_FIXED needs the whole flag word.
  const bip::map_options_t options = address == nullptr ? bip::default_map_options : MAP_SHARED | MAP_FIXED;
  try {
    Mapping mapping;
    mapping.region_ =
        bip::mapped_region(BorrowedFile{fd}, mode, static_cast<bip::offset_t>(offset), size, address, options);
    return mapping;
  } catch (const bip::interprocess_exception& e) {
    return Fail(Code::kIoError, std::string("cannot map shared memory: ") + e.what());
  }
}

Result<FileDescriptor> CreateMemoryFile(const char* name, uint64_t size, bool seal) {
  FileDescriptor fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Fail(Code::kNoMemory, std::string("memfd_create: ") + std::strerror(errno));
  if (::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return Fail(Code::kNoMemory, std::string("cannot size shared memory: ") + std::strerror(errno));
  }
  if (seal && ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Fail(Code::kIoError, std::string("cannot seal shared memory: ") + std::strerror(errno));
  }
  return fd;
}

}  // namespace tier::proto
