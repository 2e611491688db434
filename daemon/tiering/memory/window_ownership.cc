// See window_ownership.h.
#include "daemon/tiering/memory/window_ownership.h"

#include <algorithm>

namespace tier::tiering {
namespace {

void NoteHost(Core& core) {
  core.ledger.SetHost(core.ports.windows.arena_bytes(), core.ports.windows.arena_max_bytes());
}

void Retire(Core& core, WindowIndex window) {
  WindowEntry& entry = core.windows[window];
  for (const uint32_t count : entry.pieces) {
    TIER_CHECK(count == 0, "window {} is retired with {} pieces in it", tier::Value(window), count);
  }
  core.ports.transfers.RemoveWindow(window);
  core.ports.windows.Retire(window);
  entry = {};
  core.made_progress = true;
  NoteHost(core);
  core.waits.OnRoomEverywhere();
}

// The last session has unmapped it.
void Settle(Core& core, JobState& job, WindowIndex window) {
  core.ledger.TakeBack(job.entitlement, core.windows.window_size(), core.windows[window].overdue);
  Retire(core, window);
}

void TakeWindow(Core& core, const memory::WindowEvent& event) {
  WindowEntry& entry = core.windows[event.window];
  TIER_CHECK(entry.condition == WindowCondition::kMaking, "window {} came in condition {}", tier::Value(event.window),
             static_cast<int>(entry.condition));
  JobState* job = core.jobs.FindByOwner(event.owner);
  if (job != nullptr) {
    TIER_CHECK(job->windows_making != 0, "window {}", tier::Value(event.window));
    --job->windows_making;
    core.waits.OnRoom(*job);
  }
  if (event.code != Code::kOk) {
    entry = {};
    if (job != nullptr) core.ledger.SubtractHeld(job->entitlement, core.windows.window_size());
    return;
  }
  if (job == nullptr) {  // Its owner went while it was being made.
    core.ports.windows.Retire(event.window);
    entry = {};
    return;
  }
  entry.address = event.address;
  entry.page_size = event.page_size;
  entry.condition = WindowCondition::kReady;
  core.ports.transfers.AddWindow(event.window, event.address, core.windows.window_size());
  job->pool.AddRegion(core.windows.FirstBlock(event.window), core.windows.blocks_per_window(),
                      event.page_size == kPageSize);
  job->windows.push_back(event.window);
}

}  // namespace

bool StartWindow(Core& core, JobState& job) {
  const Result<WindowIndex> window = core.ports.windows.StartCreate(job.owner);
  if (!window) return false;
  WindowEntry& entry = core.windows[*window];
  TIER_CHECK(entry.condition == WindowCondition::kNone, "window {} given out twice", tier::Value(*window));
  entry.job = &job;
  entry.condition = WindowCondition::kMaking;
  ++job.windows_making;
  core.ledger.AddHeld(job.entitlement, core.windows.window_size());
  NoteHost(core);
  if (core.ledger.anybody_owed()) core.waits.OnRoomEverywhere();  // It may be the next one's turn.
  core.made_progress = true;
  return true;
}

bool TakeWindows(Core& core) {
  const uint64_t arena_max = core.ports.windows.arena_max_bytes();
  if (arena_max > core.arena_max_bytes) core.waits.OnRoomEverywhere();
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
  core.ledger.AskBack(job.entitlement, core.windows.window_size(), core.now);
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
    core.ledger.MissDeadline(entry.job->entitlement, core.windows.window_size());
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
    core.ledger.SubtractHeld(job.entitlement, core.windows.window_size());
    Retire(core, window);
  }
  job.windows.clear();
}

}  // namespace tier::tiering
