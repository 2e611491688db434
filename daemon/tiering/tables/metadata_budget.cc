// See metadata_budget.h.
#include "daemon/tiering/tables/metadata_budget.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/tiering/tables/job_state.h"

namespace tier::tiering {

void MetadataAccount::Release(MetadataKind kind, uint64_t bytes) {
  uint64_t& charged = of_kind_[static_cast<size_t>(kind)];
  TIER_CHECK(charged >= bytes, "uid {}: {} of {} bytes of {} released", uid_, bytes, charged, MetadataKindName(kind));
  charged -= bytes;
  charged_ -= bytes;
  allowed_ = std::min(allowed_, std::max(charged_, limit_));
}

std::string MetadataAccount::Describe() const {
  std::string kinds;
  for (size_t kind = 0; kind < kMetadataKinds; ++kind) {
    if (of_kind_[kind] == 0) continue;
    kinds += fmt::format("{}{} for {}", kinds.empty() ? ": " : ", ", base::FormatBytes(of_kind_[kind]),
                         MetadataKindName(static_cast<MetadataKind>(kind)));
  }
  return fmt::format(
      "the jobs of uid {} have {} of {} of the daemon's own memory{}; free tensors, end leases, read "
      "answers, or raise the option jobs.max_metadata",
      uid_, base::FormatBytes(charged_), base::FormatBytes(limit_), kinds);
}

Refusal MetadataAccount::RefusalOf(uint64_t bytes) const {
  return {Code::kNoMemory,
          fmt::format("records of {} are needed, {} are available: {}", base::FormatBytes(bytes),
                      base::FormatBytes(available()), Describe()),
          {.requested = bytes, .available = available(), .limit = limit_}};
}

std::optional<Refusal> MetadataBudget::Check(const SessionState& session, uint64_t bytes, bool reserve) {
  const MetadataAccount& account = *session.job->metadata;
  const bool room = reserve ? account.HasRoomInReserve(bytes) : account.HasRoom(bytes);
  if (room || session.id == kInternalSession) return std::nullopt;
  ++refusals_;
  return account.RefusalOf(bytes);
}

void MetadataBudget::SetLimit(uint64_t of_one_uid_max) {
  of_one_uid_max_ = of_one_uid_max;
  for (auto& [uid, user] : users_) user.account.SetLimit(of_one_uid_max);
}

MetadataAccount& MetadataBudget::Open(uint32_t uid) {
  User& user = users_.try_emplace(uid, MetadataAccount(uid, of_one_uid_max_)).first->second;
  ++user.opened;
  return user.account;
}

void MetadataBudget::Close(const MetadataAccount& account) {
  const auto user = users_.find(account.uid());
  TIER_CHECK(user != users_.end() && &user->second.account == &account, "uid {} has no account", account.uid());
  if (--user->second.opened != 0) return;
  TIER_CHECK(account.charged() == 0, "uid {} leaves {} bytes behind", account.uid(), account.charged());
  users_.erase(user);
}

MetadataFigures MetadataBudget::figures() const {
  MetadataFigures figures{.limit = of_one_uid_max_, .refusals = refusals_};
  for (const auto& [uid, user] : users_) {
    figures.of_largest_user = std::max(figures.of_largest_user, user.account.charged());
    for (size_t kind = 0; kind < kMetadataKinds; ++kind) figures.of_kind[kind] += user.account.of_kind()[kind];
  }
  return figures;
}

void MetadataBudget::CheckInvariants(const std::unordered_map<const MetadataAccount*, MetadataSums>& expected) const {
  TIER_CHECK(expected.size() == users_.size(), "{} users with jobs have {} accounts", expected.size(), users_.size());
  for (const auto& [account, sums] : expected) {
    for (size_t kind = 0; kind < kMetadataKinds; ++kind) {
      TIER_CHECK(sums[kind] == account->of_kind()[kind], "uid {}: {} cost {} bytes, {} are charged", account->uid(),
                 MetadataKindName(static_cast<MetadataKind>(kind)), sums[kind], account->of_kind()[kind]);
    }
    const uint64_t sum = std::accumulate(sums.begin(), sums.end(), uint64_t{0});
    TIER_CHECK(sum == account->charged(), "uid {}: {} bytes charged, {} of all kinds", account->uid(),
               account->charged(), sum);
  }
}

}  // namespace tier::tiering
