// KeptTerms: what a named job was guaranteed and limited to, from the moment it is closed so that its next run can
// resume it until it is open again. The engine is still closing it when the next run asks first, and knows nothing of
// it when that run asks again; processes of a run cannot name all of these terms (Hello), and need not know what an
// operator set.
//
// Bounded: of one user the terms of kKeptOfUserMax jobs are kept, and kKeptMax in all; then the oldest go. Engine
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "daemon/session/control_api.h"

namespace tier::session {

inline constexpr size_t kKeptOfUserMax = 64;
inline constexpr size_t kKeptMax = 4096;

struct JobTerms {
  uint64_t guarantee_bytes = 0;
  uint64_t limit_bytes = 0;  // 0: none.
  uint64_t ssd_guarantee_bytes = 0;
  uint64_t ssd_limit_bytes = 0;  // 0: none.
  bool operator==(const JobTerms&) const = default;
};
JobTerms TermsOf(const OpenJobRequest& request);
// The terms of RAM where they name any, else those that are kept; so of SSD.
JobTerms Filled(JobTerms terms, const JobTerms& kept);

class KeptTerms {
 public:
  // In place of what was kept for the job before.
  void Keep(uint32_t uid, const std::string& name, const JobTerms& terms);
  void Drop(uint32_t uid, const std::string& name) { jobs_.erase({uid, name}); }
  // What this request resumes the job with: its own terms, Filled from those that were kept.
  JobTerms ForResume(uint32_t uid, const OpenJobRequest& request) const;
  size_t size() const { return jobs_.size(); }

 private:
  struct Kept {
    JobTerms terms;
    uint64_t number = 0;  // Greater than those before it.
  };
  using Jobs = std::map<std::pair<uint32_t, std::string>, Kept>;  // By uid and name.

  Jobs jobs_;
  uint64_t last_ = 0;
};

}  // namespace tier::session
