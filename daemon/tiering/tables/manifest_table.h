// ManifestTable: manifests of jobs that are not open, damaged manifests, and changes that are at the store. Engine
// thread only.
//
// The extents that a manifest holds (ManifestHolds) are kept here while its job is not open, and in the job's record
// while it is. Their id stays the same, so that a commit finds them: jobs of one name may be closed and opened faster
// than the store answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/storage/manifest_store.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/manifest_holds.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/result.h"

namespace tier::tiering {

// A change of a job's manifest that was handed to the store.
struct ManifestCommit {
  std::string key;             // Of the job.
  uint64_t holds = 0;          // ManifestHolds::id that it changes.
  uint64_t waiter = 0;         // The waiter that it answers, if that still waits.
  uint16_t session = 0;        // Index of the session that asked for it.
  bool erase = false;          // The job's manifest is erased and not replaced.
  bool own = false;            // It names tensors of sessions, which end with their sessions.
  bool sessions_gone = false;  // The last of these sessions ended before the store answered.
  std::vector<TensorRef> tensors;
  size_t ended = 0;  // Of `tensors`: those whose update by its session is finished already.
};

class ManifestTable {
 public:
  // Commits. A cookie is given once.
  uint64_t NewCookie() { return next_cookie_++; }
  void StartCommit(uint64_t cookie, ManifestCommit commit);
  ManifestCommit EndCommit(uint64_t cookie);  // REQUIRES: started.
  ManifestCommit& CommitOf(uint64_t cookie) { return commits_.at(cookie); }
  bool idle() const {
    return commits_.empty() && results_.empty() && sweeps_.empty() && loads_.empty() && replays_.empty() &&
           purges_.empty();
  }
  template <typename Matches>
  bool AnyCommit(Matches matches) const {
    return std::ranges::any_of(commits_, [&](const auto& entry) { return matches(entry.second); });
  }
  template <typename Visit>
  void ForEachCommit(Visit visit) const {
    for (const auto& [cookie, commit] : commits_) visit(commit);
  }
  // The store does not know whether its last change was committed, and refuses everything until a restart: with this
  // error. Null: it never happened.
  void SetStoreLost(Error error) { store_lost_ = std::move(error); }
  const Error* store_lost() const { return store_lost_ ? &*store_lost_ : nullptr; }
  // The last session of the job whose manifest has these holds has gone.
  void NoteSessionsGone(uint64_t holds);

  // Answers of the store, in their order, that are still to be processed.
  std::deque<storage::ManifestResult>& results() { return results_; }
  // Ids of holds that are to be swept.
  void NeedSweep(uint64_t holds) { sweeps_.push_back(holds); }
  std::deque<uint64_t>& sweeps() { return sweeps_; }

  // Manifests that the store is to load, by cookie, with the jobs that are resumed from them; then the jobs whose
  // manifests are loaded (durability/manifest_replay), in their order.
  void StartLoad(uint64_t cookie, JobId job) { loads_.emplace(cookie, job); }
  std::optional<JobId> EndLoad(uint64_t cookie);  // None: the cookie is of no load.
  std::deque<JobId>& replays() { return replays_; }

  // Holds of jobs that are not open, by key.
  ManifestHolds NewHolds(uint32_t uid) { return ManifestHolds(next_holds_++, uid, &unused_); }
  // What they hold, and those of jobs that are open or closing, in extents that no piece uses.
  const UnusedPages& unused() const { return unused_; }
  void Deactivate(const std::string& key, ManifestHolds holds);  // REQUIRES: none of that key.
  std::optional<ManifestHolds> Activate(const std::string& key);
  ManifestHolds* FindInactive(uint64_t holds);
  bool HasInactive(const std::string& key) const { return inactive_.contains(key); }
  // Null also if the store has no manifest of it any more.
  const ManifestHolds* FindStored(const std::string& key) const;
  void RemoveInactive(uint64_t holds);
  // The inactive manifest with the next greater id of its holds. Null: there is none.
  const ManifestHolds* NextInactive(uint64_t after) const;
  const std::string& KeyOfInactive(uint64_t holds) const { return inactive_keys_.at(holds); }  // REQUIRES: inactive.
  template <typename Visit>
  void ForEachInactive(Visit visit) const {  // visit(key, holds)
    for (const auto& [key, holds] : inactive_) visit(key, holds);
  }

  // Holds of jobs that are open or closing.
  void SetJobOf(uint64_t holds, JobIndex job);
  JobIndex JobOf(uint64_t holds) const;  // kNoJob: none.
  void EndJobOf(uint64_t holds) { jobs_.erase(holds); }

  // Purges of missing devices that the store has not answered, by cookie.
  struct Purge {
    std::string uuid;
    std::function<void(const Result<std::vector<std::string>>&)> done;
  };
  void StartPurge(uint64_t cookie, Purge purge) { purges_.emplace(cookie, std::move(purge)); }
  std::optional<Purge> EndPurge(uint64_t cookie);  // None: the cookie is of no purge.
  bool AnyPurgeOf(const std::string& uuid) const {
    return std::ranges::any_of(purges_, [&](const auto& entry) { return entry.second.uuid == uuid; });
  }

  // Of the manifests that cannot be read those whose extents are on missing devices, with the uuids of these.
  void SetLost(const std::string& key, Error error, std::vector<std::string> devices);
  const std::vector<std::string>* FindLost(const std::string& key) const;  // Null: it is not lost.
  uint64_t CountLostOn(const std::string& uuid) const;

  // Manifests that cannot be read, with the reason, and those of them whose extents are unknown.
  void SetBroken(const std::string& key, Error error);
  void SetExtentsUnknown(const std::string& key, Error error) { extents_unknown_.emplace(key, std::move(error)); }
  const std::map<std::string, Error>& extents_unknown() const { return extents_unknown_; }
  void ClearBroken(const std::string& key);
  const Error* FindBroken(const std::string& key) const;
  // The job of a damaged manifest with unused extents on that device. Null: none of the first few has any there.
  const std::string* FindBrokenOn(uint16_t device) const;
  void CheckInvariants() const;
  template <typename Visit>
  void ForEachBroken(Visit visit) const {  // visit(key, error)
    for (const auto& [key, error] : broken_) visit(key, error);
  }

 private:
  std::unordered_map<uint64_t, ManifestCommit> commits_;  // By cookie.
  std::deque<storage::ManifestResult> results_;
  std::deque<uint64_t> sweeps_;
  std::unordered_map<uint64_t, JobId> loads_;
  std::deque<JobId> replays_;
  std::unordered_map<std::string, ManifestHolds> inactive_;
  std::map<uint64_t, std::string> inactive_keys_;  // By id.
  std::unordered_map<uint64_t, JobIndex> jobs_;    // By id of their holds.
  std::unordered_map<std::string, Error> broken_;
  std::unordered_map<std::string, std::vector<std::string>> lost_;  // Of these.
  std::unordered_map<uint64_t, Purge> purges_;
  std::map<std::string, Error> extents_unknown_;
  std::optional<Error> store_lost_;
  uint64_t next_cookie_ = 1;
  uint64_t next_holds_ = 1;
  UnusedPages unused_;
};

}  // namespace tier::tiering
