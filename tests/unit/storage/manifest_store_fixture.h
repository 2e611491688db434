// A LmdbManifestStore of 4 MiB in a scratch directory, bound to one device.
#pragma once

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "daemon/storage/lmdb_manifest_store.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage {

inline std::vector<std::byte> Manifest(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// While this lives no file can be written at `offset` or beyond.
class WriteLimit {
 public:
  explicit WriteLimit(rlim_t offset) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = offset, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~WriteLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  WriteLimit(const WriteLimit&) = delete;
  WriteLimit& operator=(const WriteLimit&) = delete;

 private:
  rlimit before_{};
};

class ManifestStoreTest : public ::testing::Test {
 protected:
  ManifestStoreOptions Options() {
    return {.path = path_,
            .map_size = 4 * kMiB,
            .devices = {device_},
            .signal = &signal_,
            .on_commit = [this](const Uuid& index, uint64_t commit) -> Status {
              device_.index_uuid = index;
              device_.index_commit = commit;
              return commit_status_;
            }};
  }
  std::unique_ptr<LmdbManifestStore> Open() {
    auto store = LmdbManifestStore::Open(Options());
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  void Put(LmdbManifestStore* store, const std::string& job) {
    store->StartPut(1, job, Manifest("of " + job), {});
    EXPECT_EQ(Wait(store, 1).at(1).code, Code::kOk);
  }
  void Erase(LmdbManifestStore* store, const std::string& job) {
    store->StartErase(1, job);
    EXPECT_EQ(Wait(store, 1).at(1).code, Code::kOk);
  }
  std::map<uint64_t, ManifestResult> Wait(LmdbManifestStore* store, size_t count) {
    std::vector<ManifestResult> results;
    store->Poll(&results);
    while (results.size() < count && testing::WaitReadable(signal_.fd(), 30'000)) {
      signal_.Clear();
      store->Poll(&results);
    }
    EXPECT_EQ(results.size(), count);
    std::map<uint64_t, ManifestResult> by_cookie;
    for (const ManifestResult& result : results) by_cookie[result.cookie] = result;
    return by_cookie;
  }

  testing::ScratchDirectory directory_;
  const std::string path_ = directory_.File("index.mdb");
  CompletionSignal signal_;
  Status commit_status_;
  ManifestDevice device_{.path = "/dev/first", .uuid = DrawUuid()};
};

}  // namespace tier::storage
