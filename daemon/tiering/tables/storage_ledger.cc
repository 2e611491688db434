// See storage_ledger.h.
#include "daemon/tiering/tables/storage_ledger.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

constexpr uint64_t kPartForNextJobDivisor = 16;   // Of what the claims of other jobs leave.
constexpr uint64_t kPartForNextUserDivisor = 32;  // Of what the claims of other users leave.

uint64_t Minus(uint64_t bytes, uint64_t less) { return bytes - std::min(bytes, less); }

}  // namespace

template <typename Apply>
void StorageLedger::Change(EntitlementIndex job, Apply change) {
  const auto index = static_cast<uint32_t>(job);
  TIER_CHECK(index < jobs_.size() && jobs_[index].open, "SSD entitlement {} of {}", index, jobs_.size());
  Entry& entry = jobs_[index];
  User& user = users_.at(entry.uid);
  const uint64_t before = entry.claim();
  TIER_CHECK(claimed_ >= before && user.claimed >= before, "claim of {} in {} and {}", before, claimed_, user.claimed);
  change(entry);
  claimed_ = claimed_ - before + entry.claim();
  user.claimed = user.claimed - before + entry.claim();
}

uint64_t StorageLedger::ClaimedBy(uint32_t uid) const {
  const auto user = users_.find(uid);
  return user == users_.end() ? 0 : user->second.claimed;
}

Status StorageLedger::AdmitGuarantee(uint32_t uid, EntitlementIndex job, uint64_t bytes, Space space,
                                     const QuotaLimit& quota) const {
  if (bytes == 0) return {};
  const uint64_t own = job == kNoEntitlement ? 0 : At(job).claim();
  if (bytes <= own) return {};  // It takes nothing from others, whatever the capacity is now.
  const uint64_t of_user = ClaimedBy(uid) - own + space.kept;
  if (bytes > Minus(quota.most, of_user)) {
    return Fail(Code::kNoSpace,
                fmt::format("an SSD guarantee of {} cannot be given: user {} may have {} on SSD ({}), of which other "
                            "jobs and what is persisted have or are guaranteed {}",
                            FormatBytes(bytes), uid, FormatBytes(quota.most),
                            DescribeOrigin(quota.origin, "jobs.max_ssd_per_uid"), FormatBytes(of_user)));
  }
  const uint64_t others = claimed_ - own;
  const uint64_t left = Minus(space.capacity - space.capacity / kPartForNextJobDivisor, others);
  if (bytes <= left) return {};
  return Fail(
      Code::kNoSpace,
      fmt::format("an SSD guarantee of {} cannot be given: SSD devices hold {} of tensors, other jobs have or are "
                  "guaranteed {}, a sixteenth is promised to no job, {} are left",
                  FormatBytes(bytes), FormatBytes(space.capacity), FormatBytes(others), FormatBytes(left)));
}

void StorageLedger::Open(EntitlementIndex job, uint32_t uid, Terms terms, const QuotaLimit& quota) {
  const auto index = static_cast<uint32_t>(job);
  if (jobs_.size() <= index) jobs_.resize(index + size_t{1});
  TIER_CHECK(!jobs_[index].open, "SSD entitlement {} is open", index);
  jobs_[index] = {.uid = uid, .open = true};
  ++users_[uid].jobs;
  users_[uid].quota = quota;
  Set(job, terms);
}

void StorageLedger::SetQuota(uint32_t uid, const QuotaLimit& quota) {
  const auto user = users_.find(uid);
  if (user != users_.end()) user->second.quota = quota;
}

void StorageLedger::Set(EntitlementIndex job, Terms terms) {
  TIER_CHECK(terms.limit_bytes == 0 || terms.guarantee_bytes <= terms.limit_bytes, "guarantee {} limit {}",
             terms.guarantee_bytes, terms.limit_bytes);
  Change(job, [&](Entry& entry) { entry.terms = terms; });
}

void StorageLedger::End(EntitlementIndex job) {
  Change(job, [](Entry& entry) { entry.ended = true; });
}

void StorageLedger::Remove(EntitlementIndex job) {
  const uint32_t uid = At(job).uid;
  TIER_CHECK(At(job).ended && At(job).used == 0, "SSD entitlement {} uses {}", static_cast<uint32_t>(job),
             At(job).used);
  Change(job, [](Entry& entry) { entry.open = false; });
  if (--users_.at(uid).jobs == 0) users_.erase(uid);
}

void StorageLedger::AddUsed(EntitlementIndex job, uint64_t bytes) {
  Change(job, [&](Entry& entry) { entry.used += bytes; });
  used_ += bytes;
}

void StorageLedger::SubtractUsed(EntitlementIndex job, uint64_t bytes) {
  TIER_CHECK(At(job).used >= bytes, "{} of {} bytes", bytes, At(job).used);
  Change(job, [&](Entry& entry) { entry.used -= bytes; });
  used_ -= bytes;
}

StorageLedger::Room StorageLedger::RoomOf(EntitlementIndex job, Space space) const {
  const Entry& entry = At(job);
  Room room{.others = claimed_ - entry.claim(), .of_user = ClaimedBy(entry.uid) - entry.claim() + space.kept};
  const uint64_t left = Minus(space.capacity, room.others);
  const uint64_t left_by_users = Minus(space.capacity, claimed_ - ClaimedBy(entry.uid)) + space.kept;
  const uint64_t left_to_user = Minus(left_by_users - left_by_users / kPartForNextUserDivisor, room.of_user);
  const uint64_t left_to_job = left - left / kPartForNextJobDivisor;
  const uint64_t guaranteed = std::min(left, entry.guarantee());
  room.allowed = std::max(std::min(left_to_job, left_to_user), guaranteed);
  room.by_user = left_to_user < left_to_job && left_to_user >= guaranteed;
  const uint64_t limit = entry.terms.limit_bytes;
  if (limit != 0 && limit < room.allowed) {
    room.allowed = limit;
    room.by_user = false;
    room.by_limit = true;
  }
  const QuotaLimit& of_user = users_.at(entry.uid).quota;
  const uint64_t quota = of_user.any() ? Minus(of_user.most, room.of_user) : kUnlimited;
  if (quota < room.allowed) {
    room.allowed = quota;
    room.by_user = false;
    room.by_limit = false;
    room.by_quota = true;
  }
  return room;
}

void StorageLedger::CheckInvariants() const {
  uint64_t claimed = 0;
  uint64_t used = 0;
  std::unordered_map<uint32_t, User> users;
  for (const Entry& entry : jobs_) {
    if (!entry.open) continue;
    claimed += entry.claim();
    used += entry.used;
    users[entry.uid].claimed += entry.claim();
    ++users[entry.uid].jobs;
  }
  TIER_CHECK(claimed == claimed_ && used == used_ && users.size() == users_.size(),
             "claims of {}, not {}; {} used of {}; {} users of {}", claimed, claimed_, used, used_, users.size(),
             users_.size());
  for (const auto& [uid, user] : users) {
    const auto found = users_.find(uid);
    TIER_CHECK(found != users_.end() && found->second.claimed == user.claimed && found->second.jobs == user.jobs,
               "user {} claims {} with {} jobs", uid, user.claimed, user.jobs);
  }
}

}  // namespace tier::tiering
