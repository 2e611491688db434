// FakeEngine: an engine of a few lines for tests of rings, sessions and sockets. Answers every request in the next
// turn, with what the test says; checks that the session layer keeps its side (no request of an unknown session, no job
// opened twice) and aborts otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/api/engine_port.h"
#include "tests/support/session/scripted_reply.h"

namespace tier::session::testing {

// Of windows that the fake shows.
inline memory::WindowShape ShapeOf(WindowIndex window) {
  return {.index = window,
          .kind = WindowKind::kSlot,
          .page_size = 4096,
          .size = kWindowSizeMin,
          .place = Value(window) * kWindowSizeMin};
}

class FakeEngine final : public tiering::EnginePort {
 public:
  using Answer = std::function<ScriptedReply(const SubmittedRequest&)>;

  void Connect(tiering::ReplySink& sink) { sink_ = &sink; }

  // The script.
  Answer answer = [](const SubmittedRequest& request) { return ScriptedReply{.value = request.sequence}; };
  bool hold = false;       // Requests wait until it is false.
  Status open_job_answer;  // What the next OpenJob says.
  Status open_session_answer;
  bool hold_resumes = false;  // Jobs that are resumed stay so until it is false; else for one turn.
  Status resume_answer;       // What they end with.
  std::set<std::string>
      persisted;  // Keys of jobs that have a manifest. Such a job is being closed until the next turn.
  std::set<std::string> unsettled;  // Keys whose manifests are on their way to the store.
  std::optional<base::TimePoint> deadline;
  bool is_idle = true;
  bool takes_requests = true;
  bool releasing = false;  // Of every session.
  bool releases_can_wait = false;
  // Ends a session from the engine's side, in the next turn's publishing.
  void EndInTurn(tiering::SessionId session, Code code, std::string reason) {
    endings_.push_back({session, code, reason});
  }
  void ShowWindow(tiering::SessionId session, WindowIndex window) { windows_.push_back({session, window}); }

  // What happened.
  std::map<uint64_t, tiering::JobOptions> jobs;
  std::map<uint32_t, tiering::UserQuota> quotas;  // As SetQuota said last, by uid.
  std::map<uint32_t, uint64_t> storage;           // StorageOf, by uid.
  std::vector<tiering::EngineOptions> options_set;
  tiering::StallList stalls;              // Of every job.
  std::map<uint64_t, uint64_t> sessions;  // To their jobs.
  std::map<uint64_t, int> nodes;          // Of sessions.
  std::vector<SubmittedRequest> submitted;
  std::vector<std::string> log;        // "end 3: reason" and so on.
  std::map<uint64_t, Code> end_codes;  // Of EndSession, by session.
  std::vector<std::pair<uint64_t, uint32_t>> windows_returned;
  std::vector<uint64_t> taken_returned;  // Sessions, in the order of TakenWindowReturned.
  std::map<uint64_t, uint64_t> unread;   // Bytes, by session.
  bool draining = false;
  uint64_t turns = 0;
  tiering::EngineSnapshot snapshot;
  std::vector<tiering::StoredManifest> kept;
  mutable uint64_t snapshots = 0;     // Taken.
  std::function<void()> on_snapshot;  // While one is taken.
  tiering::PoolView pool;
  mutable uint64_t pools = 0;     // Views of it that were taken.
  std::function<void()> on_pool;  // While one is taken.

