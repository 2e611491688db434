#include "daemon/session/pool_description.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace tier::session {
namespace {

// The owners of one answer, and where each job is among them.
class Owners {
 public:
  Owners(const PoolSnapshot& pool, const Caller& caller) {
    std::vector<const Job*> visible;
    for (const Job& job : pool.jobs) {
      if (JobRegistry::MaySee(caller, job)) visible.push_back(&job);
    }
    std::ranges::sort(visible, {}, [](const Job* job) { return std::tie(job->name, job->uid); });
    for (const Job* job : visible) Add({.job = job->name, .uid = job->uid, .figures = {}}, job->id);
    for (const tiering::PoolJob& job : pool.view.jobs) {
      tiering::AddPool(job.figures, &owners_[Of(job.id)].figures);
    }
  }

  uint32_t Of(tiering::JobId job) {
    if (const auto found = by_job_.find(job); found != by_job_.end()) return found->second;
    const bool ended = job == tiering::JobId{};
    std::optional<uint32_t>& rest = ended ? ended_ : others_;
    if (!rest) {
      rest = static_cast<uint32_t>(owners_.size());
      owners_.push_back({.kind = ended ? PoolOwnerKind::kEnded : PoolOwnerKind::kOtherUsers, .job = {}, .figures = {}});
    }
    return *rest;
  }
  std::vector<PoolOwner> Take() { return std::move(owners_); }

 private:
  void Add(PoolOwner owner, tiering::JobId job) {
    by_job_.emplace(job, static_cast<uint32_t>(owners_.size()));
    owners_.push_back(std::move(owner));
  }

  std::vector<PoolOwner> owners_;
  std::unordered_map<tiering::JobId, uint32_t> by_job_;
  std::optional<uint32_t> others_;
  std::optional<uint32_t> ended_;
};

}  // namespace

PoolDescription PartOf(const PoolSnapshot& pool, const Caller& caller) {
  PoolDescription description;
  description.arena_bytes = pool.view.arena_bytes;
  description.arena_max_bytes = pool.view.arena_max_bytes;
  description.stock_bytes = pool.view.stock_bytes;
  description.kept_bytes = pool.view.kept_bytes;
  Owners owners(pool, caller);
  description.windows.reserve(pool.view.windows.size());
  for (const tiering::WindowView& window : pool.view.windows) {
    description.windows.push_back({.now = window, .owner = owners.Of(window.job)});
  }
  std::ranges::sort(description.windows, {}, [](const PoolWindow& window) {
    return std::tuple(window.now.size == 0, window.now.place, Value(window.now.index));
  });
  description.owners = owners.Take();
  return description;
}

}  // namespace tier::session
