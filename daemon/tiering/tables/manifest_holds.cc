// See manifest_holds.h.
#include "daemon/tiering/tables/manifest_holds.h"

#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {

bool ManifestHolds::Unuse(storage::Extent extent, bool bad) {
  if (holds_.empty()) return false;
  const auto found = holds_.find(KeyOf(extent));
  if (found == holds_.end()) return false;
  Hold& hold = found->second;
  TIER_CHECK(hold.used && hold.extent == extent, "device {} block {} page {} dropped twice", extent.device,
             extent.run.block, extent.run.page);
  hold.used = false;
  hold.bad = bad;
  AddUnused(extent);
  return true;
}

void ManifestHolds::Adopt(storage::Extent extent) {
  if (synced_ == 0) synced_ = ++last_;
  const Hold hold{.extent = extent, .named_by = synced_, .used = false};
  const bool fresh = holds_.try_emplace(KeyOf(extent), hold).second;
  TIER_CHECK(fresh && extent, "device {} block {} page {} named twice", extent.device, extent.run.block,
             extent.run.page);
  AddUnused(extent);
}

bool ManifestHolds::Use(storage::Extent extent) {
  const auto found = holds_.find(KeyOf(extent));
  if (found == holds_.end() || found->second.used || found->second.extent != extent) return false;
  found->second.used = true;
  SubtractUnused(extent);
  return true;
}

void ManifestHolds::Begin() {
  TIER_CHECK(pending_ == 0 && !unknown_, "manifest {} is begun and not ended", pending_);
  pending_ = ++last_;
}

void ManifestHolds::Name(storage::Extent extent) {
  TIER_CHECK(extent && pending_ != 0, "device {} block {} named by manifest {}", extent.device, extent.run.block,
             pending_);
  Hold& hold = holds_[KeyOf(extent)];
  TIER_CHECK(hold.named_by == 0 || (hold.used && hold.extent == extent), "device {} block {} page {}", extent.device,
             extent.run.block, extent.run.page);
  hold.extent = extent;
  NameBy(hold);
}

void ManifestHolds::NameBy(Hold& hold) const {
  if (hold.named_by == synced_) hold.named_by_before = synced_;
  hold.named_by = pending_;
}

void ManifestHolds::NameNew(storage::Extent extent) {
  const bool fresh =
      holds_.try_emplace(KeyOf(extent), Hold{.extent = extent, .named_by = pending_, .used = false}).second;
  TIER_CHECK(fresh && extent && pending_ != 0, "device {} block {} page {} named twice, manifest {}", extent.device,
             extent.run.block, extent.run.page, pending_);
  AddUnused(extent);
}

bool ManifestHolds::NameKept(storage::Extent extent) {
  TIER_CHECK(pending_ != 0, "no manifest of {} extents is begun", holds_.size());
  const auto found = holds_.find(KeyOf(extent));
  if (found == holds_.end() || found->second.used || found->second.extent != extent) return false;
  NameBy(found->second);
  return true;
}

Stay ManifestHolds::stay() const {
  if (!inactive_) return Stay::kOpenJob;
  if (damaged_) return Stay::kDamaged;
  if (unused_of_all_ == nullptr || move_rest_.drain != unused_of_all_->drain()) return Stay::kToMove;
  switch (move_rest_.reason) {
    case MoveRest::Reason::kNone: break;
    case MoveRest::Reason::kUnread: return Stay::kUnread;
    case MoveRest::Reason::kNoRoom: return Stay::kNoRoom;
    case MoveRest::Reason::kNotCommitted: return Stay::kNotCommitted;
  }
  return Stay::kToMove;
}

template <typename Change>
void ManifestHolds::ChangeStay(Change change) {
  const Stay before = stay();
  change();
  if (unused_of_all_ != nullptr) unused_of_all_->Move(unused_on_, before, stay());
}

void ManifestHolds::set_move_rest(const MoveRest& rest) {
  const bool first = rest.reason != MoveRest::Reason::kNone && unused_of_all_ != nullptr;
  if (first && rest.drain != unused_of_all_->drain()) unused_of_all_->BeginDrain(rest.drain);
  ChangeStay([&] { move_rest_ = rest; });
}

void ManifestHolds::SetInactive(bool damaged) {
  ChangeStay([&] {
    inactive_ = true;
    damaged_ = damaged;
  });
}

void ManifestHolds::SetActive() {
  ChangeStay([&] { inactive_ = false; });
}

void ManifestHolds::AddUnused(const storage::Extent& extent) {
  unused_on_.Add(extent.device, extent.run.pages);
  if (unused_of_all_ != nullptr) unused_of_all_->Add(uid_, stay(), extent.device, extent.run.pages);
  unused_pages_ += extent.run.pages;
}

void ManifestHolds::SubtractUnused(const storage::Extent& extent) {
  unused_on_.Subtract(extent.device, extent.run.pages);
  if (unused_of_all_ != nullptr) unused_of_all_->Subtract(uid_, stay(), extent.device, extent.run.pages);
  unused_pages_ -= extent.run.pages;
}

bool ManifestHolds::Named(const Hold& hold) const {
  if (unknown_) return true;
  if (pending_ != 0 && hold.named_by == pending_) return true;
  return synced_ != 0 && (hold.named_by == synced_ || hold.named_by_before == synced_);
}

void ManifestHolds::OnSynced() {
  TIER_CHECK(pending_ != 0, "no manifest of {} extents is begun", holds_.size());
  synced_ = std::exchange(pending_, 0);
  sweep_ = 0;
}

void ManifestHolds::OnFailed() {
  if (std::exchange(pending_, 0) != 0) sweep_ = 0;
}

void ManifestHolds::OnErased() {
  synced_ = 0;
  sweep_ = 0;
}

void ManifestHolds::OnUnknown() {
  pending_ = 0;
  unknown_ = true;
}

void ManifestHolds::SweepOne(std::vector<Dropped>* dropped) {
  const auto at = holds_.lower_bound(sweep_.value());
  if (at == holds_.end()) {
    sweep_.reset();
    return;
  }
  sweep_ = at->first + 1;
  const Hold& hold = at->second;
  if (Named(hold)) return;
  if (!hold.used) {
    dropped->push_back({hold.extent, hold.bad});
    SubtractUnused(hold.extent);
  }
  holds_.erase(at);
}

void ManifestHolds::CheckInvariants() const {
  uint64_t unused = 0;
  std::map<uint16_t, uint64_t> unused_on;
  for (const auto& [key, hold] : holds_) {
    TIER_CHECK(key == KeyOf(hold.extent) && hold.named_by <= last_, "device {} block {} named by {} of {}",
               hold.extent.device, hold.extent.run.block, hold.named_by, last_);
    if (hold.used) continue;
    unused += hold.extent.run.pages;
    unused_on[hold.extent.device] += hold.extent.run.pages;
  }
  TIER_CHECK(unused == unused_pages_, "{} pages of no piece, not {}", unused, unused_pages_);
  for (const auto& [device, pages] : unused_on) {
    TIER_CHECK(unused_on_.on(device) == pages, "device {}: {} pages of no piece, not {}", device, pages,
               unused_on_.on(device));
  }
}

}  // namespace tier::tiering
