// See window_ownership.h.
#include "daemon/tiering/memory/window_ownership.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::tiering {
namespace {

void NoteHost(Tables& tables) {
  tables.ledger.SetHost(tables.ports.windows.arena_bytes(), tables.ports.windows.arena_max_bytes());
}

// Memory came back to the arena, or the arena grew.
void OnMemory(Tables& tables) {
  tables.windows.NoteMemoryGain();
  tables.waits.OnRoomEverywhere();
}

// False: the last index is kept for a merge. Where none is left the source says so, and tells when one comes free.
bool MayTakeIndex(Tables& tables, WindowPurpose purpose) {
  const memory::WindowSource& source = tables.ports.windows;
  const uint32_t left = source.free_indices();
  if (left > kIndicesForMerges) return true;
  const bool kept = left != 0 && purpose == WindowPurpose::kGrowth && source.wants_merges();
  if (left != 0 && !kept) return true;
  if (!tables.windows.index_lacked()) tables.merge.LookAgain(tables.windows.capacity());
  tables.windows.SetIndexLacked(true);
  return !kept;
}

// Its memory is still that of the devices: TakeRemoved retires it.
void Close(Tables& tables, WindowIndex window) {
  WindowEntry& entry = tables.windows.Edit(window);
  for (const uint32_t count : entry.pieces) {
    TIER_CHECK(count == 0, "window {} is closed with {} pieces in it", tier::Value(window), count);
  }
  entry.job = kNoJob;
  entry.emptying = false;
  entry.condition = WindowCondition::kClosing;
  tables.ledger.AddClosing(entry.shape.size);
  tables.ports.transfers.RemoveWindow(window);
  tables.turn.NoteProgress();
}

// So many of them: the devices may give up those of a large job all at once.
bool TakeRemoved(Tables& tables) {
  std::vector<WindowIndex>& removed = tables.windows.removed();
  tables.ports.transfers.TakeRemoved(&removed);
  if (removed.empty()) return false;
  const std::span<const WindowIndex> taken(removed.data(),
                                           std::min<size_t>(removed.size(), tables.work.units().windows));
  for (const WindowIndex window : taken) {
    const WindowEntry& entry = tables.windows[window];
    TIER_CHECK(entry.condition == WindowCondition::kClosing, "window {} was removed in condition {}",
               tier::Value(window), static_cast<int>(entry.condition));
    tables.ledger.SubtractClosing(entry.shape.size);
    tables.ports.windows.Retire(window);
    tables.windows.Clear(window);
  }
  removed.erase(removed.begin(), removed.begin() + static_cast<ptrdiff_t>(taken.size()));
  NoteHost(tables);
  OnMemory(tables);
  return true;
}

// The last session has unmapped it.
void Settle(Tables& tables, JobState& job, WindowIndex window) {
  job.windows.EndReturn();
  tables.ledger.TakeBack(job.entitlement, tables.windows.SizeOf(window), tables.windows[window].overdue);
  Close(tables, window);
}

base::RegionUse RegionUseOf(const memory::WindowShape& window) {
  if (window.page_size != kPageSize) return base::RegionUse::kBlocksOnly;
  return window.kind == WindowKind::kSlot ? base::RegionUse::kSlotsFirst : base::RegionUse::kBlocksFirst;
}

void NoteSilent(Tables& tables, const SessionState& session, base::TimePoint asked_at) {
  const JobState& job = *session.job;
  const double seconds = std::chrono::duration<double>(tables.turn.now() - asked_at).count();
  tables.replies.ForcedReturn(
      job.id,
      fmt::format("session {} of job {} has not answered for {:.1f} s: {} in empty windows that the job was asked for "
                  "are taken without it (jobs.reclaim_deadline is {:.1f} s), and so is what it is asked for until it "
                  "answers",
                  static_cast<uint64_t>(session.id), job.key, seconds,
                  base::FormatBytes(tables.ledger.ReturningBy(job.entitlement)),
                  std::chrono::duration<double>(tables.options.reclaim_deadline).count()));
}

// The session has it still, and answers later or never.
void NoteTakenFrom(Tables& tables, SessionState& session, WindowIndex window) {
  memory::WindowSource& source = tables.ports.windows;
  source.NoteUnreturned(window, static_cast<uint64_t>(session.id));
  tables.replies.WindowTaken(session.id, window);
  session.windows.NoteTaken(window, source.NumberOf(window));
}

// Whether its first waiting request could go on with what is free now, or no other window comes that would tell it. A
// request of many pieces looks at all of them each time that it is tried.
bool MayGoOn(const Tables& tables, const JobState& job) {
  return !job.windows.makes_any() || job.pool.free_pages() >= tables.waits.shortage_pages(job);
}

void TakeWindow(Tables& tables, const memory::WindowEvent& event) {
  const WindowIndex window = event.window.index;
  WindowEntry& entry = tables.windows.Edit(window);
  TIER_CHECK(entry.condition == WindowCondition::kMaking, "window {} came in condition {}", tier::Value(window),
             static_cast<int>(entry.condition));
  JobState* job = tables.jobs.FindByOwner(event.owner);
  if (job == nullptr) {  // Its owner went while it was being made: it is room for others, who may wait for just that.
    if (event.code == Code::kOk) tables.ports.windows.Retire(window);
    tables.windows.Clear(window);
    NoteHost(tables);
    OnMemory(tables);
    return;
  }
  job->windows.EndMaking(event.window.kind, entry.shape.size);
  if (!job->prefetches.empty()) tables.jobs.NeedMaintenance(*job);  // They may have waited for it.
  if (event.code != Code::kOk) {
    tables.ledger.SubtractHeld(job->entitlement, entry.shape.size);
    tables.windows.Clear(window);
    NoteHost(tables);
    OnMemory(tables);  // Its memory and its index are room for others too.
    return;
  }
  tables.windows.Put(event.window, event.address);
  entry.condition = WindowCondition::kReady;
  tables.ports.transfers.AddWindow(window, event.address, event.window.size);
  job->pool.AddRegion(tables.windows.FirstBlock(window), tables.windows.BlockCount(window), RegionUseOf(event.window));
  job->windows.Add(window);
  tables.windows.Rerank(window);
  if (!job->windows.makes_any()) tables.merge.LookAgain(tables.windows.capacity());  // It passed such a job by.
  if (MayGoOn(tables, *job)) tables.waits.OnRoom(*job);
}

}  // namespace

