#include "daemon/session/ring_watch.h"

#include <algorithm>
#include <atomic>

#include "daemon/base/check.h"

namespace tier::session {
namespace {

void AddTo(std::vector<WatchedRing*>* list, size_t WatchedRing::* index, WatchedRing* ring) {
  TIER_CHECK(ring->*index == WatchedRing::kNowhere, "already at {}", ring->*index);
  ring->*index = list->size();
  list->push_back(ring);
}

void TakeFrom(std::vector<WatchedRing*>* list, size_t WatchedRing::* index, WatchedRing* ring) {
  const size_t at = ring->*index;
  TIER_CHECK(at < list->size() && (*list)[at] == ring, "at {} of {}", at, list->size());
  (*list)[at] = list->back();
  (*list)[at]->*index = at;
  list->pop_back();
  ring->*index = WatchedRing::kNowhere;
}

uint64_t KeyOf(const WatchedRing& ring) { return static_cast<uint64_t>(ring.port.session()); }

}  // namespace

Status RingWatch::Add(WatchedRing* ring) {
  if (auto added = poller_.AddDoorbell(ring->doorbell.get(), KeyOf(*ring)); !added) return added;
  ring->port.SetRingNeeded(true);
  User& user = users_[ring->uid];
  ++user.sessions;
  ring->bell_limit = &user.bell_limit;
  ++count_;
  return {};
}

void RingWatch::Remove(WatchedRing* ring) {
  poller_.Remove(ring->doorbell.get());
  if (ring->watched_at != WatchedRing::kNowhere) TakeFrom(&watched_, &WatchedRing::watched_at, ring);
  if (ring->swept_at != WatchedRing::kNowhere) TakeFrom(&leaseholders_, &WatchedRing::swept_at, ring);
  std::erase(muted_, ring);
  const auto user = users_.find(ring->uid);
  TIER_CHECK(user != users_.end() && user->second.sessions > 0, "uid {}", ring->uid);
  if (--user->second.sessions == 0) users_.erase(user);
  --count_;
}

bool RingWatch::Look(const WatchedRing& ring) {
  ++polls_;
  return ring.port.HasRequests();
}

void RingWatch::Watch(WatchedRing* ring, base::TimePoint now) {
  ring->heard = now;
  if (ring->watched_at != WatchedRing::kNowhere) return;
  AddTo(&watched_, &WatchedRing::watched_at, ring);
  ring->port.SetRingNeeded(false);
}

// A client that published before it could see that it has to ring is found by the look behind that.
void RingWatch::Unwatch(WatchedRing* ring) {
  ring->port.SetRingNeeded(true);
  if (Look(*ring)) {
    ring->port.SetRingNeeded(false);
    return;
  }
  TakeFrom(&watched_, &WatchedRing::watched_at, ring);
}

void RingWatch::OnRung(WatchedRing* ring, base::TimePoint now) {
  if (ring->watched_at == WatchedRing::kNowhere && Look(*ring)) return Watch(ring, now);
  // Watched: the next look tells. A client whose requests wait for answers rings rightly, too, and rarely.
  if (ring->bell_limit->OnEmptyRing(now)) Mute(ring, now);
}

void RingWatch::OnAnswered(WatchedRing* ring, bool leases, base::TimePoint now) {
  if (leases && ring->swept_at == WatchedRing::kNowhere) AddTo(&leaseholders_, &WatchedRing::swept_at, ring);
  Watch(ring, now);
}

void RingWatch::OnReceived(WatchedRing* ring, uint32_t messages, base::TimePoint now) {
  ++polls_;
  if (messages == 0) return;
  ring->heard = now;
  ring->bell_limit->OnMessages(messages);
}

void RingWatch::Mute(WatchedRing* ring, base::TimePoint now) {
  if (ring->muted_until) return;
  poller_.SetDoorbell(ring->doorbell.get(), KeyOf(*ring), false);
  ring->muted_until = now + kMuteTime;
  muted_.push_back(ring);
  ++mutes_;
}

std::optional<base::TimePoint> RingWatch::NextUnmute() const {
  // All mutes are of one length: the oldest is the first to end.
  return muted_.empty() ? std::nullopt : muted_.front()->muted_until;
}

size_t RingWatch::BeginPass(base::TimePoint now) {
  while (!muted_.empty() && *muted_.front()->muted_until <= now) {
    WatchedRing* const ring = muted_.front();
    muted_.erase(muted_.begin());
    ring->muted_until.reset();
    poller_.SetDoorbell(ring->doorbell.get(), KeyOf(*ring), true);
    if (Look(*ring)) Watch(ring, now);
  }
  if (releases_may_lie_ && !sweep_ && now - sweep_began_ >= kSweepInterval) StartSweep(now);
  if (sweep_) Sweep(now);
  pass_count_ = watched_.size();
  if (pass_count_ > 0) first_ = (first_ + 1) % pass_count_;
  return pass_count_;
}

void RingWatch::EndPass(base::TimePoint now) {
  for (size_t i = watched_.size(); i > 0; --i) {
    if (now - watched_[i - 1]->heard >= kWatchTime) Unwatch(watched_[i - 1]);
  }
}

bool RingWatch::HasRequests() {
  return std::any_of(watched_.begin(), watched_.end(), [this](const WatchedRing* ring) { return Look(*ring); });
}

void RingWatch::StartSweep(base::TimePoint now) {
  releases_may_lie_ = false;
  sweep_ = 0;
  sweep_began_ = now;
  // What is not seen behind this was published by a client that read the page as it is now.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void RingWatch::Sweep(base::TimePoint now) {
  // The last ring takes the place of one that is removed meanwhile, and is looked at there, perhaps twice. A ring that
  // was looked at and is moved in front of the sweep is watched by then, or it rings.
  for (size_t polled = 0; polled < kSweptPerPass && *sweep_ < leaseholders_.size(); ++polled, ++*sweep_) {
    WatchedRing* const ring = leaseholders_[*sweep_];
    if (ring->watched_at == WatchedRing::kNowhere && Look(*ring)) Watch(ring, now);
  }
  if (*sweep_ >= leaseholders_.size()) sweep_.reset();
}

bool RingWatch::SweepBeforeSleep(base::TimePoint now) {
  if (!sweep_ && releases_may_lie_) StartSweep(now);
  return sweep_.has_value();
}

void RingWatch::CheckInvariants() const {
  TIER_CHECK(watched_.size() <= count_ && leaseholders_.size() <= count_ && muted_.size() <= count_,
             "{} watched, {} with leases, {} muted of {}", watched_.size(), leaseholders_.size(), muted_.size(),
             count_);
  for (size_t i = 0; i < watched_.size(); ++i) TIER_CHECK(watched_[i]->watched_at == i, "at {}", i);
  for (size_t i = 0; i < leaseholders_.size(); ++i) TIER_CHECK(leaseholders_[i]->swept_at == i, "at {}", i);
  size_t sessions = 0;
  for (const auto& [uid, user] : users_) sessions += user.sessions;
  TIER_CHECK(sessions == count_, "{} sessions of users, {} here", sessions, count_);
  for (const WatchedRing* ring : muted_) TIER_CHECK(ring->muted_until.has_value(), "session {}", KeyOf(*ring));
}

}  // namespace tier::session
