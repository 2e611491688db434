// See host_pressure.h.
#include "daemon/memory/host_pressure.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"

namespace tier::memory {
namespace {

double PartOf(std::optional<uint64_t> before, std::optional<uint64_t> total, base::Duration time, double avg10) {
  if (!before || !total || *total < *before || time <= base::Duration{0}) return avg10 / 100;
  return static_cast<double>(*total - *before) / (std::chrono::duration<double>(time).count() * 1e6);
}

bool IsLittle(uint64_t unused, uint64_t of) { return unused < of / kLittleShare; }

}  // namespace

HostPressure::Level HostPressure::LevelOf(const MemoryStalls& stalls, base::TimePoint now, Seen* seen) {
  const Seen before = *seen;
  *seen = {stalls, now};
  if (!stalls.known) return Level::kCalm;
  const base::Duration time = now - before.at;
  const double some = PartOf(before.stalls.some_total_us, stalls.some_total_us, time, stalls.some_avg10);
  const double full = PartOf(before.stalls.full_total_us, stalls.full_total_us, time, stalls.full_avg10);
  if (some >= kSomeStalled || full >= kFullStalled) return Level::kStalled;
  return some < kSomeCalm && full < kFullCalm ? Level::kCalm : Level::kBetween;
}

void HostPressure::Begin(Cause cause, const Arena& arena, base::TimePoint now) {
  short_at_ = now;
  if (active()) return;
  ceiling_ = std::max(arena.bytes, arena.least_bytes);
  gives_ = false;
  cause_ = cause;
  bytes_before_ = arena.bytes;
  since_ = now;
  const bool soon = ended_ && now - ended_at_ < 2 * calm_;
  calm_ = soon ? std::min(2 * calm_, kCalmMax) : kCalmFirst;
  TIER_CHECK(active() && calm_ >= kCalmFirst, "ceiling {} for {} ns", ceiling_, calm_.count());
}

void HostPressure::Lower(uint64_t to, const Arena& arena) {
  TIER_CHECK(active(), "lowered to {} without a shortage", to);
  to = std::max(to, arena.least_bytes);
  if (to >= ceiling_) return;
  ceiling_ = to;
  if (!gives_) ++count_;
  gives_ = true;
}

void HostPressure::NoteStalls(Cause cause, const Arena& arena, base::TimePoint now) {
  Begin(cause, arena, now);
  if (++stalled_readings_ < kStalledReadings || arena.bytes > ceiling_) return;
  const uint64_t step = std::max({arena.step_bytes, arena.bytes / kStallStepShare, kStallStepMin});
  const uint64_t half = bytes_before_ / 2;
  if (arena.bytes > half) Lower(std::max(arena.bytes - std::min(arena.bytes, step), half), arena);
}

void HostPressure::EndIfCalm(base::TimePoint now) {
  TIER_CHECK(!active() || now >= short_at_, "time went back by {} ns", (short_at_ - now).count());
  if (!active() || now - short_at_ < calm_) return;
  ceiling_ = kUnlimited;
  ended_at_ = now;
  ended_ = true;
}

void HostPressure::Note(const HostReading& reading, const Arena& arena, base::TimePoint now) {
  const Level host = LevelOf(reading.stalls, now, &host_);
  const Level cgroup = LevelOf(reading.cgroup.stalls, now, &cgroup_);
  if (reading.memory_total == 0) return EndIfCalm(now);  // Not known is not short.
  const bool little_host = IsLittle(reading.memory_free, reading.memory_total);
  const bool little_cgroup = little_host || IsLittle(reading.cgroup.unused, reading.cgroup.unused_limit);

  const bool below = arena.missing_bytes > arena.reserve_bytes / 4 || arena.too_many_bytes != 0;
  if (below || (active() && arena.missing_bytes != 0)) {
    Begin(Cause::kRoom, arena, now);
    const uint64_t give = std::max(arena.missing_bytes, arena.too_many_bytes);
    Lower(arena.bytes - std::min(arena.bytes, give), arena);
  }
  if (little_cgroup && cgroup == Level::kStalled) {
    NoteStalls(Cause::kCgroupStalls, arena, now);
  } else if (little_host && host == Level::kStalled) {
    NoteStalls(Cause::kHostStalls, arena, now);
  } else {
    stalled_readings_ = 0;
    const bool between = (little_cgroup && cgroup == Level::kBetween) || (little_host && host == Level::kBetween);
    if (active() && between) short_at_ = now;
  }
  EndIfCalm(now);
}

std::string DescribePressure(const HostPressure& pressure, const HostReading& host, uint64_t reserve_bytes,
                             uint64_t own_bytes) {
  const auto waits = [](const MemoryStalls& stalls) {
    return fmt::format("waited for memory {:.1f} % of the last 10 s, all of them {:.1f} %", stalls.some_avg10,
                       stalls.full_avg10);
  };
  switch (pressure.cause()) {
    case HostPressure::Cause::kHostStalls: return "tasks of this machine " + waits(host.stalls);
    case HostPressure::Cause::kCgroupStalls: return "tasks of the control group " + waits(host.cgroup.stalls);
    case HostPressure::Cause::kRoom:
    case HostPressure::Cause::kNone: break;
  }
  const bool by_group = host.cgroup.available < host.memory_available;
  const uint64_t available = host.available();
  const std::string left = by_group && host.cgroup.excess != 0
                               ? fmt::format("is exceeded by {}", base::FormatBytes(host.cgroup.excess))
                               : fmt::format("leaves {}", base::FormatBytes(available));
  return fmt::format("{} {}, the host reserve is {}, {} are the daemon's own memory",
                     by_group ? host.cgroup.tightest : "this machine", left, base::FormatBytes(reserve_bytes),
                     base::FormatBytes(own_bytes));
}

}  // namespace tier::memory
