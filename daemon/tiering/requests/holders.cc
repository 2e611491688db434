// See holders.h.
#include "daemon/tiering/requests/holders.h"

#include <chrono>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

constexpr size_t kDebtorsNamedMax = 3;
constexpr size_t kOthersNamedMax = 3;

}  // namespace

std::string OtherHolders(const Tables& tables, const JobState& self) {
  std::string text;
  for (const Ledger::Holder& holder : tables.ledger.ListOthers(self.entitlement, kOthersNamedMax)) {
    const JobState* job = tables.jobs.Find(holder.id);
    if (job == nullptr) continue;
    text += fmt::format("{}job {} holds {}, of which {} are leased or torn", text.empty() ? "" : ", ", job->key,
                        FormatBytes(holder.held), FormatBytes(holder.leased));
  }
  return text;
}

std::string Debtors(const Tables& tables) {
  std::string text;
  for (const Ledger::Debtor& debtor : tables.ledger.ListDebtors(kDebtorsNamedMax)) {
    const JobState* job = tables.jobs.Find(debtor.id);
    if (job == nullptr) continue;
    const double seconds = std::chrono::duration<double>(tables.turn.now() - debtor.since).count();
    text += fmt::format("; job {} was asked for windows {:.1f} s ago and has not returned {} of them", job->key,
                        seconds, FormatBytes(debtor.returning));
  }
  return text;
}

std::string GuaranteesNote(const Tables& tables, const JobState& job) {
  const uint64_t leasable = tables.ledger.LeasableBy(job.entitlement);
  if (leasable == UINT64_MAX) return {};
  return fmt::format("; the job may lease {} of the arena of {}, the rest is guaranteed to other jobs",
                     FormatBytes(leasable), FormatBytes(tables.ledger.arena_bytes()));
}

}  // namespace tier::tiering
