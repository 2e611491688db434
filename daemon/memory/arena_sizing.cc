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
constexpr uint64_t kReserveShare = 16;       // memory / 16 stays with other programs,
constexpr uint64_t kReserveMin = 64 * kMiB;  // within these bounds.
constexpr uint64_t kReserveMax = 16 * kGiB;
// More indices than windows that make a full arena: a window can be made while others are still being closed.
constexpr uint32_t kClosingMin = 16;
constexpr uint32_t kClosingMax = 500;
constexpr uint32_t kClosingShare = 15;
constexpr uint32_t kWindowsAimed = kWindowsOfNode - kClosingMax;
constexpr uint32_t kSpareOfLargest = 256;  // For small jobs, where the largest windows of a full arena are as many.

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

// The indices of an arena that is full with so many of the largest windows.
Status CountWindows(uint64_t windows, ArenaSizes* sizes) {
  const bool may_be_larger = sizes->window_size_max < kWindowSizeMax;
  const uint64_t most = may_be_larger ? kWindowsAimed : kWindowsMax;
  if (windows > most) {
    return Fail(Code::kInvalid,
                fmt::format("an arena of {} in windows of {} needs {} of them, and {} is the most: {}",
                            FormatBytes(windows * sizes->window_size_max), FormatBytes(sizes->window_size_max), windows,
                            most, may_be_larger ? "raise arena.window_size" : "lower arena.maximum"));
  }
  sizes->max_bytes = windows * sizes->window_size_max;
  const uint64_t of_smallest = sizes->max_bytes / sizes->window_size_min;
  const uint64_t of_largest = windows + (may_be_larger ? 0 : kSpareOfLargest);
  const uint64_t aimed = std::min({of_smallest, std::max<uint64_t>(kWindowsAimed, of_largest), uint64_t{kWindowsMax}});
  sizes->windows_aimed = static_cast<uint32_t>(aimed);
  const uint32_t closing = std::clamp(sizes->windows_aimed / kClosingShare, kClosingMin, kClosingMax);
  sizes->windows_max = std::min(kWindowsMax, sizes->windows_aimed + closing);
  TIER_CHECK(sizes->windows_aimed >= windows && sizes->windows_max >= sizes->windows_aimed, "{} and {} windows for {}",
             sizes->windows_aimed, sizes->windows_max, windows);
  return {};
}

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
  if (Status counted = CountWindows(wanted / sizes.window_size_max, &sizes); !counted) {
    return std::unexpected(counted.error());
  }
  TIER_CHECK(sizes.max_bytes != 0 && sizes.max_bytes <= wanted, "{} of {}", sizes.max_bytes, wanted);
  return sizes;
}

namespace {

// How far spare indices are used up. Parts in 16 are from 0 to 16.
struct Spare {
  uint64_t at_first = 0;
  uint64_t used = 0;
  bool plenty = false;  // The rest of the arena may be in windows of any size.

  bool UsedBeyond(uint64_t sixteenths) const { return 16 * used >= sixteenths * at_first; }
};

Spare SpareOf(const ArenaSizes& sizes, const WindowsInUse& in_use) {
  const uint64_t rest = sizes.max_bytes - std::min(sizes.max_bytes, in_use.bytes);
  const uint64_t left = sizes.windows_aimed - std::min(sizes.windows_aimed, in_use.count);
  Spare spare;
  spare.at_first = sizes.windows_aimed - RoundedUp(sizes.max_bytes, sizes.window_size_max);
  const uint64_t now = left - std::min(left, RoundedUp(rest, sizes.window_size_max));
  spare.used = spare.at_first - std::min(spare.at_first, now);
  spare.plenty = rest / sizes.window_size_min <= left;
  return spare;
}

// Doublings of a size, of at most `most`: none before so many sixteenths of the spare indices are used up, all of them
// from `last` sixteenths on.
uint64_t DoublingsOf(const Spare& spare, uint64_t first, uint64_t last, uint64_t most) {
  if (!spare.UsedBeyond(first)) return 0;
  const uint64_t beyond = 16 * spare.used - first * spare.at_first;
  const uint64_t range = (last - first) * spare.at_first;
  return range == 0 ? most : std::min(most, 1 + beyond * most / range);
}

}  // namespace

WindowWishes WindowsWished(const ArenaSizes& sizes, const WindowsInUse& used, const WindowHolder& job) {
  const uint64_t least = sizes.window_size_min;
  const uint64_t most = sizes.window_size_max;
  const uint64_t by_job = std::clamp(std::bit_floor(job.kind_bytes / kWindowsHeld), least, most);
  const auto doubled = [&](uint64_t doublings) { return most >> doublings <= by_job ? most : by_job << doublings; };
  const auto doublings_most = static_cast<uint64_t>(std::countr_zero(most / least));
  const Spare spare = SpareOf(sizes, used);
  WindowWishes wishes{.next = by_job, .merged = 0};
  if (!spare.plenty) {
    const bool small = job.all_bytes < kSmallJob;
    const uint64_t first = small ? 15 : 12;
    const uint64_t last = small ? 16 : 14;
    wishes.next = doubled(DoublingsOf(spare, first, last, doublings_most));
  }
  const bool all_fit = sizes.max_bytes / least <= sizes.windows_aimed;
  if (all_fit || !spare.UsedBeyond(4)) return wishes;
  wishes.merged = doubled(spare.UsedBeyond(7) ? 4 : spare.UsedBeyond(6) ? 2 : 0);
  return wishes;
}

}  // namespace tier::memory