  Status OpenJob(tiering::JobId job, const tiering::JobOptions& options) override {
    if (!open_job_answer) return std::exchange(open_job_answer, Status{});
    if (closing_.contains(options.key)) return Fail(Code::kTimeout, "job " + options.key + " is still being closed");
    const bool added = jobs.emplace(static_cast<uint64_t>(job), options).second;
    TIER_CHECK(added, "job {} twice", static_cast<uint64_t>(job));
    if (options.resume) resuming_.push_back(job);
    return {};
  }
  Status SetJob(tiering::JobId job, const tiering::TermsChange& change) override {
    tiering::JobOptions& options = jobs.at(static_cast<uint64_t>(job));
    options.guarantee_bytes = change.guarantee_bytes.value_or(options.guarantee_bytes);
    options.limit_bytes = change.limit_bytes.value_or(options.limit_bytes);
    options.ssd_guarantee_bytes = change.ssd_guarantee_bytes.value_or(options.ssd_guarantee_bytes);
    options.ssd_limit_bytes = change.ssd_limit_bytes.value_or(options.ssd_limit_bytes);
    return {};
  }
  void SetQuota(uint32_t uid, const tiering::UserQuota& quota) override { quotas[uid] = quota; }
  void SetOptions(const tiering::EngineOptions& options) override { options_set.push_back(options); }
  tiering::StallList Stalls(tiering::JobId, base::TimePoint) const override { return stalls; }
  uint64_t StorageOf(uint32_t uid) const override {
    const auto found = storage.find(uid);
    return found == storage.end() ? 0 : found->second;
  }
  void CloseJob(tiering::JobId job, const std::string& reason, bool purge) override {
    const auto gone = jobs.extract(static_cast<uint64_t>(job));
    TIER_CHECK(!gone.empty(), "job {}", static_cast<uint64_t>(job));
    if (persisted.contains(gone.mapped().key)) closing_.insert(gone.mapped().key);
    std::erase(resuming_, job);
    // Nothing is left of it to be written.
    for (const SubmittedRequest& request : waiting_) {
      if (IsFlushOf(request, job)) closed_.push_back(request.sequence);
    }
    std::erase_if(waiting_, [&](const SubmittedRequest& request) { return IsFlushOf(request, job); });
    log.push_back("close " + std::to_string(static_cast<uint64_t>(job)) + (purge ? " purge: " : ": ") + reason);
    for (auto place = sessions.begin(); place != sessions.end();) {
      if (place->second != static_cast<uint64_t>(job)) {
        ++place;
        continue;
      }
      endings_.push_back({static_cast<tiering::SessionId>(place->first), Code::kRevoked, reason});
      place = sessions.erase(place);
    }
  }
  void SetNode(tiering::SessionId session, int node) override { nodes[static_cast<uint64_t>(session)] = node; }
  Status OpenSession(tiering::SessionId session, tiering::JobId job) override {
    if (!open_session_answer) return std::exchange(open_session_answer, Status{});
    TIER_CHECK(jobs.contains(static_cast<uint64_t>(job)), "job {}", static_cast<uint64_t>(job));
    TIER_CHECK(std::ranges::find(resuming_, job) == resuming_.end(), "job {} is not open", static_cast<uint64_t>(job));
    const bool added = sessions.emplace(static_cast<uint64_t>(session), static_cast<uint64_t>(job)).second;
    TIER_CHECK(added, "session {} twice", static_cast<uint64_t>(session));
    return {};
  }
  void EndSession(tiering::SessionId session, Code code, const std::string& reason,
                  std::optional<tiering::JobId> ends_job) override {
    end_codes[static_cast<uint64_t>(session)] = code;
    if (sessions.erase(static_cast<uint64_t>(session)) != 0) {
      log.push_back("end " + std::to_string(static_cast<uint64_t>(session)) + ": " + reason);
      std::erase_if(waiting_, [session](const SubmittedRequest& request) { return request.session == session; });
    }
    if (ends_job) CloseJob(*ends_job, reason, false);
  }
  void WindowReturned(tiering::SessionId session, WindowIndex window) override {
    windows_returned.emplace_back(static_cast<uint64_t>(session), Value(window));
  }
  void TakenWindowReturned(tiering::SessionId session, WindowIndex) override {
    taken_returned.push_back(static_cast<uint64_t>(session));
  }
  void Submit(tiering::SessionId session, const tiering::Request& request) override {
    TIER_CHECK(sessions.contains(static_cast<uint64_t>(session)), "session {}", static_cast<uint64_t>(session));
    SubmittedRequest copy = {.session = session,
                             .sequence = request.sequence,
                             .op = request.op,
                             .flags = request.flags,
                             .timeout_ms = request.timeout_ms,
                             .argument = request.argument,
                             .items = {request.items.begin(), request.items.end()},
                             .text = std::string(request.text)};
    if (keep_submitted) submitted.push_back(copy);
    waiting_.push_back(std::move(copy));
  }
  bool TakesRequests() const override { return takes_requests; }
  bool HoldsBackNext(tiering::SessionId) const override { return releasing; }
  void SetUnread(tiering::SessionId session, uint64_t bytes) override {
    unread[static_cast<uint64_t>(session)] = bytes;
  }
  // Submitted by kInternalSession, with the job as its argument.
  Status FlushJob(tiering::JobId job, uint64_t sequence, uint32_t timeout_ms) override {
    TIER_CHECK(jobs.contains(static_cast<uint64_t>(job)), "job {}", static_cast<uint64_t>(job));
    submitted.push_back({.session = tiering::kInternalSession,
                         .sequence = sequence,
                         .op = proto::Op::kFlush,
                         .timeout_ms = timeout_ms,
                         .argument = static_cast<uint64_t>(job)});
    waiting_.push_back(submitted.back());
    return {};
  }
  bool Turn(base::TimePoint) override {
    ++turns;
    closing_.clear();
    bool happened = !endings_.empty() || !windows_.empty() || !closed_.empty();
    for (const uint64_t sequence : std::exchange(closed_, {})) {
      sink_->OnReply(tiering::kInternalSession, {.sequence = sequence, .spans = {}, .detail = {}});
    }
    for (const auto& [session, window] : windows_) sink_->OnWindow(session, ShapeOf(window));
    windows_.clear();
    if (!hold_resumes) happened |= EndResumes();
    for (const Purged& done : std::exchange(purges_, {})) done(purge_answer);
    for (const Ending& ending : std::exchange(endings_, {})) {
      sessions.erase(static_cast<uint64_t>(ending.session));
      sink_->OnSessionEnded(ending.session, ending.code, ending.reason);
    }
    if (hold) return happened;
    for (const SubmittedRequest& request : std::exchange(waiting_, {})) {
      const bool itself = request.session == tiering::kInternalSession;
      if (!itself && !sessions.contains(static_cast<uint64_t>(request.session))) continue;
      Reply(request);
      happened = true;
    }
    return happened;
  }
  std::optional<base::TimePoint> NextDeadline() const override { return deadline; }
  void StartDrain(const std::string&) override { draining = true; }
  bool idle() const override { return is_idle; }
  bool ReleasesCanWait() const override { return releases_can_wait; }
  Status RetryDevice(uint16_t device) override {
    if (device < snapshot.devices.size()) snapshot.devices[device].space.quarantined = 0;
    return {};
  }
  Status PurgeDevice(const std::string& uuid, Purged done) override {
    const auto gone = std::erase_if(snapshot.missing, [&](const auto& device) { return device.uuid == uuid; });
    if (gone == 0) return Fail(Code::kNotFound, "no device " + uuid);
    purges_.push_back(std::move(done));
    return {};
  }
  Status SetDeviceDraining(uint16_t device, bool set) override {
    snapshot.devices.resize(std::max<size_t>(snapshot.devices.size(), device + size_t{1}));
    snapshot.devices[device].draining = set;
    return {};
  }
  tiering::EngineSnapshot Snapshot() const override {
    ++snapshots;
    if (on_snapshot) on_snapshot();
    return snapshot;
  }
  tiering::PoolView Pool() const override {
    ++pools;
    if (on_pool) on_pool();
    return pool;
  }
  tiering::JobCounters Counters(tiering::JobId job) const override {
    const tiering::JobOptions& options = jobs.at(static_cast<uint64_t>(job));
    return {.guarantee_bytes = options.guarantee_bytes,
            .own_guarantee_bytes = options.guarantee_bytes,
            .limit_bytes = options.limit_bytes,
            .ssd_guarantee_bytes = options.ssd_guarantee_bytes,
            .ssd_limit_bytes = options.ssd_limit_bytes,
            .persisted = options.resume || persisted.contains(options.key)};
  }
  tiering::TensorPage Tensors(tiering::JobId, uint32_t from, size_t max) const override {
    if (from == 7 || max == 0) return {};
    return {.tensors = {{.tensor = from}}, .next = from == 2 ? 7 : from + 1};  // Three of them, a page each.
  }
  std::vector<tiering::StoredManifest> StoredManifests(const std::string& prefix, size_t max) const override {
    std::vector<tiering::StoredManifest> listed = kept;
    std::erase_if(listed, [&](const tiering::StoredManifest& each) { return !each.key.starts_with(prefix); });
    if (listed.size() > max) listed.resize(max);
    return listed;
  }
  Status DeleteStoredManifest(const std::string& key) override {
    const auto gone = std::erase_if(kept, [&](const tiering::StoredManifest& each) { return each.key == key; });
    return gone == 1 ? Status{} : Fail(Code::kNotFound, "nothing of " + key);
  }
  Status CheckSettled(const std::string& prefix) const override {
    const bool settled = std::ranges::none_of(unsettled, [&](const auto& key) { return key.starts_with(prefix); });
    return settled ? Status{} : Fail(Code::kTimeout, "jobs are still being closed; try again");
  }
  size_t waiting() const { return waiting_.size(); }
  bool keep_submitted = true;
  Result<std::vector<std::string>> purge_answer;  // Of the store.

