// See drain_control.h.
#include "daemon/session/drain_control.h"

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/not_admin.h"

namespace tier::session {
namespace {

constexpr const char* kDrainedRefusal =
    "this node is being drained (tierctl drain): it takes no new job or process until an administrator runs tierctl "
    "undrain; jobs that run go on";

}  // namespace

// Without an SSD tier there is nowhere to write to, and a drain is not refused for that: the bytes stay in RAM.
void DrainControl::Write(tiering::JobId job, uint32_t timeout_ms, const std::shared_ptr<SessionFlush::Group>& group) {
  TIER_CHECK(group != nullptr && timeout_ms > 0, "group {} timeout {}", group != nullptr, timeout_ms);
  if (parts_.has_ssd_tier) parts_.sessions.Flush(job, timeout_ms, group);
}

void DrainControl::Start(const Caller& caller, const std::string& name, uint32_t timeout_ms, SessionFlush::Done done) {
  const auto group = std::make_shared<SessionFlush::Group>(std::move(done));
  if (!name.empty()) {
    const auto job = parts_.jobs.registry().FindFor(caller, name);
    if (!job) return group->Fail(job.error());
    parts_.events.Emit("drain", *job, fmt::format("job '{}' is being drained", name));
    return Write((*job)->id, timeout_ms, group);
  }
  if (!caller.admin) return group->Fail(NotAdmin("drain the daemon").error());
  // Who waits for the last process must not take the end of all sessions for it.
  if (stopping()) return group->Fail({Code::kDisconnected, "tierd is being stopped"});
  parts_.jobs.CloseAdmission(kDrainedRefusal);
  if (parts_.on_closed) parts_.on_closed();
  if (!drained_.exchange(true, std::memory_order_relaxed))
    parts_.events.Emit("draining", nullptr, "the node is being drained: no new job or process is taken");
  for (const auto& [id, job] : parts_.jobs.registry().jobs()) Write(id, timeout_ms, group);
}

// The mark comes first: a crash from here on ends no drain. One that cannot be made is no reason to refuse the drain.
bool DrainControl::PostStart(bool drains_node, std::function<void()> start, std::string* unmarked) {
  if (!drains_node) return parts_.mailbox.TryPost(std::move(start));
  const std::lock_guard lock(marking_);
  if (Status marked = mark_.Set(); !marked) {
    parts_.events.Emit("io_error", nullptr, fmt::format("a crash would end the drain: {}", marked.error().message));
    *unmarked = std::move(marked.error().message);
  }
  const bool posted = parts_.mailbox.TryPost(std::move(start));
  // SetStopping removes it either before this look, or itself.
  if (stopping_ || (!posted && !drained_)) mark_.Remove();
  return posted;
}

Result<Drained> DrainControl::Drain(const Caller& caller, const std::string& job, std::chrono::milliseconds timeout) {
  auto answer = std::make_shared<std::promise<Status>>();
  auto future = answer->get_future();
  const auto timeout_ms = static_cast<uint32_t>(std::clamp<int64_t>(timeout.count(), 1, UINT32_MAX));
  const auto start = [this, caller, job, timeout_ms, answer] {
    Start(caller, job, timeout_ms, [answer](const Status& status) { answer->set_value(status); });
  };
  std::string unmarked;
  if (!PostStart(job.empty() && caller.admin, start, &unmarked))
    return Fail(Code::kTimeout, "the engine has too many calls waiting: try again");
  if (future.wait_for(timeout + kDrainSlack) != std::future_status::ready) {
    return Fail(Code::kTimeout, fmt::format("not everything was written within {} ms", timeout.count()));
  }
  if (Status written = future.get(); !written) return std::unexpected(std::move(written.error()));
  return Drained{.stays_in_ram = !parts_.has_ssd_tier, .unmarked = std::move(unmarked)};
}

Status DrainControl::Undrain(const Caller& caller) {
  if (!caller.admin) return NotAdmin("undrain the daemon");
  const std::lock_guard lock(marking_);
  mark_.Remove();
  return parts_.calls.Ask<void>([this]() -> Status {
    if (stopping()) return Fail(Code::kDisconnected, "tierd is being stopped");
    parts_.jobs.OpenAdmission();
    if (drained_.exchange(false, std::memory_order_relaxed))
      parts_.events.Emit("undrained", nullptr, "new jobs and processes are taken again");
    return {};
  });
}

void DrainControl::Restore() {
  if (!mark_.present()) return;
  (void)parts_.calls.Ask<void>([this]() -> Status {
    parts_.jobs.CloseAdmission(kDrainedRefusal);
    drained_ = true;
    return {};
  });
}

void DrainControl::TellRestored() {
  if (!drained_) return;
  parts_.events.Emit("draining", nullptr,
                     "the node was drained when tierd crashed, and stays drained: no new job or process is taken until "
                     "an administrator runs tierctl undrain");
}

void DrainControl::SetStopping() {
  stopping_ = true;
  mark_.Remove();
}

}  // namespace tier::session
