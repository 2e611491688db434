// See fake_manifest_store.h.
#include "tests/support/storage/fake_manifest_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/storage/extent_list.h"

namespace tier::storage::testing {
namespace {

constexpr const char* kLost = "it is unknown whether the last commit was made: a restart of tierd will tell";

}  // namespace

FakeManifestStore::FakeManifestStore(std::shared_ptr<Contents> committed, std::shared_ptr<Contents> extents,
                                     std::shared_ptr<Quarantines> quarantines)
    : committed_(committed ? std::move(committed) : std::make_shared<Contents>()),
      extents_(extents ? std::move(extents) : std::make_shared<Contents>()),
      quarantines_(quarantines ? std::move(quarantines) : std::make_shared<Quarantines>()) {}

void FakeManifestStore::Enqueue(Request request) {
  request.due_turn = turn_ + delay_turns_;
  queue_.push_back(std::move(request));
}

void FakeManifestStore::StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest,
                                 std::vector<std::byte> extents) {
  Enqueue({.cookie = cookie, .job = std::move(job), .manifest = std::move(manifest), .extents = std::move(extents)});
}

void FakeManifestStore::StartErase(uint64_t cookie, std::string job) {
  Enqueue({.cookie = cookie, .job = std::move(job), .kind = Request::Kind::kErase});
}

void FakeManifestStore::StartLoad(uint64_t cookie, std::string job) {
  Enqueue({.cookie = cookie, .job = std::move(job), .kind = Request::Kind::kLoad});
}

void FakeManifestStore::StartPurge(uint64_t cookie, std::string device_uuid) {
  Enqueue({.cookie = cookie, .job = std::move(device_uuid), .kind = Request::Kind::kPurge});
}

// A list that cannot be read refuses it, as in the daemon's store.
ManifestResult FakeManifestStore::Purge(const Request& request) {
  const auto device = std::ranges::find(missing_, request.job, &MissingDevice::uuid);
  if (device == missing_.end()) return {request.cookie, Code::kNotFound, "it is not missing", commit_};
  ManifestResult result{.cookie = request.cookie, .commit = commit_ + 1};
  for (const auto& [job, extents] : *extents_) {
    const auto runs = DecodeExtentList(extents);
    if (!runs) return {request.cookie, runs.error().code, runs.error().message, commit_};
    if (std::ranges::find(*runs, device->number, &proto::ExtentListRun::device) == runs->end()) continue;
    result.purged.push_back(job);
  }
  ++commit_;
  for (const std::string& job : result.purged) {
    committed_->erase(job);
    extents_->erase(job);
  }
  RemoveMissing(request.job);
  return result;
}

void FakeManifestStore::FailNext(Code code, std::string message) {
  TIER_CHECK(code != Code::kOk, "a failure needs a code");
  failures_.push_back({code, std::move(message)});
}

void FakeManifestStore::Commit(Request request) {
  if (request.kind == Request::Kind::kErase) {
    committed_->erase(request.job);
    extents_->erase(request.job);
    return;
  }
  (*extents_)[request.job] = std::move(request.extents);
  (*committed_)[request.job] = std::move(request.manifest);
}

ManifestResult FakeManifestStore::Lose(Request request) {
  lost_ = true;
  if (request.kind == Request::Kind::kPurge) {
    if (*lose_next_) (void)Purge(request);  // The next daemon sees it.
    return {.cookie = request.cookie, .code = Code::kIoError, .message = kLost, .unknown = true};
  }
  const bool erase = request.kind == Request::Kind::kErase;
  if (!erase) doubtful_.push_back(request.manifest);
  if (const auto before = committed_->find(request.job); before != committed_->end()) {
    doubtful_.push_back(before->second);
  }
  const uint64_t cookie = request.cookie;
  if (*lose_next_) Commit(std::move(request));
  return {.cookie = cookie, .code = Code::kIoError, .message = kLost, .unknown = true};
}

void FakeManifestStore::Poll(std::vector<ManifestResult>* results) {
  const uint64_t now = turn_++;
  while (!queue_.empty() && queue_.front().due_turn <= now) {
    Request request = std::move(queue_.front());
    queue_.pop_front();
    if (lost_) {
      results->push_back({request.cookie, Code::kIoError, kLost, commit_});
      continue;
    }
    if (lose_next_ && request.kind != Request::Kind::kLoad) {
      results->push_back(Lose(std::move(request)));
      continue;
    }
    if (!failures_.empty()) {
      results->push_back({request.cookie, failures_.front().code, failures_.front().message, commit_});
      failures_.pop_front();
      continue;
    }
    if (request.kind == Request::Kind::kLoad) {
      const Result<std::vector<std::byte>> manifest = Load(request.job);
      results->push_back({.cookie = request.cookie,
                          .code = manifest ? Code::kOk : manifest.error().code,
                          .message = manifest ? std::string() : manifest.error().message,
                          .manifest = manifest.value_or(std::vector<std::byte>{})});
      continue;
    }
    if (request.kind == Request::Kind::kPurge) {
      results->push_back(Purge(request));
      continue;
    }
    results->push_back({.cookie = request.cookie, .commit = ++commit_});
    Commit(std::move(request));
  }
}

Result<std::vector<std::byte>> FakeManifestStore::Load(std::string_view job) const {
  const auto found = committed_->find(job);
  if (found == committed_->end()) return Fail(Code::kNotFound, "no manifest of job " + std::string(job));
  return found->second;
}

Result<std::vector<std::byte>> FakeManifestStore::LoadExtents(std::string_view job) const {
  const auto found = extents_->find(job);
  if (found == extents_->end()) return Fail(Code::kNotFound, "no list of extents of job " + std::string(job));
  return found->second;
}

void FakeManifestStore::StartQuarantine(uint16_t device, std::vector<base::PageRun> places) {
  if (!lost_) (*quarantines_)[device] = std::move(places);
}

std::vector<base::PageRun> FakeManifestStore::Quarantined(uint16_t device) const {
  const auto found = quarantines_->find(device);
  return found == quarantines_->end() ? std::vector<base::PageRun>() : found->second;
}

std::string FakeManifestStore::failure() const { return lost_ ? kLost : std::string(); }

Result<std::vector<std::string>> FakeManifestStore::Jobs() const {
  std::set<std::string> jobs;
  for (const auto& [job, manifest] : *committed_) jobs.insert(job);
  for (const auto& [job, extents] : *extents_) jobs.insert(job);
  return std::vector<std::string>(jobs.begin(), jobs.end());
}

}  // namespace tier::storage::testing
