#include "daemon/session/session_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/counted.h"
#include "daemon/session/job_words.h"
#include "daemon/session/owner_words.h"

namespace tier::session {

SessionTable::SessionTable(const SessionTableOptions& options, Poller& poller, const memory::WindowSource& windows)
    : one_user_(options.one_user),
      owners_(options.owners),
      request_timeout_ms_(options.request_timeout_ms),
      quota_(options.sessions_max, OfOneUser(options.sessions_max)),
      poller_(poller),
      windows_(windows),
      watch_(poller) {}

SessionTable::~SessionTable() {
  for (const auto& [session, entry] : sessions_) watch_.Remove(entry.get());
}

void SessionTable::Connect(JobService& job_service, SessionNotices& notices) {
  TIER_CHECK(job_service_ == nullptr && sessions_.empty(), "connected twice, {} sessions", sessions_.size());
  job_service_ = &job_service;
  notices_ = &notices;
}

SessionTable::Entry* SessionTable::Find(tiering::SessionId session) {
  const auto place = sessions_.find(static_cast<uint64_t>(session));
  return place == sessions_.end() ? nullptr : place->second.get();
}

Status SessionTable::CheckRoomFor(uint32_t uid) const {
  TIER_CHECK(quota_.taken() == sessions_.size() + attaching_.size(), "{} taken of {} and {} sessions", quota_.taken(),
             sessions_.size(), attaching_.size());
  const auto over_quota = quota_.OverQuotaUid(uid);
  if (!over_quota) return {};
  return Fail(Code::kDenied, fmt::format("{} attached, {} of them of uid {}; the limit (option "
                                         "jobs.max_sessions) is {}, and {} of one user",
                                         base::Counted(quota_.taken(), "session is", "sessions are"),
                                         quota_.HeldBy(*over_quota), *over_quota, quota_.max(), quota_.of_one_max()));
}

void SessionTable::Attach(AttachRequest request, base::TimePoint now, AttachDone done) {
  TIER_CHECK(job_service_ != nullptr && request.doorbell, "job_service {} doorbell {}", job_service_ != nullptr,
             request.doorbell.get());
  const tiering::SessionId session = request.session;
  TIER_CHECK(Find(session) == nullptr && !attaching_.contains(static_cast<uint64_t>(session)), "session {} twice",
             static_cast<uint64_t>(session));
  if (auto room = CheckRoomFor(request.uid); !room) return done(std::unexpected(std::move(room.error())));
  auto entry =
      std::make_unique<Entry>(request.uid, std::move(request.doorbell), RingPort(session, std::move(request.region)));
  if (auto watched = watch_.Add(entry.get()); !watched) return done(std::unexpected(watched.error()));
  entry->numa_node = request.numa_node;
  const auto opened = job_service_->Open(request.uid, request.open, session, now);
  if (!opened) {
    watch_.Remove(entry.get());
    return done(std::unexpected(opened.error()));
  }
  const tiering::JobId job = (*opened)->id;
  entry->job = job;
  quota_.Take(request.uid);
  if (!job_service_->IsOpening(job)) return done(Add(std::move(entry), request.open.rank));
  watch_.Remove(entry.get());
  attaching_.emplace(static_cast<uint64_t>(session), Attaching{std::move(entry), request.open.rank, std::move(done)});
  job_service_->WhenOpen(job, [this, session](const Status& status) { FinishAttach(session, status); });
}

Attached SessionTable::Add(std::unique_ptr<Entry> added, int32_t rank) {
  const Entry& entry = *added;
  const auto session = static_cast<uint64_t>(entry.port.session());
  const Job& job = *job_service_->registry().Find(entry.job);
  job_service_->engine().SetNode(entry.port.session(), entry.numa_node);
  job_service_->events().Emit("session_attached", &job,
                              fmt::format("session {} of uid {} attached to job '{}'{}", session, entry.uid, job.name,
                                          AttachedText(rank, ProcessText(job, entry.port.session()))));
  sessions_.emplace(session, std::move(added));
  return Attached{.job = static_cast<uint64_t>(job.id),
                  .job_name = job.name,
                  .token = job.token,
                  .resumed = job.from_manifest,
                  .request_timeout_ms = request_timeout_ms_};
}

// The job is open, or never will be.
void SessionTable::FinishAttach(tiering::SessionId session, const Status& opened) {
  const auto place = attaching_.find(static_cast<uint64_t>(session));
  if (place == attaching_.end()) return;  // Its client has gone meanwhile.
  Attaching& attaching = place->second;
  Status known = opened;
  // Who drains counts the sessions afterwards: none may come later.
  if (known) known = job_service_->CheckAdmission();
  if (known) known = watch_.Add(attaching.entry.get());
  if (known) {
    known = job_service_->engine().OpenSession(session, attaching.entry->job);
    if (!known) watch_.Remove(attaching.entry.get());
  }
  if (!known) {
    RefuseAttach(session, known.error());
    return;
  }
  Attaching attached = std::move(attaching);
  attaching_.erase(place);
  attached.done(Add(std::move(attached.entry), attached.rank));
}

bool SessionTable::RefuseAttach(tiering::SessionId session, Error error) {
  const auto attaching = attaching_.extract(static_cast<uint64_t>(session));
  if (attaching.empty()) return false;
  const Entry& entry = *attaching.mapped().entry;
  quota_.Give(entry.uid);
  job_service_->Leave({.job = entry.job, .session = session, .announced = false}, error.message);
  attaching.mapped().done(std::unexpected(std::move(error)));
  return true;
}

void SessionTable::Detach(tiering::SessionId session, const std::string& reason) {
  if (RefuseAttach(session, {Code::kDisconnected, reason})) return;
  Entry* entry = Find(session);
  if (entry == nullptr) return;  // Its end came from the other side first.
  Reclaim(entry, Code::kDisconnected, reason);
}

void SessionTable::End(tiering::SessionId session, Code code, const std::string& reason) {
  if (RefuseAttach(session, {code, reason})) return;
  Entry* entry = Find(session);
  if (entry == nullptr) return;
  Reclaim(entry, code, reason);
  notices_->SendEnd(session, code, reason);
}

void SessionTable::EndAll(Code code, const std::string& reason) {
  for (const tiering::SessionId session : Sessions()) End(session, code, reason);
  while (!attaching_.empty()) {
    RefuseAttach(attaching_.begin()->second.entry->port.session(), {code, reason});
  }
}

// Everything the session held is reclaimed, by the engine and here.
void SessionTable::Reclaim(Entry* entry, Code code, const std::string& reason) {
  const tiering::SessionId session = entry->port.session();
  const tiering::JobId job = entry->job;
  if (entry->engine_knows) {
    // A ring that breaks the protocol has nothing more to say.
    (void)entry->port.ReceiveLast(job_service_->engine(), scratch_);
  }
  job_service_->Leave({.job = job, .session = session, .code = code}, reason);
  watch_.Remove(entry);
  quota_.Give(entry->uid);
  std::erase(answered_, entry);
  std::erase(backlogged_, entry);
  const size_t erased = sessions_.erase(static_cast<uint64_t>(session));
  TIER_CHECK(erased == 1, "session {}: {} entries", static_cast<uint64_t>(session), erased);
  flush_.OnSessionEnded(session);
}

void SessionTable::WindowReturned(tiering::SessionId session, WindowIndex window) {
  Entry* entry = Find(session);
  if (entry == nullptr) return;
  const auto taken = entry->taken.find(window);
  if (taken == entry->taken.end()) return job_service_->engine().WindowReturned(session, window);
  entry->taken.erase(taken);
  job_service_->engine().TakenWindowReturned(session, window);
  if (!std::exchange(entry->answered, true)) answered_.push_back(entry);  // Answers may have waited for this.
}

uint32_t SessionTable::Receive(base::TimePoint now) {
  now_ = now;
  ApplyEndings();  // Closing a job between turns ends its sessions.
  for (const uint64_t session : poller_.rung()) {
    Entry* entry = Find(static_cast<tiering::SessionId>(session));
    if (entry != nullptr) watch_.OnRung(entry, now);
  }
  poller_.ClearRung();
  uint32_t received = 0;
  const size_t count = watch_.BeginPass(now);
  size_t looked = 0;
  for (; looked < count && job_service_->engine().TakesRequests(); ++looked) {
    WatchedRing* const ring = watch_.Next(looked);
    const auto messages = ring->port.Receive(job_service_->engine(), scratch_, kMessagesPerTurnMax);
    if (messages) {
      watch_.OnReceived(ring, *messages, now);
      received += *messages;
    } else {
      ++violations_;
      EndLater(ring->port.session(), Code::kRevoked, messages.error().message);
    }
  }
  if (looked == count) watch_.EndPass(now);  // Else some were not heard though they may have asked.
  // A session that broke the protocol must not get another turn of the engine.
  ApplyEndings();
  return received;
}

bool SessionTable::Publish() {
  bool happened = !answered_.empty();
  // A bounded number in each pass, so that many backlogged sessions do not delay the others.
  for (size_t tried = std::min(backlogged_.size(), kBacklogsTriedPerPass); tried != 0; --tried) {
    Entry* const entry = backlogged_.front();
    backlogged_.pop_front();
    entry->backlogged = false;
    if (!std::exchange(entry->answered, true)) answered_.push_back(entry);
  }
  TIER_CHECK(answered_.size() <= sessions_.size(), "{} answered of {}", answered_.size(), sessions_.size());
  for (Entry* entry : answered_) {
    entry->answered = false;
    if (!entry->taken.empty()) {
      // Its client may take a window that an answer names for the one that was taken.
    } else if (const auto flushed = entry->port.Flush(); !flushed) {
      ++violations_;
      EndLater(entry->port.session(), Code::kRevoked, flushed.error().message);
    }
    const uint64_t unread = entry->port.backlog_bytes();
    if (std::exchange(entry->unread_told, unread) != unread) {
      job_service_->engine().SetUnread(entry->port.session(), unread);
    }
    if (entry->port.backlogged()) {
      if (!std::exchange(entry->backlogged, true)) backlogged_.push_back(entry);
    } else {
      watch_.OnPublished(entry, now_);  // It may have asked more meanwhile, without room for answers.
    }
  }
  answered_.clear();
  happened |= !opened_.empty();
  for (const auto& [job, status] : std::exchange(opened_, {})) job_service_->OnJobOpened(job, status);
  happened |= ApplyEndings();
  return happened;
}

void SessionTable::EndLater(tiering::SessionId session, Code code, std::string reason) {
  endings_.push_back({session, code, std::move(reason)});
}

bool SessionTable::ApplyEndings() {
  if (endings_.empty()) return false;
  // Ending a session may close its job, which ends others of it: those are appended and taken up here as well.
  for (size_t i = 0; i < endings_.size(); ++i) {
    const Ending ending = std::move(endings_[i]);
    Entry* entry = Find(ending.session);
    if (entry == nullptr) continue;
    Reclaim(entry, ending.code, ending.reason);
    notices_->SendEnd(ending.session, ending.code, ending.reason);
  }
  endings_.clear();
  return true;
}

void SessionTable::Flush(tiering::JobId job, uint32_t timeout_ms, const std::shared_ptr<SessionFlush::Group>& group) {
  for (const auto& [session, entry] : sessions_) {
    if (entry->job == job) flush_.Submit(group, entry->port, job_service_->engine(), timeout_ms);
  }
  flush_.SubmitJob(group, job, job_service_->engine(), timeout_ms);
}

std::vector<tiering::SessionId> SessionTable::Sessions() const {
  std::vector<tiering::SessionId> sessions;
  sessions.reserve(sessions_.size());
  for (const auto& [session, entry] : sessions_) sessions.push_back(entry->port.session());
  std::sort(sessions.begin(), sessions.end());
  return sessions;
}

void SessionTable::OnReply(tiering::SessionId session, const tiering::Reply& reply) {
  if (reply.sequence >= kInternalSequenceFirst) {
    flush_.OnReply(reply);
    return;
  }
  Entry* entry = Find(session);
  if (entry == nullptr) return;  // Answered and ended in one turn.
  if (reply.code != Code::kOk && IsOwnerUid(entry->uid)) {
    const std::string words = NameOwners(std::string(reply.detail), owners_, entry->uid);
    tiering::Reply named = reply;
    named.detail = words;
    entry->port.Send(named, scratch_);
  } else {
    entry->port.Send(reply, scratch_);
  }
  watch_.OnAnswered(entry, !reply.spans.empty(), now_);
  if (!std::exchange(entry->answered, true)) answered_.push_back(entry);
}

void SessionTable::OnWindow(tiering::SessionId session, const memory::WindowShape& window) {
  TIER_CHECK(notices_ != nullptr && Value(window.index) < windows_.windows_max(), "window {}", Value(window.index));
  notices_->SendWindow(session, window, windows_.Descriptor(window.index));
}

void SessionTable::OnWindowReturn(tiering::SessionId session, WindowIndex window) {
  TIER_CHECK(notices_ != nullptr && Value(window) < windows_.windows_max(), "window {}", Value(window));
  notices_->SendWindowReturn(session, window);
}

void SessionTable::OnWindowTaken(tiering::SessionId session, WindowIndex window) {
  if (Entry* entry = Find(session); entry != nullptr) entry->taken.insert(window);
}

void SessionTable::OnForcedReturn(tiering::JobId job, const std::string& what) {
  const Job* const known = job_service_->registry().Find(job);
  if (known != nullptr) job_service_->events().Emit("forced_return", known, what);
}

void SessionTable::OnProcessEnd(tiering::SessionId session, const std::string& reason) {
  TIER_CHECK(notices_ != nullptr && !reason.empty(), "session {}", static_cast<uint64_t>(session));
  notices_->EndProcess(session, reason);
}

void SessionTable::OnSessionEnded(tiering::SessionId session, Code code, const std::string& reason) {
  if (Entry* entry = Find(session); entry != nullptr) entry->engine_knows = false;
  TIER_CHECK(code != Code::kOk, "session {} ended with OK", static_cast<uint64_t>(session));
  EndLater(session, code, reason);
}

}  // namespace tier::session
