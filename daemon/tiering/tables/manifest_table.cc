// See manifest_table.h.
#include "daemon/tiering/tables/manifest_table.h"

#include "daemon/base/check.h"

namespace tier::tiering {

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
  const bool fresh = inactive_.emplace(key, std::move(holds)).second;
  TIER_CHECK(fresh, "two manifests of job {}", key);
}

std::optional<ManifestHolds> ManifestTable::Activate(const std::string& key) {
  auto inactive = inactive_.extract(key);
  if (inactive.empty()) return std::nullopt;
  return std::move(inactive.mapped());
}

ManifestHolds* ManifestTable::FindInactive(uint64_t holds) {
  const auto found = std::ranges::find_if(inactive_, [&](const auto& entry) { return entry.second.id() == holds; });
  return found == inactive_.end() ? nullptr : &found->second;
}

const ManifestHolds* ManifestTable::FindStored(const std::string& key) const {
  const auto found = inactive_.find(key);
  return found == inactive_.end() || !found->second.stored() ? nullptr : &found->second;
}

void ManifestTable::RemoveInactive(uint64_t holds) {
  std::erase_if(inactive_, [&](const auto& entry) { return entry.second.id() == holds; });
}

const Error* ManifestTable::FindBroken(const std::string& key) const {
  const auto found = broken_.find(key);
  return found == broken_.end() ? nullptr : &found->second;
}

void ManifestTable::CheckInvariants() const {
  for (const auto& [key, holds] : inactive_) {
    TIER_CHECK(holds.id() != 0 && holds.id() < next_holds_, "manifest {} of job {}", holds.id(), key);
    holds.CheckInvariants();
  }
  for (const auto& [cookie, commit] : commits_) {
    TIER_CHECK(cookie < next_cookie_ && commit.ended <= commit.tensors.size(), "commit {} of job {}", cookie,
               commit.key);
  }
}

}  // namespace tier::tiering
