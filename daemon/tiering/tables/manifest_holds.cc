// See manifest_holds.h.
#include "daemon/tiering/tables/manifest_holds.h"

#include "daemon/base/check.h"

namespace tier::tiering {

bool ManifestHolds::Unuse(storage::Extent extent, bool bad) {
  if (holds_.empty()) return false;
  const auto found = holds_.find(KeyOf(extent));
  if (found == holds_.end()) return false;
  Hold& hold = found->second;
  TIER_CHECK(hold.used && hold.extent == extent, "device {} block {} page {} orphaned twice", extent.device,
             extent.run.block, extent.run.page);
  hold.used = false;
  hold.bad = bad;
  unused_pages_ += extent.run.pages;
  return true;
}

void ManifestHolds::Adopt(storage::Extent extent) {
  const bool fresh = holds_.try_emplace(KeyOf(extent), Hold{extent, kSynced, false, false}).second;
  TIER_CHECK(fresh && extent, "device {} block {} page {} named twice", extent.device, extent.run.block,
             extent.run.page);
  unused_pages_ += extent.run.pages;
}

bool ManifestHolds::Use(storage::Extent extent) {
  const auto found = holds_.find(KeyOf(extent));
  if (found == holds_.end() || found->second.used || found->second.extent != extent) return false;
  found->second.used = true;
  unused_pages_ -= extent.run.pages;
  return true;
}

void ManifestHolds::Name(storage::Extent extent) {
  TIER_CHECK(extent, "no extent");
  Hold& hold = holds_[KeyOf(extent)];
  TIER_CHECK(hold.named_by == 0 || (hold.used && hold.extent == extent), "device {} block {} page {}", extent.device,
             extent.run.block, extent.run.page);
  hold.extent = extent;
  hold.named_by |= kPending;
}

void ManifestHolds::Sweep(std::vector<Dropped>* dropped) {
  for (auto at = holds_.begin(); at != holds_.end();) {
    const Hold& hold = at->second;
    if (hold.named_by != 0) {
      ++at;
      continue;
    }
    if (!hold.used) {
      dropped->push_back({hold.extent, hold.bad});
      unused_pages_ -= hold.extent.run.pages;
    }
    at = holds_.erase(at);
  }
}

void ManifestHolds::OnSynced(std::vector<Dropped>* dropped) {
  for (auto& [key, hold] : holds_) hold.named_by = (hold.named_by & kPending) != 0 ? kSynced : 0;
  Sweep(dropped);
}

void ManifestHolds::OnFailed(std::vector<Dropped>* dropped) {
  for (auto& [key, hold] : holds_) hold.named_by &= kSynced;
  Sweep(dropped);
}

void ManifestHolds::Clear(std::vector<Dropped>* dropped) {
  for (auto& [key, hold] : holds_) hold.named_by = 0;
  Sweep(dropped);
}

}  // namespace tier::tiering
