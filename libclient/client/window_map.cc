#include "libclient/client/window_map.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tier::client {
namespace {

// Windows lie at multiples of their size in the address space, and so they do in memory, where huge pages need it.
uint64_t AlignmentFor(uint64_t address_space_size) {
  return std::min(std::bit_floor(address_space_size), kWindowSizeMax);
}

std::string NameOf(const proto::WindowPacket& packet) { return "window " + std::to_string(packet.window); }

std::unexpected<Error> Nonsense(const proto::WindowPacket& packet, const std::string& what) {
  return Fail(Code::kInvalid, "the daemon sent " + NameOf(packet) + what);
}

// What can be said of a packet alone.
Status CheckFields(const proto::WindowPacket& packet) {
  const bool size_fits =
      std::has_single_bit(packet.size) && packet.size >= kWindowSizeMin && packet.size <= kWindowSizeMax;
  if (!size_fits) return Nonsense(packet, " with an impossible size of " + std::to_string(packet.size) + " bytes");
  if (packet.kind >= kWindowKinds || packet.reserved0 != 0 || packet.reserved1 != 0) {
    return Nonsense(packet, " of an unknown kind (" + std::to_string(packet.kind) + ")");
  }
  const bool slots = packet.kind == static_cast<uint16_t>(WindowKind::kSlot);
  if (packet.page_size != kPageSize && (packet.page_size != kBlockSize || slots)) {
    return Nonsense(packet, " with an impossible page size of " + std::to_string(packet.page_size) + " bytes");
  }
  if (packet.place % packet.size != 0) {
    return Nonsense(packet, " at place " + std::to_string(packet.place) + ", which is no multiple of its size of " +
                                std::to_string(packet.size) + " bytes");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<WindowMap>> WindowMap::Reserve(uint32_t windows_max, uint64_t address_space_size) {
  const uint64_t alignment = AlignmentFor(address_space_size);
  const uint64_t wanted = address_space_size + alignment;
  void* const address = ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return Fail(Code::kNoMemory, "cannot reserve " + std::to_string(wanted >> 20) +
                                     " MiB of address range for the daemon's windows (" + std::strerror(errno) +
                                     "): raise the limit on virtual memory (ulimit -v)");
  }
  (void)::madvise(address, wanted, MADV_DONTFORK);  // Best effort: an empty reservation in a child does no harm.
  auto* const start = static_cast<std::byte*>(address);
  const uint64_t misfit = reinterpret_cast<uintptr_t>(start) % alignment;
  std::byte* const base = start + (misfit == 0 ? 0 : alignment - misfit);
  return std::unique_ptr<WindowMap>(new WindowMap({start, wanted}, base, windows_max, address_space_size));
}

WindowMap::WindowMap(Reservation reservation, std::byte* base, uint32_t windows_max, uint64_t address_space_size)
    : reservation_(reservation),
      base_(base),
      windows_max_(windows_max),
      address_space_size_(address_space_size),
      windows_(std::make_unique<Window[]>(windows_max)) {}

WindowMap::~WindowMap() { ::munmap(reservation_.start, reservation_.size); }

Status WindowMap::Check(const proto::WindowPacket& packet, int fd) const {
  if (packet.window >= windows_max_) {
    return Nonsense(packet, ", which is beyond the " + std::to_string(windows_max_) + " announced");
  }
  if (auto fields = CheckFields(packet); !fields) return fields;
  const bool fits = packet.size <= address_space_size_ && packet.place <= address_space_size_ - packet.size;
  if (!fits) {
    return Nonsense(packet, " at place " + std::to_string(packet.place) + " of an address space of " +
                                std::to_string(address_space_size_) + " bytes");
  }
  if (windows_[packet.window].mapped.load()) return Nonsense(packet, " twice");
  const auto behind = places_.lower_bound(packet.place + packet.size);
  const auto last = behind == places_.begin() ? places_.end() : std::prev(behind);
  if (last != places_.end() && last->first + last->second > packet.place) {
    return Nonsense(packet, " at place " + std::to_string(packet.place) + ", where another window lies");
  }
  struct stat file{};
  if (::fstat(fd, &file) != 0 || static_cast<uint64_t>(file.st_size) < packet.size) {
    return Nonsense(
        packet, " as a file smaller than its " + std::to_string(packet.size) + " bytes: touching it would be fatal");
  }
  return {};
}

Status WindowMap::MapAt(const proto::WindowPacket& packet, int fd) {
  std::byte* const address = base_ + packet.place;
  if (::mmap(address, packet.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return Fail(Code::kNoMemory, "cannot map " + NameOf(packet) + ": " + std::strerror(errno));
  }
  if (::madvise(address, packet.size, MADV_DONTFORK) != 0) {
    const int error = errno;
    (void)PutBack(packet.place, packet.size);
    return Fail(Code::kIoError, "cannot keep " + NameOf(packet) + " out of forked children: " + std::strerror(error));
  }
  return {};
}

Status WindowMap::Map(const proto::WindowPacket& packet, int fd) {
  if (auto sense = Check(packet, fd); !sense) return sense;
  if (auto mapped = MapAt(packet, fd); !mapped) return mapped;
  Window& entry = windows_[packet.window];
  entry.page_size.store(packet.page_size, std::memory_order_relaxed);
  entry.size.store(packet.size, std::memory_order_relaxed);
  entry.place.store(packet.place, std::memory_order_relaxed);
  places_.emplace(packet.place, packet.size);
  mapped_count_.fetch_add(1, std::memory_order_relaxed);
  mapped_bytes_.fetch_add(packet.size, std::memory_order_relaxed);
  {
    const MutexLock lock(arrival_mutex_);
    entry.mapped.store(true, std::memory_order_release);
  }
  arrival_.NotifyAll();
  // Its pages exist already; only this process's page tables are filled, at a tenth of the price of faults. Best
  // effort: without it (before Linux 5.14) the first touch of each page costs a fault.
  (void)::madvise(base_ + packet.place, packet.size, MADV_POPULATE_WRITE);
  return {};
}

Status WindowMap::Unmap(uint32_t window) {
  const auto name = "window " + std::to_string(window);
  if (window >= windows_max_ || !windows_[window].mapped.load()) {
    return Fail(Code::kInvalid, "the daemon asked for " + name + " back, which this client does not have");
  }
  Window& entry = windows_[window];
  if (const uint32_t leases = entry.leases.load(); leases > 0) {
    return Fail(Code::kInvalid,
                "the daemon asked for " + name + " back while " + std::to_string(leases) + " leased runs lie in it");
  }
  const uint64_t size = entry.size.load(std::memory_order_relaxed);
  const uint64_t place = entry.place.load(std::memory_order_relaxed);
  entry.mapped.store(false);
  mapped_count_.fetch_sub(1, std::memory_order_relaxed);
  mapped_bytes_.fetch_sub(size, std::memory_order_relaxed);
  if (!PutBack(place, size)) return Fail(Code::kNoMemory, "cannot unmap " + name + ": " + std::strerror(errno));
  places_.erase(place);
  return {};
}

// The reservation instead of a window.
bool WindowMap::PutBack(uint64_t place, uint64_t size) {
  std::byte* const address = base_ + place;
  if (::mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    return false;
  (void)::madvise(address, size, MADV_DONTFORK);
  return true;
}

void WindowMap::UnmapAll() {
  for (uint32_t i = 0; i < windows_max_; ++i) {
    windows_[i].mapped.store(false);
  }
  mapped_count_.store(0);
  mapped_bytes_.store(0);
  places_.clear();
  // One call for the whole range: a failure leaves pages mapped until the process ends, which is the kernel's to undo.
  (void)::mmap(base_, address_space_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool WindowMap::Await(const proto::SpanRecord& span, std::chrono::milliseconds timeout) {
  const bool possible = span.length > 0 && span.offset < kWindowSizeMax && span.length <= kWindowSizeMax - span.offset;
  if (span.window >= windows_max_ || !possible) return false;
  Window& entry = windows_[span.window];
  if (!entry.mapped.load(std::memory_order_acquire)) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const MutexLock lock(arrival_mutex_);
    while (!entry.mapped.load() && !stopped_.load() && arrival_.WaitUntil(arrival_mutex_, deadline)) continue;
    if (!entry.mapped.load()) return false;
  }
  const uint64_t size = entry.size.load(std::memory_order_relaxed);
  return span.offset < size && span.length <= size - span.offset;
}

void WindowMap::Stop() {
  {
    const MutexLock lock(arrival_mutex_);
    stopped_.store(true);
  }
  arrival_.NotifyAll();
}

}  // namespace tier::client
