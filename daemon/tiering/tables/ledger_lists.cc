// The lists of the ledger, and its check: what looks at all jobs. See ledger.h.
#include <algorithm>
#include <tuple>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/ledger.h"

namespace tier::tiering {

void Ledger::ListHolders(std::vector<JobId>* holders) const {
  std::vector<std::pair<uint64_t, uint64_t>> order;  // By surplus, then by id.
  for (uint32_t i = 0; i < jobs_.size(); ++i) {
    if (!jobs_[i].used) continue;
    // While one job is served all others are asked, those with a surplus first.
    const bool asked = serving() && EntitlementIndex{i} != served_ && !jobs_[i].ended && jobs_[i].held != 0;
    const EntitlementIndex job{i};
    const uint64_t surplus = std::max({Surplus(job), BeyondDepth(jobs_[i]), Lendable(job)});
    if (asked || surplus != 0) order.emplace_back(UINT64_MAX - surplus, static_cast<uint64_t>(jobs_[i].id));
  }
  std::sort(order.begin(), order.end());
  holders->clear();
  for (const auto& [surplus, id] : order) holders->push_back(JobId{id});
}

std::vector<Ledger::Debtor> Ledger::ListDebtors(size_t max) const {
  std::vector<Debtor> debtors;
  if (returning_ == 0) return debtors;
  for (const Entitlement& job : jobs_) {
    if (job.used && job.returning != 0) debtors.push_back({job.id, job.returning, job.returning_since});
  }
  std::sort(debtors.begin(), debtors.end(), [](const Debtor& a, const Debtor& b) { return a.returning > b.returning; });
  if (debtors.size() > max) debtors.resize(max);
  return debtors;
}

std::vector<Ledger::Holder> Ledger::ListOthers(EntitlementIndex job, size_t max) const {
  std::vector<const Entitlement*> others;
  for (const Entitlement& other : jobs_) {
    if (other.used && &other != &At(job) && other.held + other.leased != 0) others.push_back(&other);
  }
  const auto last = others.begin() + static_cast<std::ptrdiff_t>(std::min(max, others.size()));
  std::partial_sort(others.begin(), last, others.end(), [](const Entitlement* a, const Entitlement* b) {
    return std::tuple(b->Beyond(b->leased), b->held, a->id) < std::tuple(a->Beyond(a->leased), a->held, b->id);
  });
  std::vector<Holder> listed;
  for (auto each = others.begin(); each != last; ++each)
    listed.push_back({(*each)->id, (*each)->held, (*each)->leased});
  return listed;
}

void Ledger::CheckInvariants() const {
  CheckQuotas();
  uint64_t promised = 0;
  uint64_t claimed = 0;
  uint64_t returning = 0;
  uint64_t overdue = 0;
  uint64_t unbacked = 0;
  uint64_t ended_held = 0;
  uint64_t claims = 0;
  size_t guarantees_owed = 0;
  uint64_t leased_beyond = 0;
  for (const Entitlement& job : jobs_) {
    if (!job.used) continue;
    TIER_CHECK(job.promised <= Allowed(job), "job {} is promised {} of {}", static_cast<uint64_t>(job.id), job.promised,
               Allowed(job));
    TIER_CHECK(job.claimed == 0 || job.counted() < job.promised, "job {} claims {}, holds {} of {}",
               static_cast<uint64_t>(job.id), job.claimed, job.counted(), job.promised);
    const uint64_t deficit = job.promised - std::min(job.promised, job.counted());
    TIER_CHECK(job.claimed <= InSlotWindows(deficit), "job {} claims {}, lacks {}", static_cast<uint64_t>(job.id),
               job.claimed, deficit);
    for (const uint64_t windows : {job.held, job.kept, job.claimed, job.returning, job.overdue}) {
      TIER_CHECK(windows % windows_.slot == 0, "job {}: {} in windows of {}", static_cast<uint64_t>(job.id), windows,
                 windows_.slot);
    }
    TIER_CHECK(job.overdue <= job.returning, "overdue {} of {}", job.overdue, job.returning);
    promised += job.promised;
    claimed += job.claimed;
    returning += job.returning;
    overdue += job.overdue;
    unbacked += job.unbacked;
    ended_held += job.ended ? job.held : 0;
    claims += job.claimed != 0 ? 1 : 0;
    guarantees_owed += OwedOfGuarantee(job) ? 1 : 0;
    leased_beyond += job.Beyond(job.leased);
  }
  TIER_CHECK(promised == promised_ && promised + PartForNobody() <= arena_, "promised {} of {}, {} to no job", promised,
             arena_, PartForNobody());
  TIER_CHECK(wished_ % windows_.slot == 0 && (wished_ == 0 || !At(wisher_).ended), "{} are wished for", wished_);
  TIER_CHECK(leased_beyond == leased_beyond_, "leased beyond guarantees {} of {}", leased_beyond, leased_beyond_);
  TIER_CHECK(claimed == claimed_ && claims == claims_.size() && guarantees_owed == guarantees_owed_,
             "claims {} of {}, {} of {} jobs, {} of {} of guarantees", claimed, claimed_, claims, claims_.size(),
             guarantees_owed, guarantees_owed_);
  TIER_CHECK(returning == returning_ && overdue == overdue_ && unbacked == unbacked_ && ended_held == ended_held_,
             "returning {} of {}, overdue {} of {}, unbacked {} of {}, ended {} of {}", returning, returning_, overdue,
             overdue_, unbacked, unbacked_, ended_held, ended_held_);
}

}  // namespace tier::tiering
