// See fake_index.h.
#include "tests/support/storage/fake_index.h"

#include <utility>

#include "daemon/base/check.h"
#include "proto/index_record.h"

namespace tier::storage::testing {
namespace {
constexpr uint64_t kKeyBytes = 28;
constexpr uint64_t kChunkBytes = proto::kIndexChunkPieces * sizeof(proto::IndexPieceRecord);
}  // namespace

FakeIndex::FakeIndex(std::shared_ptr<IndexContents> committed)
    : committed_(committed ? std::move(committed) : std::make_shared<IndexContents>()) {}

void FakeIndex::Put(const RecordKey& key, std::span<const std::byte> value) {
  puts_[key].assign(value.begin(), value.end());
}

void FakeIndex::Erase(const RecordKey& key) {
  puts_.erase(key);
  erases_[key] = true;
}

uint64_t FakeIndex::BytesOf(const IndexContents& contents) {
  uint64_t bytes = 0;
  for (const auto& [key, value] : contents) bytes += kKeyBytes + value.size();
  return bytes;
}

Status FakeIndex::Commit() {
  for (const auto& [key, set] : erases_) committed_->erase(key);
  erases_.clear();
  if (capacity_bytes_ != 0) {
    IndexContents after = *committed_;
    for (const auto& [key, value] : puts_) after[key] = value;
    if (BytesOf(after) > capacity_bytes_) {
      return Fail(Code::kNoMemory, "the index is full");
    }
  }
  put_bytes_ += BytesOf(puts_);
  for (auto& [key, value] : puts_) (*committed_)[key] = std::move(value);
  puts_.clear();
  ++commit_count_;
  return {};
}

void FakeIndex::Scan(const std::function<void(const RecordKey&, std::span<const std::byte>)>& visit) const {
  for (const auto& [key, value] : *committed_) visit(key, value);
}

uint64_t FakeIndex::used_bytes() const { return BytesOf(*committed_); }

bool FakeIndex::HasRoom(uint64_t changes) const {
  if (capacity_bytes_ == 0) return true;
  const uint64_t each = kKeyBytes + sizeof(proto::IndexTensorRecord) + kChunkBytes;
  return BytesOf(*committed_) + BytesOf(puts_) + changes * each <= capacity_bytes_;
}

FakeManifestStore::FakeManifestStore(std::shared_ptr<Contents> committed)
    : committed_(committed ? std::move(committed) : std::make_shared<Contents>()) {}

void FakeManifestStore::Enqueue(Request request) {
  request.due_turn = turn_ + delay_turns_;
  queue_.push_back(std::move(request));
}

void FakeManifestStore::StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest) {
  Enqueue({.cookie = cookie, .job = std::move(job), .manifest = std::move(manifest)});
}

void FakeManifestStore::StartErase(uint64_t cookie, std::string job) {
  Enqueue({.cookie = cookie, .job = std::move(job), .erase = true});
}

void FakeManifestStore::FailNext(Code code, std::string message) {
  TIER_CHECK(code != Code::kOk, "a failure needs a code");
  failures_.push_back({code, std::move(message)});
}

void FakeManifestStore::Poll(std::vector<ManifestResult>* results) {
  const uint64_t now = turn_++;
  while (!queue_.empty() && queue_.front().due_turn <= now) {
    Request request = std::move(queue_.front());
    queue_.pop_front();
    if (!failures_.empty()) {
      results->push_back({request.cookie, failures_.front().code, failures_.front().message, commit_});
      failures_.pop_front();
      continue;
    }
    if (request.erase) {
      committed_->erase(request.job);
    } else {
      (*committed_)[request.job] = std::move(request.manifest);
    }
    results->push_back({.cookie = request.cookie, .commit = ++commit_});
  }
}

Result<std::vector<std::byte>> FakeManifestStore::Load(std::string_view job) const {
  const auto found = committed_->find(job);
  if (found == committed_->end()) return Fail(Code::kNotFound, "no manifest of job " + std::string(job));
  return found->second;
}

std::vector<std::string> FakeManifestStore::Jobs() const {
  std::vector<std::string> jobs;
  for (const auto& [job, manifest] : *committed_) jobs.push_back(job);
  return jobs;
}

}  // namespace tier::storage::testing
