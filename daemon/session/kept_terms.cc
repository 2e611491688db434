// See kept_terms.h.
#include "daemon/session/kept_terms.h"

#include <algorithm>
#include <iterator>

#include "daemon/base/check.h"

namespace tier::session {

JobTerms TermsOf(const OpenJobRequest& request) {
  return {.guarantee_bytes = request.guarantee_bytes,
          .limit_bytes = request.limit_bytes,
          .ssd_guarantee_bytes = request.ssd_guarantee_bytes,
          .ssd_limit_bytes = request.ssd_limit_bytes};
}

void KeptTerms::Keep(uint32_t uid, const std::string& name, const JobTerms& terms) {
  TIER_CHECK(terms.limit_bytes == 0 || terms.guarantee_bytes <= terms.limit_bytes, "guarantee {} limit {}",
             terms.guarantee_bytes, terms.limit_bytes);
  TIER_CHECK(terms.ssd_limit_bytes == 0 || terms.ssd_guarantee_bytes <= terms.ssd_limit_bytes, "SSD {} limit {}",
             terms.ssd_guarantee_bytes, terms.ssd_limit_bytes);
  jobs_.erase({uid, name});
  if (terms == JobTerms{}) return;
  const auto older = [](const auto& a, const auto& b) { return a.second.number < b.second.number; };
  const auto first = jobs_.lower_bound({uid, std::string()});
  const auto end = std::find_if(first, jobs_.end(), [uid](const auto& kept) { return kept.first.first != uid; });
  if (static_cast<size_t>(std::distance(first, end)) >= kKeptOfUserMax) {
    jobs_.erase(std::min_element(first, end, older));
  } else if (jobs_.size() >= kKeptMax) {
    jobs_.erase(std::ranges::min_element(jobs_, older));
  }
  jobs_.emplace(std::pair(uid, name), Kept{.terms = terms, .number = ++last_});
  TIER_CHECK(jobs_.size() <= kKeptMax, "terms of {} jobs are kept", jobs_.size());
}

JobTerms KeptTerms::ForResume(uint32_t uid, const OpenJobRequest& request) const {
  const auto found = jobs_.find({uid, request.name});
  return found == jobs_.end() ? TermsOf(request) : Filled(TermsOf(request), found->second.terms);
}

JobTerms Filled(JobTerms terms, const JobTerms& kept) {
  if (terms.guarantee_bytes == 0 && terms.limit_bytes == 0) {
    terms.guarantee_bytes = kept.guarantee_bytes;
    terms.limit_bytes = kept.limit_bytes;
  }
  if (terms.ssd_guarantee_bytes == 0 && terms.ssd_limit_bytes == 0) {
    terms.ssd_guarantee_bytes = kept.ssd_guarantee_bytes;
    terms.ssd_limit_bytes = kept.ssd_limit_bytes;
  }
  return terms;
}

}  // namespace tier::session
