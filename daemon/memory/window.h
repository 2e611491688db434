// Window: one memfd of the arena, sealed against any change of size, mapped at a 2 MiB boundary, kept out of core dumps
// and registered with the fault guard (a client may punch holes into it).
//
// Movable; thread-compatible: different ranges of one window may be populated by different threads at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/base/fault_guard.h"
#include "daemon/memory/numa_nodes.h"
#include "proto/mapping.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::memory {

enum class PageKind : uint8_t {
  kSmall,  // shmem, 4 KiB: slots and whole blocks.
  kHuge,   // hugetlb, 2 MiB: whole blocks only.
};

class Window {
 public:
  struct Options {
    WindowIndex index{};  // For its name in /proc.
    uint64_t size = 0;    // Bytes, a multiple of kBlockSize.
    PageKind pages = PageKind::kSmall;
    NodeChoice node;
  };

  Window() = default;
  // Makes, seals and maps the file; no page of it is there yet. NO_MEMORY with errno's text.
  static Result<Window> Open(const Options& options);

  // Has the kernel make the pages of a range, zeroed. NO_MEMORY when it cannot.
  Status Populate(uint64_t offset, uint64_t length) const;
  // Backs whole blocks with transparent huge pages (MADV_COLLAPSE), populated before or not; what they hold stays.
  // False: the kernel would not, for some of them. To be done before the window is registered anywhere: later ones
  // would leave the registration with the old pages.
  bool TryCollapse(uint64_t offset, uint64_t length) const;
  // Gives every page back, even where other processes still map the file, and closes it. The file of one that another
  // process may still use (retired_windows.h), or an empty descriptor.
  proto::FileDescriptor Close();

  explicit operator bool() const { return file_ != nullptr; }
  std::byte* address() const { return mapping_.data(); }
  uint64_t size() const { return mapping_.size(); }
  // The node of its first page; kAnyNode: it has none, or the kernel does not tell.
  int FirstNode() const;
  // A packet that carries it to a client holds it open beyond Close, and needs no second descriptor.
  const std::shared_ptr<const proto::FileDescriptor>& descriptor() const { return file_; }
  uint32_t page_size() const { return static_cast<uint32_t>(pages_ == PageKind::kHuge ? kBlockSize : kPageSize); }

 private:
  std::unexpected<Error> NotPopulated(int error, uint64_t offset) const;

  std::shared_ptr<const proto::FileDescriptor> file_;
  proto::Mapping mapping_;
  base::GuardedRange guarded_;
  PageKind pages_ = PageKind::kSmall;
};

}  // namespace tier::memory
