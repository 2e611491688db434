// What the host's memory allows the arena. See arena.h.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/memory/arena.h"

namespace tier::memory {

using base::FormatBytes;

// Where a limit is lowered while the daemon runs, a reserve that was derived from it goes with it.
uint64_t Arena::reserve_bytes() const {
  const ArenaSizes& sizes = options_.sizes;
  if (!sizes.reserve_is_derived || host_.memory_total == 0) return sizes.host_reserve_bytes;
  return std::min(sizes.host_reserve_bytes, DerivedReserve(host_.memory_limit()));
}

// What windows may take beside the daemon's own memory, by the limit that is. The windows that are there may take more.
uint64_t Arena::bound_bytes() const {
  const ArenaSizes& sizes = options_.sizes;
  uint64_t usable = sizes.usable_bytes;
  if (host_.memory_total != 0) {
    const uint64_t memory = host_.memory_limit();
    usable = std::min(usable, memory - std::min(memory, reserve_bytes()));
  }
  return std::min(sizes.max_bytes, usable - std::min(usable, own_bytes()));
}

std::unexpected<Error> Arena::HostRefusal(WindowKind kind, uint64_t size) {
  if (host_.memory_total == 0) {
    return Fail(Code::kNoMemory, "cannot tell how much memory the host has left: " + options_.host_root +
                                     "/proc/meminfo cannot be read");
  }
  if (kind == WindowKind::kBlock && options_.huge_pages == HugePagePolicy::kAlways) {
    return Fail(Code::kNoMemory,
                fmt::format("a window of {} in huge pages was asked for and {} of them are free; raise "
                            "vm.nr_hugepages or set arena.huge_pages to \"auto\"",
                            FormatBytes(size), host_.huge_pages_free));
  }
  if (pressure_.active()) {
    return Fail(Code::kNoMemory, fmt::format("the host is short of memory ({}): the arena stays at {}", PressureText(),
                                             FormatBytes(owned_bytes_)));
  }
  return Fail(Code::kNoMemory,
              fmt::format("a window of {} would cut into the host reserve: {} available{}, {} still to be populated, "
                          "reserve {}; the arena stays at {}",
                          FormatBytes(size), FormatBytes(host_.available()),
                          host_.cgroup.available < host_.memory_available ? " by the cgroup limit" : "",
                          FormatBytes(making_bytes_), FormatBytes(reserve_bytes()), FormatBytes(owned_bytes_)));
}

std::string Arena::PressureText() const {
  const auto waits = [](const MemoryStalls& stalls) {
    return fmt::format("waited for memory {:.1f} % of the last 10 s, all of them {:.1f} %", stalls.some_avg10,
                       stalls.full_avg10);
  };
  switch (pressure_.cause()) {
    case HostPressure::Cause::kHostStalls: return "tasks of this machine " + waits(host_.stalls);
    case HostPressure::Cause::kCgroupStalls: return "tasks of the control group " + waits(host_.cgroup.stalls);
    case HostPressure::Cause::kRoom:
    case HostPressure::Cause::kNone: break;
  }
  const bool by_group = host_.cgroup.available < host_.memory_available;
  const uint64_t available = host_.available();
  const std::string left = by_group && host_.cgroup.excess != 0
                               ? fmt::format("is exceeded by {}", FormatBytes(host_.cgroup.excess))
                               : fmt::format("leaves {}", FormatBytes(available));
  return fmt::format("{} {}, the host reserve is {}, {} are the daemon's own memory",
                     by_group ? host_.cgroup.tightest : "this machine", left, FormatBytes(reserve_bytes()),
                     FormatBytes(own_bytes()));
}

uint64_t Arena::HugePageBytesFree() const {
  return host_.huge_page_size == kBlockSize ? host_.huge_pages_free * kBlockSize : 0;
}

uint64_t Arena::HugePageBytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) {
    if (entry.window && entry.window.page_size() != kPageSize) bytes += entry.size;
  }
  return bytes;
}

