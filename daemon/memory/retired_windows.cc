// See retired_windows.h.
#include "daemon/memory/retired_windows.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "daemon/base/allocated_bytes.h"
#include "proto/mutex.h"

namespace tier::memory {
namespace {

// False: no other process has it, and it can be closed.
bool Look(RetiredFile& retired) {
  retired.window.refilled_bytes = 0;
  const int file = retired.file.get();
  if (IsUnusedByOthers(file)) return false;
  struct stat status{};
  if (::fstat(file, &status) != 0 || status.st_blocks == 0) return true;
  retired.window.refilled_bytes = base::AllocatedBytes(status);
  ++retired.window.refills;
  // Best effort: the next look tries again.
  (void)::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size);
  return true;
}

// Lets the oldest go, those of the jobs that have most: one job alone does not make the files of others go.
void Limit(std::vector<RetiredFile>* files, size_t most_files) {
  if (files->size() <= most_files) return;
  std::map<OwnerId, size_t> counts;
  for (const RetiredFile& file : *files) ++counts[file.window.owner];
  std::map<OwnerId, size_t> go;
  for (size_t excess = files->size() - most_files; excess != 0; --excess) {
    const auto most = std::ranges::max_element(counts, {}, &std::pair<const OwnerId, size_t>::second);
    --most->second;
    ++go[most->first];
  }
  std::erase_if(*files, [&](const RetiredFile& file) {
    const auto owner = go.find(file.window.owner);
    return owner != go.end() && owner->second != 0 && owner->second-- != 0;
  });
}

}  // namespace

bool IsUnusedByOthers(int file) { return ::fcntl(file, F_SETLEASE, F_WRLCK) == 0; }

struct RetiredWindows::Shared {
  Mutex mutex;
  std::vector<RetiredFile> files TIER_GUARDED_BY(mutex);  // To be looked at, then those that stay.
  bool done TIER_GUARDED_BY(mutex) = false;

  void LookAtAll() {
    std::vector<RetiredFile> looked;
    {
      const MutexLock lock(mutex);
      looked.swap(files);
    }
    std::erase_if(looked, [](RetiredFile& retired) { return !Look(retired); });
    const MutexLock lock(mutex);
    files = std::move(looked);
    done = true;
  }
};

size_t RetiredWindows::FilesMax() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  return known ? static_cast<size_t>(std::clamp<rlim_t>(limit.rlim_cur / 8, 1, kFilesMax)) : kFilesMax / 8;
}

RetiredWindows::RetiredWindows(base::Workers* workers, size_t files_max)
    : workers_(workers), shared_(std::make_shared<Shared>()), files_max_(files_max) {}

RetiredWindows::~RetiredWindows() = default;

void RetiredWindows::Add(RetiredFile file) {
  files_.push_back(std::move(file));
  Limit(&files_, files_max_);
  count_ = std::min(count_ + 1, files_max_);
}

// A process that was stopped answers for thousands of windows at once: one search for each name instead of one through
// all files for each answer.
void RetiredWindows::StrikeAnswers(std::vector<RetiredFile>* files) {
  std::ranges::sort(answers_);
  for (RetiredFile& file : *files) {
    std::erase_if(file.window.sessions, [&](uint64_t session) {
      return std::ranges::binary_search(answers_, Answer{.number = file.window.number, .session = session});
    });
  }
  answers_.clear();
}

void RetiredWindows::Strike(uint64_t number, uint64_t session) {
  if (count_ != 0) answers_.push_back({.number = number, .session = session});
}

void RetiredWindows::Start() {
  if (under_way_ || files_.empty()) return;
  {
    const MutexLock lock(shared_->mutex);
    shared_->files = std::exchange(files_, {});
    shared_->done = false;
  }
  under_way_ = workers_->TryPost([shared = shared_] { shared->LookAtAll(); });
  if (under_way_) return;
  const MutexLock lock(shared_->mutex);
  files_ = std::exchange(shared_->files, {});
}

bool RetiredWindows::Poll(std::vector<KeptWindow>* kept) {
  if (!under_way_) return false;
  std::vector<RetiredFile> looked;
  {
    const MutexLock lock(shared_->mutex);
    if (!shared_->done) return false;
    looked = std::exchange(shared_->files, {});
  }
  under_way_ = false;
  const size_t seen = looked.size();
  looked.insert(looked.end(), std::make_move_iterator(files_.begin()), std::make_move_iterator(files_.end()));
  StrikeAnswers(&looked);
  kept->clear();
  for (size_t i = 0; i < seen; ++i) kept->push_back(looked[i].window);
  Limit(&looked, files_max_);
  files_ = std::move(looked);
  count_ = files_.size();
  return true;
}

}  // namespace tier::memory
