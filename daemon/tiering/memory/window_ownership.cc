// See window_ownership.h.
#include "daemon/tiering/memory/window_ownership.h"

#include <algorithm>

namespace tier::tiering {
namespace {

void NoteHost(Core& core) {
  core.ledger.SetHost(core.ports.windows.arena_bytes(), core.ports.windows.arena_max_bytes());
}

// Memory came back to the arena, or the arena grew.
void OnMemory(Core& core) {
  for (JobState* job : core.jobs.open()) job->slots_take_blocks = false;
  core.waits.OnRoomEverywhere();
}

void Retire(Core& core, WindowIndex window) {
  for (const uint32_t count : core.windows[window].pieces) {
    TIER_CHECK(count == 0, "window {} is retired with {} pieces in it", tier::Value(window), count);
  }
  core.ports.transfers.RemoveWindow(window);
  core.ports.windows.Retire(window);
  core.windows.Clear(window);
  core.made_progress = true;
  NoteHost(core);
  OnMemory(core);
}

// The last session has unmapped it.
void Settle(Core& core, JobState& job, WindowIndex window) {
  TIER_CHECK(job.windows_returning != 0, "window {}", tier::Value(window));
  --job.windows_returning;
  core.ledger.TakeBack(job.entitlement, core.windows.SizeOf(window), core.windows[window].overdue);
  Retire(core, window);
}

base::RegionUse RegionUseOf(const memory::WindowShape& window) {
  if (window.page_size != kPageSize) return base::RegionUse::kBlocksOnly;
  return window.kind == WindowKind::kSlot ? base::RegionUse::kSlotsFirst : base::RegionUse::kBlocksFirst;
}

void TakeWindow(Core& core, const memory::WindowEvent& event) {
  const WindowIndex window = event.window.index;
  WindowEntry& entry = core.windows[window];
  TIER_CHECK(entry.condition == WindowCondition::kMaking, "window {} came in condition {}", tier::Value(window),
             static_cast<int>(entry.condition));
  JobState* job = core.jobs.FindByOwner(event.owner);
  if (job != nullptr) {
    uint32_t& making = job->windows_making[static_cast<size_t>(event.window.kind)];
    TIER_CHECK(making != 0, "window {}", tier::Value(window));
    --making;
    core.waits.OnRoom(*job);
    if (!job->prefetches.empty()) core.jobs.NeedMaintenance(*job);  // They may have waited for it.
  }
  if (event.code != Code::kOk) {
    core.windows.Clear(window);
    if (job != nullptr) core.ledger.SubtractHeld(job->entitlement, core.windows.window_size(event.window.kind));
    return;
  }
  if (job == nullptr) {  // Its owner went while it was being made.
    core.ports.windows.Retire(window);
    core.windows.Clear(window);
    return;
  }
  core.windows.Put(event.window, event.address);
  entry.condition = WindowCondition::kReady;
  core.ports.transfers.AddWindow(window, event.address, event.window.size);
  job->pool.AddRegion(core.windows.FirstBlock(window), core.windows.BlockCount(window), RegionUseOf(event.window));
  job->windows.push_back(window);
}

}  // namespace

bool StartWindow(Core& core, JobState& job, WindowKind kind) {
  const Result<WindowIndex> window = core.ports.windows.StartCreate(job.owner, kind);
  if (!window) return false;
  WindowEntry& entry = core.windows[*window];
  TIER_CHECK(entry.condition == WindowCondition::kNone, "window {} given out twice", tier::Value(*window));
  entry.job = &job;
  entry.condition = WindowCondition::kMaking;
  ++job.windows_making[static_cast<size_t>(kind)];
  core.ledger.AddHeld(job.entitlement, core.windows.window_size(kind));
  NoteHost(core);
  if (core.ledger.anybody_owed()) core.waits.OnRoomEverywhere();  // It may be the next one's turn.
  core.made_progress = true;
  return true;
}

bool TakeWindows(Core& core) {
  const uint64_t arena_max = core.ports.windows.arena_max_bytes();
  if (arena_max > core.arena_max_bytes) OnMemory(core);
  core.arena_max_bytes = arena_max;
  NoteHost(core);
  core.events.clear();
  core.ports.windows.Poll(&core.events);
  for (const memory::WindowEvent& event : core.events) TakeWindow(core, event);
  return !core.events.empty();
}

void ReturnWindow(Core& core, WindowIndex window) {
  WindowEntry& entry = core.windows[window];
  TIER_CHECK(entry.condition == WindowCondition::kReady, "window {}", tier::Value(window));
  JobState& job = *entry.job;
  job.pool.RemoveRegion(core.windows.FirstBlock(window));
  std::erase(job.windows, window);
  entry.unreturned = 0;
  ++job.windows_returning;
  core.ledger.AskBack(job.entitlement, entry.shape.size, core.now);
  for (SessionState* session : job.sessions) {
    if (!session->knows(window)) continue;
    ++entry.unreturned;
    core.replies.WindowReturn(session->id, window);
  }
  if (entry.unreturned == 0) {
    Settle(core, job, window);
    return;
  }
  entry.condition = WindowCondition::kReturning;
  entry.asked_back_at = core.now;
  core.asked_back.push_back({window, core.now});
}

void ExpireReturns(Core& core) {
  for (; !core.asked_back.empty(); core.asked_back.pop_front()) {
    const AskedBack asked = core.asked_back.front();
    WindowEntry& entry = core.windows[asked.window];
    const bool open = entry.condition == WindowCondition::kReturning && entry.asked_back_at == asked.at;
    if (!open || entry.overdue) continue;
    if (core.now < asked.at + kWindowReturnDeadline) return;
    entry.overdue = true;
    core.ledger.MissDeadline(entry.job->entitlement, entry.shape.size);
    for (SessionState* session : entry.job->sessions) session->overdue_windows += session->knows(asked.window) ? 1 : 0;
  }
}

bool KnownToOverdueSession(const JobState& job, WindowIndex window) {
  return std::any_of(job.sessions.begin(), job.sessions.end(), [&](const SessionState* session) {
    return session->overdue_windows != 0 && session->knows(window);
  });
}

void OnWindowReturned(Core& core, SessionState& session, WindowIndex window) {
  if (!core.windows.Contains(window) || !session.knows(window)) return;  // The client's claim is not worth a CHECK.
  WindowEntry& entry = core.windows[window];
  if (entry.condition != WindowCondition::kReturning || entry.job != session.job) return;
  session.forget(window);
  if (entry.overdue) --session.overdue_windows;
  TIER_CHECK(entry.unreturned != 0, "window {}", tier::Value(window));
  if (--entry.unreturned != 0) return;
  Settle(core, *session.job, window);
}

void DropMappings(Core& core, SessionState& session) {
  for (size_t word = 0; word < session.windows.size(); ++word) {
    for (uint32_t bit = 0; bit < 64; ++bit) {
      if ((session.windows[word] >> bit & 1) == 0) continue;
      OnWindowReturned(core, session, WindowIndex{static_cast<uint32_t>(word * 64 + bit)});
    }
  }
  session.windows.clear();
}

void RetireAll(Core& core, JobState& job) {
  TIER_CHECK(job.used_pages() == 0 && job.transfer_count == 0 && core.ledger.ReturningBy(job.entitlement) == 0,
             "pages {} transfers {} returning {}", job.used_pages(), job.transfer_count,
             core.ledger.ReturningBy(job.entitlement));
  for (const WindowIndex window : job.windows) {
    job.pool.RemoveRegion(core.windows.FirstBlock(window));
    core.ledger.SubtractHeld(job.entitlement, core.windows.SizeOf(window));
    Retire(core, window);
  }
  job.windows.clear();
}

}  // namespace tier::tiering