void Arena::StartSample() {
  if (!sampler_.under_way()) {
    sampled_making_bytes_ = making_bytes_;
    sampled_closed_bytes_ = closed_bytes_;
  }
  sampler_.Start();
}

void Arena::StartRefresh() {
  retired_.Start();
  StartSample();
}

void Arena::RefreshHost() {
  const Result<HostReading> host = ReadHost(options_.host_root);
  SetHost(host ? *host : HostReading{}, 0, closed_bytes_);  // Unreadable: nothing may be had, the refusal says so.
}

// `given`: what is available, with what is on its way back.
HostPressure::Arena Arena::PressedBy(uint64_t given) const {
  const uint64_t bytes = owned_bytes_ + stock_bytes_;
  const uint64_t bound = bound_bytes();
  const uint64_t taken = reserve_bytes() + making_small_bytes_ + host_.cgroup.excess;
  return {.bytes = bytes,
          .least_bytes = std::max(std::min(options_.sizes.min_bytes, bytes), HugePageBytes()),
          .step_bytes = options_.sizes.window_size_min,
          .reserve_bytes = reserve_bytes(),
          .missing_bytes = taken > given ? taken - given : 0,
          .too_many_bytes = bytes > bound ? bytes - bound : 0};
}

void Arena::SetHost(const HostReading& host, uint64_t making_when_asked, uint64_t closed_when_asked) {
  host_ = host;
  host_read_ = true;
  // Windows in the making are not in the reading yet, those being closed still are.
  const uint64_t making = std::max(making_bytes_, making_when_asked);
  const uint64_t taken = reserve_bytes() + making;
  const uint64_t closing = closing_bytes_ - closing_huge_bytes_;
  const uint64_t given = host_.available() + closing;
  TIER_CHECK(closed_bytes_ >= closed_when_asked, "{} of {} bytes closed", closed_bytes_, closed_when_asked);
  const uint64_t closed_since = closed_bytes_ - closed_when_asked;  // The reading may still have them as used.
  const HostPressure::Arena pressed = PressedBy(given + closed_since);
  pressure_.Note(host_, pressed, clock_.Now());
  CloseStockBeyond(pressure_.ceiling());

  uint64_t room = given > taken ? given - taken : 0;
  const uint64_t bytes = owned_bytes_ + stock_bytes_;
  room = std::min(room, pressure_.ceiling() - std::min(bytes, pressure_.ceiling()));
  uint64_t huge_room = HugePageBytesFree() + closing_huge_bytes_;
  huge_room -= std::min(huge_room, making);
  small_credit_bytes_ = 0;
  small_rest_bytes_ = room;
  ExtendCredit();
  huge_credit_bytes_ = huge_room;

  const uint64_t growth = (options_.huge_pages == HugePagePolicy::kAlways ? 0 : room) +
                          (options_.huge_pages == HugePagePolicy::kNever ? 0 : huge_room);
  const uint64_t reachable = std::min(pressure_.ceiling(), bytes + growth);
  const uint64_t grain = options_.sizes.window_size_min;
  // What is kept in any case counts as reachable where it is there; it is not made beyond what the host allows.
  max_now_bytes_ = std::max(std::min(bound_bytes(), reachable), pressed.least_bytes) / grain * grain;
}

// As much as is missing should come back, stock first.
void Arena::CloseStockBeyond(uint64_t bytes) {
  max_now_bytes_ = std::min(max_now_bytes_, bytes);
  const auto gains = [&] { return !stock_.empty() && At(stock_.back()).window.page_size() == kPageSize; };
  while (gains() && owned_bytes_ + stock_bytes_ > bytes) CloseStock();
}

void Arena::ExtendCredit() {
  const uint64_t covered = std::max(kReadingCoversBytes, options_.sizes.window_size_max);
  const uint64_t more = std::min(small_rest_bytes_, covered - std::min(covered, small_credit_bytes_));
  small_credit_bytes_ += more;
  small_rest_bytes_ -= more;
}

}  // namespace tier::memory
