// See quota_book.h.
#include "daemon/session/quota_book.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/quota_file.h"

namespace tier::session {
namespace {

using tiering::kUnlimited;
using tiering::QuotaLevel;
using tiering::QuotaLimit;

bool IsNumber(const std::string& name) { return name.find_first_not_of("0123456789") == std::string::npos; }

// Its field in one of the two tables; nothing where that has no such quota, or leaves the field open.
template <typename Quotas, typename Key>
std::optional<uint64_t> Look(const Quotas& quotas, const Key& key, std::optional<uint64_t> QuotaFields::* field) {
  const auto found = quotas.find(key);
  return found == quotas.end() ? std::nullopt : found->second.*field;
}

void Merge(const QuotaFields& change, QuotaFields* fields) {
  for (const NamedQuotaField& field : kQuotaFields) {
    if (change.*field.value) fields->*field.value = change.*field.value;
  }
}

Status CheckFields(const QuotaFields& fields) {
  const uint64_t guarantee = fields.guarantee.value_or(0);
  if (guarantee != kUnlimited && guarantee > fields.ram.value_or(kUnlimited)) {
    return Fail(Code::kInvalid, fmt::format("a quota of guarantees of {} is above that of RAM of {}: lower it too",
                                            base::FormatBytes(guarantee), base::FormatBytes(*fields.ram)));
  }
  if (const uint64_t jobs = fields.jobs.value_or(0); jobs != kUnlimited && jobs > kQuotaJobsMax)
    return Fail(Code::kInvalid, fmt::format("a quota of {} jobs: allowed are 0 to {}", jobs, kQuotaJobsMax));
  return {};
}

QuotaFields* FieldsIn(QuotaOverrides* overrides, QuotaLevel level, uint32_t id) {
  TIER_CHECK(level != QuotaLevel::kOption && id != std::numeric_limits<uint32_t>::max(), "quota of {}", id);
  if (level == QuotaLevel::kDefault) return &overrides->by_default;
  return level == QuotaLevel::kUser ? &overrides->users[id] : &overrides->groups[id];
}

std::string Describe(QuotaLevel level, uint32_t id) {
  if (level == QuotaLevel::kDefault) return "the default";
  return fmt::format("{} {}", level == QuotaLevel::kUser ? "user" : "group", id);
}

}  // namespace

std::optional<QuotaLimit> QuotaBook::OfUser(uint32_t uid, const UserEntry& user, Field field) const {
  if (const auto set = Look(overrides_.users, uid, field)) return QuotaLimit{*set, {QuotaLevel::kUser, true, uid}};
  auto named = user.name.empty() ? std::nullopt : Look(table_.users, user.name, field);
  if (!named) named = Look(table_.users, std::to_string(uid), field);
  if (!named) return std::nullopt;
  return QuotaLimit{*named, {QuotaLevel::kUser, false, uid}};
}

std::optional<QuotaLimit> QuotaBook::OfGroup(const UserGroup& group, Field field) const {
  if (const auto set = Look(overrides_.groups, group.id, field))
    return QuotaLimit{*set, {QuotaLevel::kGroup, true, group.id}};
  auto named = group.name.empty() ? std::nullopt : Look(table_.groups, group.name, field);
  if (!named) named = Look(table_.groups, std::to_string(group.id), field);
  if (!named) return std::nullopt;
  return QuotaLimit{*named, {QuotaLevel::kGroup, false, group.id}};
}

QuotaLimit QuotaBook::Resolve(uint32_t uid, const UserEntry& user, Field field, const QuotaLimit& option) const {
  if (const auto own = OfUser(uid, user, field)) return *own;
  std::optional<QuotaLimit> best;
  for (const UserGroup& group : user.groups) {
    const auto of_group = OfGroup(group, field);
    if (of_group && (!best || of_group->most > best->most)) best = of_group;
  }
  TIER_CHECK(!best || best->origin.level == QuotaLevel::kGroup, "a quota of {} is none of a group", best->origin.id);
  if (best) return *best;
  if (overrides_.by_default.*field) return {*(overrides_.by_default.*field), {QuotaLevel::kDefault, true, 0}};
  if (table_.by_default.*field) return {*(table_.by_default.*field), {QuotaLevel::kDefault, false, 0}};
  return option;
}

ResolvedQuota QuotaBook::QuotaOf(uint32_t uid) const {
  const MutexLock lock(mutex_);
  const auto known = known_.find(uid);
  const UserEntry& user = known == known_.end() ? UserEntry{} : known->second.entry;
  return {.bytes = {.ram = Resolve(uid, user, &QuotaFields::ram, {}),
                    .ssd = Resolve(uid, user, &QuotaFields::ssd, ssd_),
                    .guarantee = Resolve(uid, user, &QuotaFields::guarantee, {})},
          .jobs = Resolve(uid, user, &QuotaFields::jobs, jobs_)};
}

bool QuotaBook::NeedsUsers() const {
  return !table_.groups.empty() || !overrides_.groups.empty() ||
         std::ranges::any_of(table_.users, [](const auto& user) { return !IsNumber(user.first); });
}

QuotaBook::Known QuotaBook::KnowsUser(uint32_t uid) const {
  const MutexLock lock(mutex_);
  if (!NeedsUsers()) return Known::kNow;
  const auto known = known_.find(uid);
  if (known == known_.end()) return Known::kNot;
  return clock_.Now() - known->second.at < kUserEntryLifetime ? Known::kNow : Known::kStale;
}

void QuotaBook::Learn(uint32_t uid) {
  if (KnowsUser(uid) == Known::kNow) return;
  UserEntry entry = users_.FindUser(uid);  // Without the lock: it may take seconds.
  TIER_CHECK(!entry.name.empty() || entry.groups.empty(), "uid {} has no name and {} groups", uid, entry.groups.size());
  const base::TimePoint now = clock_.Now();
  const MutexLock lock(mutex_);
  if (entry.failed) {  // What was known holds, and the system is asked again soon.
    const auto known = known_.try_emplace(uid, KnownUser{.entry = std::move(entry), .at = now}).first;
    known->second.at = now + (kUserEntryRetry - kUserEntryLifetime);
  } else {
    known_.insert_or_assign(uid, KnownUser{.entry = std::move(entry), .at = now});
  }
  if (known_.size() <= kUserEntriesMax) return;
  known_.erase(std::ranges::min_element(known_, {}, [](const auto& known) { return known.second.at; }));
  TIER_CHECK(known_.size() <= kUserEntriesMax, "{} users are known", known_.size());
}

bool QuotaBook::SetOptions(const QuotaLimit& ssd, const QuotaLimit& jobs) {
  const MutexLock lock(mutex_);
  if (ssd_ == ssd && jobs_ == jobs) return false;
  ssd_ = ssd;
  jobs_ = jobs;
  return true;
}

bool QuotaBook::SetTable(QuotaTable table) {
  const MutexLock lock(mutex_);
  if (table_ == table) return false;
  table_ = std::move(table);
  return true;
}

QuotaOverrides QuotaBook::Overrides() const {
  const MutexLock lock(mutex_);
  return overrides_;
}

Result<uint32_t> QuotaBook::IdOf(const QuotaTarget& target) {
  if (target.level == QuotaLevel::kDefault) return 0;
  TIER_CHECK(target.level != QuotaLevel::kOption, "an option is no quota that is set");
  const bool of_user = target.level == QuotaLevel::kUser;
  const char* const kind = of_user ? "user" : "group";
  if (target.name.empty()) return Fail(Code::kInvalid, fmt::format("a quota of a {} needs its name or number", kind));
  if (IsNumber(target.name)) {
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(target.name.data(), target.name.data() + target.name.size(), id);
    if (error == std::errc() && id != std::numeric_limits<uint32_t>::max()) return id;
    return Fail(Code::kInvalid, fmt::format("{} is no number of a {}: allowed are 0 to 4294967294", target.name, kind));
  }
  const auto found = of_user ? users_.FindUserId(target.name) : users_.FindGroupId(target.name);
  if (!found) return found;
  if (*found == std::numeric_limits<uint32_t>::max()) {
    return Fail(Code::kInvalid,
                fmt::format("this system gives the {} '{}' the number {}, which stands for none: give it "
                            "another one",
                            kind, target.name, *found));
  }
  return *found;
}

Result<QuotaTarget> QuotaBook::Numbered(const QuotaTarget& target) {
  if (target.level == QuotaLevel::kDefault) return target;
  const auto id = IdOf(target);
  if (!id) return std::unexpected(id.error());
  TIER_CHECK(*id != std::numeric_limits<uint32_t>::max(), "{} stands for none", *id);
  return QuotaTarget{target.level, std::to_string(*id)};
}

// A quota would keep the number of an owner who is none from every other one.
Status QuotaBook::CheckOwner(const QuotaTarget& target, uint32_t id) {
  if (target.level != QuotaLevel::kUser || !IsOwnerUid(id) || !users_.FindUser(id).name.empty()) return {};
  return Fail(Code::kNotFound,
              fmt::format("uids from {} to {} stand for owners of sockets, and no owner has {} (tierctl socket list)",
                          kOwnerUidFirst, kOwnerUidLast, id));
}

Status QuotaBook::Replace(const QuotaOverrides& next) {
  TIER_CHECK(!file_.empty() && next.users.size() + next.groups.size() <= kQuotasMax, "{} quotas of users for '{}'",
             next.users.size(), file_);
  if (Status saved = SaveQuotas(file_, next); !saved) return saved;
  const MutexLock lock(mutex_);
  overrides_ = next;
  return {};
}

Status QuotaBook::Set(const QuotaTarget& target, const QuotaFields& fields) {
  if (!fields.any()) return Fail(Code::kInvalid, "no quota is named: give at least one of ram, ssd, guarantee, jobs");
  if (file_.empty()) {
    return Fail(Code::kDenied,
                "this daemon keeps nothing, also no quotas that are set at run time: write them into "
                "the configuration");
  }
  const auto id = IdOf(target);
  if (!id) return std::unexpected(id.error());
  // Whose name is being given up is no owner before its quota is cleared, which waits for this lock.
  const MutexLock writing(writing_);
  if (Status owner = CheckOwner(target, *id); !owner) return owner;
  QuotaOverrides next = Overrides();
  QuotaFields* const changed = FieldsIn(&next, target.level, *id);
  Merge(fields, changed);
  if (Status checked = CheckFields(*changed); !checked) return checked;
  if (next.users.size() + next.groups.size() > kQuotasMax) {
    return Fail(Code::kNoMemory, fmt::format("{} users and groups have quotas that were set at run time, the limit: "
                                             "clear some (tierctl quota clear)",
                                             kQuotasMax));
  }
  return Replace(next);
}

Status QuotaBook::Clear(const QuotaTarget& target) {
  const auto id = IdOf(target);
  if (!id) return std::unexpected(id.error());
  const MutexLock writing(writing_);
  QuotaOverrides next = Overrides();
  if (!FieldsIn(&next, target.level, *id)->any()) {
    return Fail(Code::kNotFound, fmt::format("no quota of {} was set at run time; what the configuration says is "
                                             "changed there",
                                             Describe(target.level, *id)));
  }
  if (target.level == QuotaLevel::kDefault) next.by_default = {};
  if (target.level == QuotaLevel::kUser) next.users.erase(*id);
  if (target.level == QuotaLevel::kGroup) next.groups.erase(*id);
  return Replace(next);
}

std::vector<QuotaRow> QuotaBook::List() const {
  const MutexLock lock(mutex_);
  std::vector<QuotaRow> rows;
  const auto add = [&rows](QuotaLevel level, bool at_run_time, const std::string& name, const QuotaFields& fields) {
    if (fields.any()) rows.push_back({.level = level, .at_run_time = at_run_time, .name = name, .fields = fields});
  };
  add(QuotaLevel::kDefault, true, {}, overrides_.by_default);
  add(QuotaLevel::kDefault, false, {}, table_.by_default);
  for (const auto& [id, fields] : overrides_.groups) add(QuotaLevel::kGroup, true, std::to_string(id), fields);
  for (const auto& [name, fields] : table_.groups) add(QuotaLevel::kGroup, false, name, fields);
  for (const auto& [id, fields] : overrides_.users) add(QuotaLevel::kUser, true, std::to_string(id), fields);
  for (const auto& [name, fields] : table_.users) add(QuotaLevel::kUser, false, name, fields);
  return rows;
}

std::vector<std::string> QuotaBook::ListUnknown() {
  QuotaTable table;
  {
    const MutexLock lock(mutex_);
    table = table_;
  }
  const auto is_none = [](const Result<uint32_t>& found) { return !found && found.error().code == Code::kNotFound; };
  std::vector<std::string> unknown;
  for (const auto& [name, fields] : table.users) {
    if (!IsNumber(name) && is_none(users_.FindUserId(name))) unknown.push_back("quota.user." + name);
  }
  for (const auto& [name, fields] : table.groups) {
    if (!IsNumber(name) && is_none(users_.FindGroupId(name))) unknown.push_back("quota.group." + name);
  }
  return unknown;
}

}  // namespace tier::session