std::optional<WindowIndex> StartWindow(Tables& tables, JobState& job, WindowKind kind, uint64_t size_bytes,
                                       WindowPurpose purpose) {
  if (!MayTakeIndex(tables, purpose)) return std::nullopt;
  const Result<memory::StartedWindow> window =
      tables.ports.windows.StartCreate(job.record.owner, kind, size_bytes, job.windows.node());
  if (!window) return std::nullopt;
  TIER_CHECK(window->size <= size_bytes, "a window of {} for one of {}", window->size, size_bytes);
  WindowEntry& entry = tables.windows.Edit(window->index);
  TIER_CHECK(entry.condition == WindowCondition::kNone, "window {} given out twice", tier::Value(window->index));
  entry.job = job.index;
  entry.owner = job.record.owner;
  entry.shape.kind = kind;
  entry.shape.size = window->size;
  entry.condition = WindowCondition::kMaking;
  job.windows.StartMaking(kind, window->size);
  tables.ledger.AddHeld(job.entitlement, window->size);
  NoteHost(tables);
  if (tables.ledger.anybody_owed()) tables.waits.OnRoomEverywhere();  // It may be the next one's turn.
  tables.merge.LookAgain(tables.windows.capacity());
  tables.work.NoteWindow();
  tables.turn.NoteProgress();
  return window->index;
}

bool TakeWindows(Tables& tables) {
  const uint64_t arena_max = tables.ports.windows.arena_max_bytes();
  if (tables.windows.NoteArenaMax(arena_max)) OnMemory(tables);
  const bool removed = TakeRemoved(tables);
  NoteHost(tables);
  tables.scratch.events.clear();
  tables.ports.windows.Poll(&tables.scratch.events);
  for (const memory::WindowEvent& event : tables.scratch.events) TakeWindow(tables, event);
  // A window that is being closed has its index till the end: its memory alone was of no use to those that wait.
  const bool index_freed = tables.windows.index_lacked() && tables.ports.windows.free_indices() > kIndicesForMerges;
  if (index_freed) tables.windows.SetIndexLacked(false);
  const bool freed = tables.ports.windows.TakeRoomFreed() || index_freed;
  if (freed) OnMemory(tables);
  return removed || freed || !tables.scratch.events.empty();
}

