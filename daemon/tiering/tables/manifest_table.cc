// See manifest_table.h.
#include "daemon/tiering/tables/manifest_table.h"

#include "daemon/base/check.h"

namespace tier::tiering {

constexpr size_t kBrokenSearchMax = 64;

void ManifestTable::StartCommit(uint64_t cookie, ManifestCommit commit) {
  const bool fresh = cookie < next_cookie_ && commits_.emplace(cookie, std::move(commit)).second;
  TIER_CHECK(fresh, "manifest {} was handed to the store twice", cookie);
}

ManifestCommit ManifestTable::EndCommit(uint64_t cookie) {
  auto commit = commits_.extract(cookie);
  TIER_CHECK(!commit.empty(), "result of manifest {}", cookie);
  return std::move(commit.mapped());
}

std::optional<JobId> ManifestTable::EndLoad(uint64_t cookie) {
  const auto load = loads_.extract(cookie);
  if (load.empty()) return std::nullopt;
  return load.mapped();
}

void ManifestTable::NoteSessionsGone(uint64_t holds) {
  for (auto& [cookie, commit] : commits_) commit.sessions_gone |= commit.holds == holds;
}

void ManifestTable::Deactivate(const std::string& key, ManifestHolds holds) {
  inactive_keys_.emplace(holds.id(), key);
  holds.SetInactive(broken_.contains(key));
  const bool fresh = inactive_.emplace(key, std::move(holds)).second;
  TIER_CHECK(fresh, "two manifests of job {}", key);
}

std::optional<ManifestHolds> ManifestTable::Activate(const std::string& key) {
  auto inactive = inactive_.extract(key);
  if (inactive.empty()) return std::nullopt;
  inactive_keys_.erase(inactive.mapped().id());
  inactive.mapped().SetActive();
  return std::move(inactive.mapped());
}

ManifestHolds* ManifestTable::FindInactive(uint64_t holds) {
  const auto key = inactive_keys_.find(holds);
  return key == inactive_keys_.end() ? nullptr : &inactive_.at(key->second);
}

const ManifestHolds* ManifestTable::NextInactive(uint64_t after) const {
  const auto next = inactive_keys_.upper_bound(after);
  return next == inactive_keys_.end() ? nullptr : &inactive_.at(next->second);
}

const ManifestHolds* ManifestTable::FindStored(const std::string& key) const {
  const auto found = inactive_.find(key);
  return found == inactive_.end() || !found->second.stored() ? nullptr : &found->second;
}

void ManifestTable::RemoveInactive(uint64_t holds) {
  const auto key = inactive_keys_.extract(holds);
  TIER_CHECK(!key.empty() && inactive_.erase(key.mapped()) == 1, "no manifest has the holds {}", holds);
}

void ManifestTable::SetJobOf(uint64_t holds, JobIndex job) {
  TIER_CHECK(jobs_.emplace(holds, job).second, "the holds {} are of two jobs", holds);
}

JobIndex ManifestTable::JobOf(uint64_t holds) const {
  const auto found = jobs_.find(holds);
  return found == jobs_.end() ? kNoJob : found->second;
}

const Error* ManifestTable::FindBroken(const std::string& key) const {
  const auto found = broken_.find(key);
  return found == broken_.end() ? nullptr : &found->second;
}

const std::string* ManifestTable::FindBrokenOn(uint16_t device) const {
  size_t seen = 0;
  for (auto at = broken_.begin(); at != broken_.end() && seen < kBrokenSearchMax; ++at, ++seen) {
    const auto holds = inactive_.find(at->first);
    if (holds != inactive_.end() && holds->second.unused_pages_on(device) != 0) return &at->first;
  }
  return nullptr;
}

void ManifestTable::SetBroken(const std::string& key, Error error) {
  broken_.emplace(key, std::move(error));
  const auto inactive = inactive_.find(key);
  if (inactive != inactive_.end()) inactive->second.SetInactive(true);
}

std::optional<ManifestTable::Purge> ManifestTable::EndPurge(uint64_t cookie) {
  auto purge = purges_.extract(cookie);
  if (purge.empty()) return std::nullopt;
  return std::move(purge.mapped());
}

void ManifestTable::SetLost(const std::string& key, Error error, std::vector<std::string> devices) {
  TIER_CHECK(!devices.empty(), "job {} is lost on no device", key);
  lost_.emplace(key, std::move(devices));
  SetBroken(key, std::move(error));
}

const std::vector<std::string>* ManifestTable::FindLost(const std::string& key) const {
  const auto found = lost_.find(key);
  return found == lost_.end() ? nullptr : &found->second;
}

uint64_t ManifestTable::CountLostOn(const std::string& uuid) const {
  return static_cast<uint64_t>(std::ranges::count_if(
      lost_, [&](const auto& entry) { return std::ranges::find(entry.second, uuid) != entry.second.end(); }));
}

void ManifestTable::ClearBroken(const std::string& key) {
  broken_.erase(key);
  extents_unknown_.erase(key);
  lost_.erase(key);
  const auto inactive = inactive_.find(key);
  if (inactive != inactive_.end()) inactive->second.SetInactive(false);
}

void ManifestTable::CheckInvariants() const {
  TIER_CHECK(inactive_.size() == inactive_keys_.size(), "{} manifests of {}", inactive_keys_.size(), inactive_.size());
  for (const auto& [key, devices] : lost_) TIER_CHECK(broken_.contains(key), "the manifest of job {} is lost", key);
  for (const auto& [key, holds] : inactive_) {
    TIER_CHECK(holds.id() != 0 && holds.id() < next_holds_ && inactive_keys_.at(holds.id()) == key,
               "manifest {} of job {}", holds.id(), key);
    holds.CheckInvariants();
  }
  for (const auto& [cookie, commit] : commits_) {
    TIER_CHECK(cookie < next_cookie_ && commit.ended <= commit.tensors.size(), "commit {} of job {}", cookie,
               commit.key);
  }
}

}  // namespace tier::tiering
