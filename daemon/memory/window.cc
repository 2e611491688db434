// The system calls of one window. Order matters: seals before another process can have the descriptor, binding before
// the first page, one page of a block before its collapse, collapse before the other pages.
#include "daemon/memory/window.h"

#include <fcntl.h>
#include <linux/mman.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/memory/retired_windows.h"

namespace tier::memory {
namespace {

using base::FormatBytes;

#ifndef MADV_COLLAPSE
constexpr int kMadviseCollapse = 25;  // Linux 6.1; younger than the C library's headers.
#else
constexpr int kMadviseCollapse = MADV_COLLAPSE;
#endif

// The kernel lets no thread of the process map, unmap or fault in memory beside a call that waits to, and that one
// waits until the populating of all that was asked for at once is done.
constexpr uint64_t kPopulatedAtOnce = kBlockSize;

std::unexpected<Error> NoMemory(const char* what, const Window::Options& options) {
  const int error = errno;
  std::string message = fmt::format("cannot {} a window of {} ({} pages): {}", what, FormatBytes(options.size),
                                    options.pages == PageKind::kHuge ? "huge" : "small", std::strerror(error));
  if (error == EMFILE || error == ENFILE) message += "; raise the limit of open files (LimitNOFILE=, ulimit -n)";
  return Fail(Code::kNoMemory, std::move(message));
}

// The kernel counts who has a file open only for those that opened it by a path (retired_windows.h). Empty: there is no
// /proc.
std::optional<proto::FileDescriptor> OpenedAgain(int file) {
  proto::FileDescriptor again(::open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDWR | O_CLOEXEC));
  if (!again) return std::nullopt;
  return again;
}

Result<proto::FileDescriptor> MakeFile(const Window::Options& options) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (options.pages == PageKind::kHuge) flags |= MFD_HUGETLB | HUGETLB_FLAG_ENCODE_2MB;
  const std::string name = fmt::format("tierd-window-{}", Value(options.index));
  proto::FileDescriptor file(::memfd_create(name.c_str(), flags));
  if (!file) return NoMemory("create", options);
  if (::fchmod(file.get(), 0600) != 0) return NoMemory("protect", options);
  if (::ftruncate(file.get(), static_cast<off_t>(options.size)) != 0) return NoMemory("size", options);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return NoMemory("seal", options);
  }
  return OpenedAgain(file.get()).value_or(std::move(file));
}

// Huge pages lie at such a boundary by themselves. They must not be mapped over a reservation: when too few are to be
// had the kernel has already taken the reservation away, and what another thread maps there would be unmapped as ours.
Result<proto::Mapping> MapHuge(int file, const Window::Options& options) {
  auto mapping = proto::Mapping::Map(file, 0, options.size, proto::Access::kReadWrite);
  if (mapping) return mapping;
  return Fail(Code::kNoMemory,
              fmt::format("cannot map a window of {}: {}", FormatBytes(options.size), mapping.error().message));
}

