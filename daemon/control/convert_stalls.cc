// See convert_stalls.h.
#include "daemon/control/convert_stalls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tier::control {
namespace {

using tiering::StallCause;

constexpr std::array<const char*, proto::kOpCount> kOperations = {"none",     "create", "acquire", "release", "free",
                                                                  "prefetch", "step",   "persist", "flush",   "accept",
                                                                  "intern",   "stat",   "drop",    "tear"};

constexpr uint64_t kStepShownMax = (uint64_t{1} << 53) - 1;  // Its process chose it, and JSON can hold no larger one.

v1::StallCause MessageOf(StallCause cause) {
  switch (cause) {
    case StallCause::kRam: return v1::STALL_CAUSE_RAM;
    case StallCause::kSsdRead: return v1::STALL_CAUSE_SSD_READ;
    case StallCause::kSsdWrite: return v1::STALL_CAUSE_SSD_WRITE;
    case StallCause::kLease: return v1::STALL_CAUSE_LEASE;
    case StallCause::kBudget: return v1::STALL_CAUSE_BUDGET;
    case StallCause::kQueue: return v1::STALL_CAUSE_QUEUE;
  }
  return v1::STALL_CAUSE_UNSPECIFIED;
}

template <typename Duration>
void SetDuration(base::Duration from, Duration* to) {
  constexpr int64_t kNanoseconds = 1'000'000'000;
  to->set_seconds(from.count() / kNanoseconds);
  to->set_nanos(static_cast<int32_t>(from.count() % kNanoseconds));
}

void AddParts(const tiering::StallParts& parts, v1::Stall* message) {
  std::vector<std::pair<base::Duration, StallCause>> longest;
  for (size_t cause = 0; cause < parts.size(); ++cause) {
    if (parts[cause] > base::Duration{0}) longest.emplace_back(parts[cause], static_cast<StallCause>(cause));
  }
  std::ranges::stable_sort(longest, std::ranges::greater{}, [](const auto& part) { return part.first; });
  for (const auto& [duration, cause] : longest) {
    v1::StallPart* const part = message->add_parts();
    part->set_cause(MessageOf(cause));
    SetDuration(duration, part->mutable_duration());
  }
}

void ToMessage(const tiering::NamedStall& named, const session::StallReport& report, v1::Stall* message) {
  const tiering::Stall& stall = named.stall;
  message->set_operation(kOperations[static_cast<size_t>(stall.op)]);
  message->set_id(stall.tensor);
  message->set_space(stall.space);
  message->set_key(named.key);
  message->set_tensor_count(stall.tensor_count);
  message->set_requested_bytes(stall.requested_bytes);
  if (stall.session != tiering::kInternalSession) message->set_session(static_cast<uint64_t>(stall.session));
  message->set_step(std::min(stall.step, kStepShownMax));
  const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(report.now - stall.began);
  const int64_t began_ms = report.now_unix_ms - ago.count();
  message->mutable_begin_time()->set_seconds(began_ms / 1000);
  message->mutable_begin_time()->set_nanos(static_cast<int32_t>(began_ms % 1000 * 1'000'000));
  SetDuration(stall.waited, message->mutable_duration());
  AddParts(stall.parts, message);
  message->set_waiting(stall.waiting);
  if (!stall.waiting) message->set_outcome(std::string(CodeName(stall.code)));
}

}  // namespace

void ToMessage(const session::StallReport& report, v1::ListStallsResponse* message) {
  for (const tiering::NamedStall& stall : report.list.stalls) ToMessage(stall, report, message->add_stalls());
  message->set_ended_total(report.list.ended);
  SetDuration(report.list.threshold, message->mutable_threshold());
}

}  // namespace tier::control