 private:
  struct Ending {
    tiering::SessionId session{};
    Code code = Code::kOk;
    std::string reason;
  };
  static bool IsFlushOf(const SubmittedRequest& request, tiering::JobId job) {
    return request.session == tiering::kInternalSession && request.argument == static_cast<uint64_t>(job);
  }
  std::vector<Purged> purges_;
  bool EndResumes() {
    for (const tiering::JobId job : resuming_) {
      if (!resume_answer) jobs.erase(static_cast<uint64_t>(job));
      sink_->OnJobOpened(job, resume_answer);
    }
    return !std::exchange(resuming_, {}).empty();
  }
  void Reply(const SubmittedRequest& request) {
    const ScriptedReply scripted = answer(request);
    sink_->OnReply(request.session, {.sequence = request.sequence,
                                     .code = scripted.code,
                                     .value = scripted.value,
                                     .spans = scripted.spans,
                                     .error = scripted.code == Code::kOk ? nullptr : &scripted.error,
                                     .detail = scripted.detail,
                                     .tensor = scripted.tensor ? &*scripted.tensor : nullptr});
  }

  tiering::ReplySink* sink_ = nullptr;
  std::vector<SubmittedRequest> waiting_;
  std::vector<tiering::JobId> resuming_;
  std::set<std::string> closing_;  // Keys.
  std::vector<uint64_t> closed_;   // Flushes of jobs that are closed, to be answered.
  std::vector<Ending> endings_;
  std::vector<std::pair<tiering::SessionId, WindowIndex>> windows_;
};

}  // namespace tier::session::testing
