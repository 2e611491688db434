// See quota_control.h.
#include "daemon/session/quota_control.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/line_file.h"
#include "daemon/session/not_admin.h"
#include "daemon/session/quota_use.h"

namespace tier::session {

using tiering::QuotaLevel;

void TellOfQuotaChange(EventLog& events, const std::string& what) {
  events.EmitForAdministrators("quota_changed", what, "an administrator changed a quota");
}

Result<QuotaReport> QuotaControl::List(const Caller& caller) {
  if (parts_.book == nullptr) return QuotaReport{};
  parts_.book->Learn(caller.uid);
  auto report = parts_.calls.Ask<QuotaReport>([this, caller]() -> Result<QuotaReport> {
    return QuotaReport{.quotas = {}, .uses = UsesFor(caller, parts_.jobs, *parts_.book)};
  });
  if (!report) return report;
  for (QuotaUse& use : report->uses) use.owner = OwnerOf(use.uid);
  if (caller.admin) report->quotas = parts_.book->List();
  for (QuotaRow& row : report->quotas) {
    if (row.level != QuotaLevel::kUser || parts_.owners == nullptr) continue;
    auto uid = NumberOf<uint32_t>(row.name);
    if (!uid) uid = parts_.owners->UidOf(row.name);
    if (uid) row.owner = OwnerOf(*uid);
    if (!row.owner.empty()) row.name = row.owner;
  }
  return report;
}

Status QuotaControl::ApplyNow(const std::string& what) {
  // A quota of a group is none of a user whose groups were not looked up, as none was needed before.
  using Uids = std::set<uint32_t>;
  const auto owners = parts_.calls.Ask<Uids>([this]() -> Result<Uids> { return parts_.jobs.Owners(); });
  if (!owners) return std::unexpected(owners.error());
  for (const uint32_t uid : *owners) parts_.book->Learn(uid);
  return parts_.calls.Ask<void>([this, what]() -> Status {
    parts_.jobs.ApplyQuotas();
    TellOfQuotaChange(parts_.events, what);
    return {};
  });
}

// What is stored holds in any case: without an answer of the engine it is applied as soon as there is one.
Status QuotaControl::Apply(const std::string& what) {
  TIER_CHECK(parts_.book != nullptr, "no quotas to apply: {}", what);
  Status applied = ApplyNow(what);
  if (applied || !parts_.apply_later) return applied;
  parts_.apply_later(what);
  applied.error().message += "; the change is stored, and holds for open jobs once the engine answers";
  return applied;
}

Status QuotaControl::Set(const Caller& caller, const QuotaTarget& target, const QuotaFields& fields) {
  if (!caller.admin) return NotAdmin("set a quota");
  if (parts_.book == nullptr) return Fail(Code::kDenied, "this daemon has no quotas");
  const auto numbered = parts_.book->Numbered(target);
  if (!numbered) return std::unexpected(numbered.error());
  if (Status set = parts_.book->Set(*numbered, fields); !set) return set;
  return Apply(fmt::format("uid {} set a quota of {}: {}", caller.uid, QuotaText(*numbered), QuotaText(fields)));
}

// Who tries again what timed out is not told that there is nothing to clear.
Status QuotaControl::Clear(const Caller& caller, const QuotaTarget& target) {
  if (!caller.admin) return NotAdmin("clear a quota");
  if (parts_.book == nullptr) return Fail(Code::kDenied, "this daemon has no quotas");
  const auto numbered = parts_.book->Numbered(target);
  if (!numbered) return std::unexpected(numbered.error());
  const std::string whom = QuotaText(*numbered);
  const Status cleared = parts_.book->Clear(*numbered);
  if (!cleared && (cleared.error().code != Code::kNotFound || !clears_.Contains(whom))) return cleared;
  const Status applied = Apply(fmt::format("uid {} cleared the quota of {}", caller.uid, whom));
  applied ? clears_.Remove(whom) : clears_.Add(whom);
  return applied;
}

}  // namespace tier::session