void ReturnWindow(Tables& tables, WindowIndex window, AskedFor why) {
  WindowEntry& entry = tables.windows.Edit(window);
  TIER_CHECK(entry.condition == WindowCondition::kReady, "window {}", tier::Value(window));
  JobState& job = tables.jobs.At(entry.job);
  job.pool.RemoveRegion(tables.windows.FirstBlock(window));
  tables.windows.Unrank(window);
  if (std::exchange(entry.emptying, false)) job.windows.EndEmptying(entry.shape.size);
  entry.unreturned = 0;
  bool forced = false;
  job.windows.StartReturn(window);
  tables.ledger.AskBack(job.entitlement, entry.shape.size, tables.turn.now());
  if (why == AskedFor::kOwed) tables.ports.windows.NoteOwed(window);
  tables.work.Charge(static_cast<uint32_t>(job.sessions.size()));
  for (SessionState* session : job.sessions) {
    if (!session->windows.maps(window)) continue;
    tables.replies.WindowReturn(session->id, window);
    tables.ports.windows.NoteAsked(window, static_cast<uint64_t>(session->id));
    if (session->windows.silent()) {
      NoteTakenFrom(tables, *session, window);
      session->windows.Return(window, false);
      forced = true;
    } else {
      ++entry.unreturned;
    }
  }
  if (forced) tables.forced_returns.Count(ForcedReturnKind::kWindow);
  if (entry.unreturned == 0) {
    Settle(tables, job, window);
    return;
  }
  entry.condition = WindowCondition::kReturning;
  entry.asked_back_at = tables.turn.now();
  tables.windows.NoteAskedBack(window, tables.turn.now());
}

void ExpireReturns(Tables& tables) {
  for (; tables.windows.any_asked_back(); tables.windows.PopAskedBack()) {
    const AskedBack asked = tables.windows.oldest_asked_back();
    WindowEntry& entry = tables.windows.Edit(asked.window);
    const bool open = entry.condition == WindowCondition::kReturning && entry.asked_back_at == asked.at;
    if (!open || entry.overdue) continue;
    if (tables.turn.now() < asked.at + kWindowReturnDeadline) return;
    entry.overdue = true;
    tables.windows.NoteOverdue(asked);
    const JobState& job = tables.jobs.At(entry.job);
    tables.ledger.MissDeadline(job.entitlement, entry.shape.size);
    tables.work.Charge(static_cast<uint32_t>(job.sessions.size()));
    for (SessionState* session : job.sessions) session->windows.MissDeadline(asked.window);
  }
}

void TakeUnreturned(Tables& tables) {
  for (; tables.windows.any_overdue(); tables.windows.PopOverdue()) {
    const AskedBack asked = tables.windows.oldest_overdue();
    const WindowEntry& entry = tables.windows[asked.window];
    if (entry.condition != WindowCondition::kReturning || entry.asked_back_at != asked.at) continue;
    if (tables.turn.now() < asked.at + tables.options.reclaim_deadline) return;
    JobState& job = tables.jobs.At(entry.job);
    tables.work.Charge(static_cast<uint32_t>(job.sessions.size()));
    tables.forced_returns.Count(ForcedReturnKind::kWindow);
    for (SessionState* session : job.sessions) {
      if (!session->windows.maps(asked.window)) continue;
      if (!session->windows.silent()) NoteSilent(tables, *session, asked.at);
      NoteTakenFrom(tables, *session, asked.window);
      OnWindowReturned(tables, *session, asked.window);
      session->windows.SetSilent(true);
    }
  }
}

WindowSet WindowsOfOverdueSessions(const JobState& job) {
  WindowSet windows;
  for (const SessionState* session : job.sessions) {
    if (session->windows.any_overdue()) windows.AddAll(session->windows.mapped());
  }
  return windows;
}

void OnWindowReturned(Tables& tables, SessionState& session, WindowIndex window) {
  // A client may name any window: that is no error of the daemon, and no answer either.
  if (!tables.windows.Contains(window) || !session.windows.maps(window)) return;
  WindowEntry& entry = tables.windows.Edit(window);
  if (entry.condition != WindowCondition::kReturning || entry.job != session.record.job) return;
  session.windows.SetSilent(false);
  session.windows.Return(window, entry.overdue);
  TIER_CHECK(entry.unreturned != 0, "window {}", tier::Value(window));
  if (--entry.unreturned != 0) return;
  Settle(tables, *session.job, window);
}

void OnTakenReturned(Tables& tables, SessionState& session, WindowIndex window) {
  const std::optional<uint64_t> number = session.windows.AnswerTaken(window);
  if (number) tables.ports.windows.StrikeUnreturned(window, *number, static_cast<uint64_t>(session.id));
}

void DropMappings(Tables& tables, SessionState& session) {
  session.windows.mapped().ForEach([&](WindowIndex window) { OnWindowReturned(tables, session, window); });
  session.windows.Clear();
}

}  // namespace tier::tiering
