#include "daemon/memory/arena_sizing.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "proto/units.h"

namespace tier::memory {
namespace {

using base::FormatBytes;

constexpr uint64_t kDefaultShare = 4;        // An arena of memory / 4.
constexpr uint64_t kLargestShare = 2048;     // So many of the largest windows make a full arena.
constexpr uint64_t kWindowsAimed = 8192;     // So many windows at most make one of more than 16 GiB.
constexpr uint64_t kReserveShare = 16;       // memory / 16 stays with other programs,
constexpr uint64_t kReserveMin = 64 * kMiB;  // within these bounds.
constexpr uint64_t kReserveMax = 16 * kGiB;
constexpr uint32_t kSpareWindowsMin = 16;
constexpr uint32_t kSpareWindowsShare = 8;  // An eighth more indices than windows.

std::string MemoryText(const HostReading& host) {
  if (host.cgroup.limit < host.memory_total) {
    return fmt::format("{} allowed by the cgroup limit (machine: {})", FormatBytes(host.cgroup.limit),
                       FormatBytes(host.memory_total));
  }
  return fmt::format("{} of this machine", FormatBytes(host.memory_total));
}

Result<uint64_t> WindowSize(uint64_t requested, uint64_t max_bytes) {
  if (requested == 0) {
    return std::bit_floor(std::clamp(max_bytes / kLargestShare, kWindowSizeMin, kWindowSizeMax));
  }
  if (!std::has_single_bit(requested) || requested < kWindowSizeMin || requested > kWindowSizeMax) {
    return Fail(Code::kInvalid,
                fmt::format("a window of {} cannot be: set arena.window_size to a power of two from {} to {}",
                            FormatBytes(requested), FormatBytes(kWindowSizeMin), FormatBytes(kWindowSizeMax)));
  }
  if (max_bytes < requested) {
    return Fail(Code::kInvalid, fmt::format("windows of {} do not fit into an arena of {}: lower arena.window_size or "
                                            "raise arena.maximum",
                                            FormatBytes(requested), FormatBytes(max_bytes)));
  }
  return requested;
}

uint64_t RoundedUp(uint64_t dividend, uint64_t divisor) { return (dividend + divisor - 1) / divisor; }

}  // namespace

uint64_t DerivedReserve(uint64_t memory_bytes) {
  return std::clamp(memory_bytes / kReserveShare, kReserveMin, kReserveMax);
}

Result<ArenaSizes> ArenaSizing(const ArenaRequest& request, const HostReading& host) {
  const uint64_t memory = host.memory_limit();
  ArenaSizes sizes;
  sizes.reserve_is_derived = request.host_reserve_bytes == 0;
  sizes.host_reserve_bytes = sizes.reserve_is_derived ? DerivedReserve(memory) : request.host_reserve_bytes;
  const uint64_t usable = memory > sizes.host_reserve_bytes ? memory - sizes.host_reserve_bytes : 0;
  sizes.usable_bytes = usable;
  const uint64_t wanted = request.max_bytes != 0 ? request.max_bytes : std::min(memory / kDefaultShare, usable);
  if (wanted > usable) {
    return Fail(
        Code::kInvalid,
        fmt::format("an arena of {} is larger than the memory for it: {}, less the host reserve of {}, leaves "
                    "{}; lower arena.maximum or arena.host_reserve",
                    FormatBytes(wanted), MemoryText(host), FormatBytes(sizes.host_reserve_bytes), FormatBytes(usable)));
  }
  if (wanted < kWindowSizeMin) {
    return Fail(Code::kInvalid, fmt::format("an arena of {} holds not one window of {}: {}, host reserve {}; raise "
                                            "arena.maximum, or lower arena.host_reserve",
                                            FormatBytes(wanted), FormatBytes(kWindowSizeMin), MemoryText(host),
                                            FormatBytes(sizes.host_reserve_bytes)));
  }
  if (request.min_bytes > wanted) {
    return Fail(Code::kInvalid,
                fmt::format("the arena cannot keep {} of at most {}: lower arena.minimum or raise arena.maximum",
                            FormatBytes(request.min_bytes), FormatBytes(wanted)));
  }
  sizes.min_bytes = request.min_bytes;
  const Result<uint64_t> window = WindowSize(request.window_bytes, wanted);
  if (!window) return std::unexpected(window.error());
  sizes.window_size_min = kWindowSizeMin;
  sizes.window_size_max = *window;
  const uint64_t windows = wanted / sizes.window_size_max;
  if (windows > kWindowsMax) {
    return Fail(Code::kInvalid,
                fmt::format("an arena of {} in windows of {} needs {} of them, and {} is the most: raise "
                            "arena.window_size",
                            FormatBytes(wanted), FormatBytes(sizes.window_size_max), windows, kWindowsMax));
  }
  sizes.max_bytes = windows * sizes.window_size_max;
  const uint64_t of_smallest = sizes.max_bytes / sizes.window_size_min;
  const auto count = static_cast<uint32_t>(std::min(of_smallest, std::max(kWindowsAimed, windows)));
  TIER_CHECK(windows != 0 && sizes.max_bytes <= wanted && count <= kWindowsMax, "{} windows, {} of {}", count, windows,
             sizes.window_size_max);
  sizes.windows_aimed = count;
  sizes.windows_max = std::min(kWindowsMax, count + std::max(kSpareWindowsMin, count / kSpareWindowsShare));
  return sizes;
}

uint64_t SmallestWindow(const ArenaSizes& sizes, uint32_t windows, uint64_t bytes) {
  const uint64_t rest = sizes.max_bytes - std::min(sizes.max_bytes, bytes);
  const uint64_t left = sizes.windows_aimed - std::min(sizes.windows_aimed, windows);
  if (rest / sizes.window_size_min <= left) return sizes.window_size_min;
  // Beyond one for each of the largest windows.
  const uint64_t spare_at_first = sizes.windows_aimed - RoundedUp(sizes.max_bytes, sizes.window_size_max);
  const uint64_t spare = left - std::min(left, RoundedUp(rest, sizes.window_size_max));
  if (2 * spare >= spare_at_first && spare != 0) return sizes.window_size_min;
  const auto sizes_above = static_cast<uint64_t>(std::countr_zero(sizes.window_size_max / sizes.window_size_min));
  const uint64_t doublings =
      spare_at_first == 0 ? sizes_above : (spare_at_first - 2 * spare) * (sizes_above + 1) / spare_at_first;
  return sizes.window_size_min << std::min(doublings, sizes_above);
}

}  // namespace tier::memory