// Maps the file at a 2 MiB boundary, so that its blocks can be huge pages. The place is reserved first: mapping over
// one's own reservation is the only way to choose an address without a race.
Result<proto::Mapping> MapAligned(int file, const Window::Options& options) {
  if (options.pages == PageKind::kHuge) return MapHuge(file, options);
  const uint64_t reserved_size = options.size + kBlockSize;
  void* reserved = ::mmap(nullptr, reserved_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return NoMemory("reserve addresses for", options);
  auto* const begin = static_cast<std::byte*>(reserved);
  std::byte* const end = begin + reserved_size;
  const auto address = reinterpret_cast<uintptr_t>(begin);
  std::byte* const aligned = begin + (AlignUp(address, kBlockSize) - address);
  auto mapping = proto::Mapping::Map(file, 0, options.size, proto::Access::kReadWrite, aligned);
  if (!mapping) {
    // Another thread may have mapped the addresses of the failed attempt by now: only those around it are certainly
    // ours.
    if (aligned != begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
    ::munmap(aligned + options.size, static_cast<size_t>(end - (aligned + options.size)));
    return Fail(Code::kNoMemory,
                fmt::format("cannot map a window of {}: {}", FormatBytes(options.size), mapping.error().message));
  }
  if (aligned != begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
  if (aligned + options.size != end) {
    ::munmap(aligned + options.size, static_cast<size_t>(end - (aligned + options.size)));
  }
  return mapping;
}

// Whatever thread touches a page first, it comes from this node: the policy goes with the file. Where another will do,
// one that the kernel cannot prefer is no reason to have no window.
Status BindToNode(const proto::Mapping& mapping, const Window::Options& options) {
  constexpr unsigned kBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 1024 / kBits> nodes{};
  const auto node = static_cast<unsigned>(options.node.node);
  TIER_CHECK(node < nodes.size() * kBits, "node {}", node);
  nodes[node / kBits] = 1UL << (node % kBits);
  // The kernel reads one bit less than it is told.
  const int policy = options.node.only ? MPOL_BIND : MPOL_PREFERRED;
  const bool bound = ::mbind(mapping.data(), mapping.size(), policy, nodes.data(), nodes.size() * kBits + 1, 0) == 0;
  if (!bound && options.node.only) {
    return NoMemory(fmt::format("bind to NUMA node {}", node).c_str(), options);
  }
  return {};
}

}  // namespace

Result<Window> Window::Open(const Options& options) {
  TIER_CHECK(options.size != 0 && options.size % kBlockSize == 0, "size {}", options.size);
  Result<proto::FileDescriptor> file = MakeFile(options);
  if (!file) return std::unexpected(std::move(file.error()));
  Result<proto::Mapping> mapping = MapAligned(file->get(), options);
  if (!mapping) return std::unexpected(std::move(mapping.error()));
  TIER_CHECK(reinterpret_cast<uintptr_t>(mapping->data()) % kBlockSize == 0, "address {}",
             static_cast<void*>(mapping->data()));
  if (options.node.node != kAnyNode) {
    if (Status bound = BindToNode(*mapping, options); !bound) return std::unexpected(std::move(bound.error()));
  }
  // Best effort: a core dump of the daemon shall not hold every tensor of the node; it is not dumpable anyhow.
  (void)::madvise(mapping->data(), mapping->size(), MADV_DONTDUMP);
  // Where the kernel leaves shmem huge pages to advice, one fault makes 2 MiB: the file is the same, only faster.
  if (options.pages == PageKind::kSmall) (void)::madvise(mapping->data(), mapping->size(), MADV_HUGEPAGE);

  Window window;
  window.file_ = std::make_shared<const proto::FileDescriptor>(std::move(*file));
  window.mapping_ = std::move(*mapping);
  window.guarded_ = base::GuardedRange(window.mapping_.data(), window.mapping_.size());
  window.pages_ = options.pages;
  return window;
}

Status Window::Populate(uint64_t offset, uint64_t length) const {
  TIER_CHECK(offset % kPageSize == 0 && offset + length <= size(), "offset {} length {} size {}", offset, length,
             size());
  const uint64_t end = offset + length;
  while (offset != end) {
    const uint64_t now = std::min(end - offset, kPopulatedAtOnce);
    if (::madvise(address() + offset, now, MADV_POPULATE_WRITE) == 0) {
      offset += now;
    } else if (errno != EINTR && errno != EAGAIN) {
      return NotPopulated(errno, offset);
    }
  }
  return {};
}

// EFAULT stands for the SIGBUS that touching the page would have been: no huge page, or a limit was met.
std::unexpected<Error> Window::NotPopulated(int error, uint64_t offset) const {
  const bool exhausted = error == EFAULT || error == ENOMEM || error == ENOSPC;
  return Fail(Code::kNoMemory,
              fmt::format("cannot populate a window of {} ({} KiB pages) at offset {}: {}", FormatBytes(size()),
                          page_size() / kKiB, offset, exhausted ? "no page is to be had" : std::strerror(error)));
}

int Window::FirstNode() const {
  int node = kAnyNode;
  const bool known = ::get_mempolicy(&node, nullptr, 0, address(), MPOL_F_NODE | MPOL_F_ADDR) == 0;
  return known ? node : kAnyNode;
}

bool Window::TryCollapse(uint64_t offset, uint64_t length) const {
  TIER_CHECK(pages_ == PageKind::kSmall && offset % kBlockSize == 0 && offset + length <= size(),
             "page size {} offset {} length {}", page_size(), offset, length);
  // A block without any page is refused; one page is enough, and spares the copying of the other 511.
  for (uint64_t at = offset; at < offset + length; at += kBlockSize) {
    if (!Populate(at, kPageSize)) return false;
  }
  return ::madvise(address() + offset, length, kMadviseCollapse) == 0;
}

proto::FileDescriptor Window::Close() {
  if (!file_) return {};
  guarded_ = base::GuardedRange();
  // Best effort: if no other process maps the file, closing gives the pages back as well.
  (void)::fallocate(file_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size()));
  std::optional<proto::FileDescriptor> again = OpenedAgain(file_->get());
  mapping_ = proto::Mapping();
  file_.reset();
  if (!again || IsUnusedByOthers(again->get())) return {};
  return std::move(*again);
}

}  // namespace tier::memory
