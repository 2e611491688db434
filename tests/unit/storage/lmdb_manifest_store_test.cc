// The index of manifests: synced commits off the engine thread, and its bond with its devices.
#include "daemon/storage/lmdb_manifest_store.h"

#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/storage/extent_list.h"
#include "tests/support/proto/thread_shortage.h"
#include "tests/unit/storage/manifest_store_fixture.h"

namespace tier::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(ManifestStoreTest, KeepsAManifestAcrossReopening) {
  {
    const auto store = Open();
    store->StartPut(7, "1000/train", Manifest("one"), {});
    const auto results = Wait(store.get(), 1);
    EXPECT_EQ(results.at(7).code, Code::kOk) << results.at(7).message;
    EXPECT_GT(results.at(7).commit, 0u);
  }
  const auto store = Open();
  EXPECT_EQ(*store->Load("1000/train"), Manifest("one"));
  EXPECT_THAT(store->Jobs().value(), UnorderedElementsAre("1000/train"));
}

TEST_F(ManifestStoreTest, IsRefusedWhereTheSystemGivesNoThreadAndLeavesTheIndexFree) {
  {
    const tier::testing::ThreadShortage shortage;
    const auto store = LmdbManifestStore::Open(Options());
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Code::kNoMemory) << store.error().message;
  }
  EXPECT_NE(Open(), nullptr);
}

TEST_F(ManifestStoreTest, ReplacesAndErases) {
  const auto store = Open();
  store->StartPut(1, "a", Manifest("first"), {});
  store->StartPut(2, "a", Manifest("second"), {});
  store->StartPut(3, "b", Manifest("other"), {});
  store->StartErase(4, "b");
  store->StartErase(5, "never there");
  for (const auto& [cookie, result] : Wait(store.get(), 5)) EXPECT_EQ(result.code, Code::kOk) << result.message;
  EXPECT_EQ(*store->Load("a"), Manifest("second"));
  EXPECT_EQ(store->Load("b").error().code, Code::kNotFound);
  EXPECT_THAT(store->Load("b").error().message, ::testing::StartsWith("nothing is persisted of job b"));
  EXPECT_THAT(store->Jobs().value(), UnorderedElementsAre("a"));
}

TEST_F(ManifestStoreTest, LoadsWhatWasCommittedBefore) {
  const auto store = Open();
  store->StartLoad(1, "a");
  store->StartPut(2, "a", Manifest("first"), {});
  EXPECT_EQ(Wait(store.get(), 2).at(2).code, Code::kOk);
  store->StartLoad(3, "a");
  store->StartLoad(4, "b");
  store->StartPut(5, "c", Manifest("other"), {});
  const auto results = Wait(store.get(), 3);
  EXPECT_EQ(results.at(3).code, Code::kOk);
  EXPECT_EQ(results.at(3).manifest, Manifest("first"));
  EXPECT_EQ(results.at(4).code, Code::kNotFound);
  EXPECT_TRUE(results.at(4).manifest.empty());
  EXPECT_EQ(results.at(5).code, Code::kOk);
}

TEST_F(ManifestStoreTest, WhatIsDiscardedIsFreedOnAnotherThreadAndGetsNoResult) {
  const auto store = Open();
  std::promise<std::thread::id> freed;
  store->Discard(std::shared_ptr<void>(nullptr, [&](void*) { freed.set_value(std::this_thread::get_id()); }));
  EXPECT_NE(freed.get_future().get(), std::this_thread::get_id());
  store->StartPut(1, "a", Manifest("first"), {});
  store->StartLoad(2, "a");
  const auto results = Wait(store.get(), 2);
  EXPECT_EQ(results.size(), 2u);
  EXPECT_EQ(results.at(1).code, Code::kOk);
  EXPECT_EQ(results.at(2).manifest, Manifest("first"));
}

TEST_F(ManifestStoreTest, IsAllocatedToItsWholeSize) {
  const auto store = Open();
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(static_cast<uint64_t>(about.st_size), 4 * kMiB);
  EXPECT_GE(static_cast<uint64_t>(about.st_blocks) * 512, 4 * kMiB);
}

TEST_F(ManifestStoreTest, RefusesNamesNoIndexCanHold) {
  const auto store = Open();
  store->StartPut(1, std::string(1000, 'n'), Manifest("x"), {});
  store->StartPut(2, "", Manifest("x"), {});
  const auto results = Wait(store.get(), 2);
  EXPECT_EQ(results.at(1).code, Code::kInvalid);
  EXPECT_EQ(results.at(2).code, Code::kInvalid);
}

// An error would have its caller free the extents that the committed manifest names.
TEST_F(ManifestStoreTest, AnswersOkForACommitWhoseSuperblockWriteFails) {
  const auto store = Open();
  Put(store.get(), "first");
  EXPECT_EQ(store->superblock_failure(), "");
  commit_status_ = Fail(Code::kIoError, "superblock: no");
  store->StartPut(1, "a", Manifest("x"), {});
  const auto results = Wait(store.get(), 1);
  EXPECT_EQ(results.at(1).code, Code::kOk) << results.at(1).message;
  EXPECT_GT(results.at(1).commit, 0u);
  EXPECT_EQ(*store->Load("a"), Manifest("x"));
  EXPECT_EQ(store->superblock_failure(), "superblock: no");
}

TEST_F(ManifestStoreTest, TriesAFailedSuperblockWriteAgainWithoutAnotherCommit) {
  ManifestStoreOptions options = Options();
  options.superblock_retry = std::chrono::milliseconds(1);
  std::vector<uint64_t> written;
  std::promise<void> healed;
  options.on_commit = [&](const Uuid&, uint64_t commit) -> Status {
    written.push_back(commit);
    if (written.size() <= 2) return {};  // By Open, and before the first manifest.
    if (written.size() < 6) return Fail(Code::kIoError, "superblock: no");
    healed.set_value();
    return {};
  };
  auto store = LmdbManifestStore::Open(options);
  ASSERT_TRUE(store) << store.error().message;
  (*store)->StartPut(1, "a", Manifest("x"), {});
  const uint64_t commit = Wait(store->get(), 1).at(1).commit;
  healed.get_future().wait();
  store->reset();
  ASSERT_EQ(written.size(), 6u) << "retries go on after a success";
  EXPECT_LT(written[1], commit) << "a commit that fails would look like a newer index";
  for (size_t i = 2; i < written.size(); ++i) EXPECT_EQ(written[i], commit);
}

TEST_F(ManifestStoreTest, FlushesTheDevicesBeforeTheManifestCounts) {
  ManifestStoreOptions options = Options();
  std::vector<std::string> steps;
  LmdbManifestStore* raw = nullptr;
  const auto note = [&](const std::string& step) {
    if (raw != nullptr) steps.push_back(step + (raw->Load("a") ? ": committed" : ": not yet"));
    return Status{};
  };
  options.flush_devices = [&] { return note("flush"); };
  options.on_commit = [&](const Uuid&, uint64_t) { return note("superblocks"); };
  const auto store = LmdbManifestStore::Open(options);
  ASSERT_TRUE(store) << store.error().message;
  raw = store->get();
  raw->StartPut(1, "a", Manifest("x"), {});
  (void)Wait(raw, 1);
  raw->StartErase(2, "a");
  (void)Wait(raw, 1);
  EXPECT_THAT(steps,
              ElementsAre("flush: not yet", "superblocks: not yet", "superblocks: committed", "superblocks: not yet"));
}

TEST_F(ManifestStoreTest, RefusesAManifestBeyondItsQueueButNoErase) {
  ManifestStoreOptions options = Options();
  std::promise<void> flushing;
  std::promise<void> go_on;
  options.flush_devices = [&]() -> Status {
    flushing.set_value();
    go_on.get_future().wait();
    return {};
  };
  const auto store = LmdbManifestStore::Open(options);
  ASSERT_TRUE(store) << store.error().message;
  (*store)->StartPut(1, "a", Manifest("x"), {});
  flushing.get_future().wait();
  constexpr uint64_t kLast = kManifestRequestsMax + 1;
  for (uint64_t i = 2; i <= kLast; ++i) (*store)->StartErase(i, "a");
  (*store)->StartPut(kLast + 1, "b", Manifest("y"), {});
  (*store)->StartErase(kLast + 2, "a");
  EXPECT_EQ(Wait(store->get(), 1).at(kLast + 1).code, Code::kNoMemory);
  go_on.set_value();
  const auto results = Wait(store->get(), kLast + 1);
  for (const auto& [cookie, result] : results) EXPECT_EQ(result.code, Code::kOk) << cookie << ": " << result.message;
  EXPECT_EQ((*store)->Load("a").error().code, Code::kNotFound);
}

TEST_F(ManifestStoreTest, CommitsNoManifestAfterAFlushWasLost) {
  ManifestStoreOptions options = Options();
  int flushes = 0;
  options.flush_devices = [&]() -> Status {
    if (++flushes == 1) return Fail(Code::kIoError, "flushing /dev/first: no");
    return {};  // As the kernel does: it reports the loss once.
  };
  const auto store = LmdbManifestStore::Open(options);
  ASSERT_TRUE(store) << store.error().message;
  for (uint64_t i = 1; i <= 2; ++i) {
    (*store)->StartPut(i, "a", Manifest("x"), {});
    const ManifestResult result = Wait(store->get(), 1).at(i);
    EXPECT_EQ(result.code, Code::kIoError);
    EXPECT_THAT(result.message, HasSubstr("/dev/first"));
  }
  EXPECT_EQ((*store)->Load("a").error().code, Code::kNotFound);
  EXPECT_EQ((*store)->failure(),
            "a device lost a flush (flushing /dev/first: no): nothing can be persisted until tierd is restarted");
  (*store)->StartErase(3, "a");
  EXPECT_EQ(Wait(store->get(), 1).at(3).code, Code::kOk) << "erasing names no extent";
}

TEST_F(ManifestStoreTest, CommitsNoManifestOnADeviceThatTheNextStartWouldNotFind) {
  ManifestStoreOptions options = Options();
  options.index_check = std::chrono::milliseconds(1);
  std::atomic<bool> there{true};
  options.misplaced = [&](uint16_t device) {
    return there || device != 0 ? std::string() : std::string("tier.ssd was deleted");
  };
  const auto opened = LmdbManifestStore::Open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  LmdbManifestStore* const store = opened->get();
  const auto list = [&] {
    ExtentListWriter writer(1, store->device_numbers());
    writer.Add({.run = {.block = 1, .page = 0, .pages = 1}, .device = 0});
    return std::move(writer).Take();
  };
  store->StartPut(1, "a", Manifest("x"), list());
  EXPECT_EQ(Wait(store, 1).at(1).code, Code::kOk);
  there = false;
  store->StartPut(2, "a", Manifest("y"), list());
  store->StartPut(3, "elsewhere", Manifest("z"), {});
  const auto results = Wait(store, 2);
  EXPECT_EQ(results.at(2).code, Code::kIoError);
  EXPECT_FALSE(results.at(2).unknown);
  EXPECT_EQ(results.at(2).message, "tier.ssd was deleted");
  EXPECT_EQ(*store->Load("a"), Manifest("x")) << "the last one stays";
  EXPECT_EQ(results.at(3).code, Code::kOk) << "it names nothing there";
  EXPECT_EQ(store->failure(), "not all can be persisted: tier.ssd was deleted");
  there = true;
  while (!store->failure().empty()) std::this_thread::yield();  // Without a request.
  there = false;
  while (store->failure().empty()) std::this_thread::yield();
}

TEST_F(ManifestStoreTest, CommitsNothingToAnIndexThatTheNextStartWouldNotFind) {
  const auto store = Open();
  Put(store.get(), "a");
  ASSERT_TRUE(testing::RunCommand("mv " + path_ + " " + path_ + ".away"));
  store->StartPut(1, "b", Manifest("x"), {});
  const ManifestResult refused = Wait(store.get(), 1).at(1);
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_THAT(refused.message, HasSubstr("was moved, and the next start would not find what is on it: put it back"));
  ASSERT_TRUE(testing::RunCommand("mv " + path_ + ".away " + path_));
  Put(store.get(), "b");
}

TEST_F(ManifestStoreTest, IsUsedByOneDaemonAtATime) {
  const auto store = Open();
  const auto second = LmdbManifestStore::Open(Options());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
}

TEST_F(ManifestStoreTest, NumbersItsCommitsUpwardsAcrossReopening) {
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto store = Open();
    store->StartPut(1, "a", Manifest("x"), {});
    const uint64_t commit = Wait(store.get(), 1).at(1).commit;
    EXPECT_GT(commit, last);
    EXPECT_EQ(device_.index_commit, commit);
    last = commit;
  }
}

TEST_F(ManifestStoreTest, ADeviceNamesTheIndexWhileAnythingIsPersisted) {
  const auto store = Open();
  EXPECT_TRUE(store->is_new());
  EXPECT_EQ(device_.index_uuid, Uuid{}) << "nothing is";
  Put(store.get(), "a");
  Put(store.get(), "b");
  EXPECT_EQ(device_.index_uuid, store->uuid());
  Erase(store.get(), "a");
  EXPECT_EQ(device_.index_uuid, store->uuid());
  Erase(store.get(), "b");
  EXPECT_EQ(device_.index_uuid, Uuid{});
  EXPECT_EQ(device_.index_commit, 0u);
  Put(store.get(), "c");
  EXPECT_EQ(device_.index_uuid, store->uuid());
}

// As an earlier tierd left it, which named the index from the first start on.
TEST_F(ManifestStoreTest, AStartFreesADeviceOfAnIndexThatNamesNothing) {
  Uuid index{};
  {
    const auto store = Open();
    index = store->uuid();
  }
  device_.index_uuid = index;
  device_.index_commit = 1;
  EXPECT_FALSE(Open()->is_new());
  EXPECT_EQ(device_.index_uuid, Uuid{});
}

TEST_F(ManifestStoreTest, ALostIndexThatNamedNothingIsMadeAgain) {
  Put(Open().get(), "a");
  Erase(Open().get(), "a");
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->is_new());
  EXPECT_THAT(store->Jobs().value(), ::testing::IsEmpty());
  Put(store.get(), "b");
  EXPECT_EQ(device_.index_uuid, store->uuid());
}

// Else the device would be taken for an empty one, were the index lost.
TEST_F(ManifestStoreTest, TheFirstManifestIsRefusedWhereASuperblockCannotNameTheIndex) {
  const auto store = Open();
  commit_status_ = Fail(Code::kIoError, "superblock: no");
  store->StartPut(1, "a", Manifest("x"), {});
  const ManifestResult refused = Wait(store.get(), 1).at(1);
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_FALSE(refused.unknown);
  EXPECT_THAT(refused.message, HasSubstr("superblock: no"));
  EXPECT_EQ(store->Load("a").error().code, Code::kNotFound);
  EXPECT_EQ(store->failure(), refused.message);
  commit_status_ = {};
  Put(store.get(), "a");
  EXPECT_EQ(store->failure(), "");
}

// No job comes that persists: without a try of its own the store would be unready until one does.
TEST_F(ManifestStoreTest, FindsByItselfThatASuperblockCanNameTheIndexAgain) {
  std::atomic<bool> refuses{false};
  std::atomic<int> refusals{0};
  ManifestStoreOptions options = Options();
  options.index_check = std::chrono::milliseconds(1);
  options.on_commit = [&](const Uuid& index, uint64_t commit) -> Status {
    if (refuses && ++refusals > 0) return Fail(Code::kIoError, "superblock: no");
    device_.index_uuid = index;
    device_.index_commit = commit;
    return {};
  };
  auto store = LmdbManifestStore::Open(options);
  ASSERT_TRUE(store) << store.error().message;
  refuses = true;
  (*store)->StartPut(1, "a", Manifest("x"), {});
  const ManifestResult refused = Wait(store->get(), 1).at(1);
  EXPECT_EQ(refused.code, Code::kIoError);
  while (refusals < 3) std::this_thread::yield();
  EXPECT_EQ((*store)->failure(), refused.message) << "tried, and not ready yet";
  refuses = false;
  while (!(*store)->failure().empty()) std::this_thread::yield();
  EXPECT_EQ((*store)->superblock_failure(), "");
  store->reset();
  EXPECT_EQ(device_.index_uuid, Uuid{}) << "nothing is persisted: the loss of the index costs nothing";
  Put(Open().get(), "a");
}

TEST_F(ManifestStoreTest, NoTryOfItsOwnTakesBackALostFlush) {
  std::atomic<int> looks{0};
  ManifestStoreOptions options = Options();
  options.index_check = std::chrono::milliseconds(1);
  options.flush_devices = [] { return Fail(Code::kIoError, "flushing /dev/first: no"); };
  options.space = [&](const std::string&) -> Result<FileSystemSpace> {
    ++looks;
    return FileSystemSpace{.total = kGiB, .available = kGiB};
  };
  const auto store = LmdbManifestStore::Open(options);
  ASSERT_TRUE(store) << store.error().message;
  (*store)->StartPut(1, "a", Manifest("x"), {});
  const ManifestResult refused = Wait(store->get(), 1).at(1);
  for (const int before = looks; looks < before + 3;) std::this_thread::yield();
  EXPECT_EQ((*store)->failure(), refused.message);
}

// It names tensors on a device where nothing was persisted any more, and others were written since.
TEST_F(ManifestStoreTest, RefusesAnOldCopyThoughTheDeviceNamesNoIndexAnyMore) {
  {
    const auto store = Open();
    ExtentListWriter list(1, store->device_numbers());
    list.Add({.run = {.block = 1, .page = 0, .pages = 1}, .device = 0});
    store->StartPut(1, "a", Manifest("x"), std::move(list).Take());
    EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  }
  ASSERT_TRUE(testing::RunCommand("cp " + path_ + " " + path_ + ".old"));
  Erase(Open().get(), "a");
  ASSERT_EQ(device_.index_uuid, Uuid{});
  ASSERT_TRUE(testing::RunCommand("mv " + path_ + ".old " + path_));
  const auto store = LmdbManifestStore::Open(Options());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kCorrupt);
  EXPECT_THAT(store.error().message, ::testing::AllOf(HasSubstr("old copy"), HasSubstr("/dev/first")));
}

TEST_F(ManifestStoreTest, ReportsALostIndexAndDoesNotStartEmpty) {
  Put(Open().get(), "a");
  ASSERT_NE(device_.index_uuid, Uuid{});
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  const auto store = LmdbManifestStore::Open(Options());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kCorrupt);
  EXPECT_THAT(store.error().message, HasSubstr("/dev/first"));
}

TEST_F(ManifestStoreTest, RefusesAnOldCopyOfItself) {
  (void)Open();
  ASSERT_TRUE(testing::RunCommand("cp " + path_ + " " + path_ + ".old"));
  {
    const auto store = Open();
    store->StartPut(1, "a", Manifest("x"), {});
    (void)Wait(store.get(), 1);
  }
  ASSERT_TRUE(testing::RunCommand("mv " + path_ + ".old " + path_));
  device_.index_commit += 1;  // Opening the copy once more must not be what makes it current.
  const auto store = LmdbManifestStore::Open(Options());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kCorrupt);
  EXPECT_THAT(store.error().message, HasSubstr("old copy"));
}

TEST_F(ManifestStoreTest, RefusesADeviceOfAnotherIndex) {
  device_.index_uuid = DrawUuid();
  device_.index_commit = 12;
  const auto store = LmdbManifestStore::Open(Options());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kCorrupt);
}

TEST_F(ManifestStoreTest, RefusesAFileThatIsNoIndex) {
  ASSERT_TRUE(testing::RunCommand("head -c 100000 /dev/urandom > " + path_));
  const auto store = LmdbManifestStore::Open(Options());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kCorrupt);
}

TEST_F(ManifestStoreTest, AnswersNotFoundInADirectoryThatIsNotThere) {
  ManifestStoreOptions options = Options();
  options.path = directory_.File("none/index.mdb");
  EXPECT_EQ(LmdbManifestStore::Open(options).error().code, Code::kNotFound);
}

// A child puts numbered manifests of two jobs, each pair started together, and is killed.
TEST_F(ManifestStoreTest, HoldsTheLastAnsweredCommitAfterItsProcessWasKilled) {
  int said[2];
  ASSERT_EQ(::pipe(said), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = Open();
    for (uint64_t i = 1; store; ++i) {
      store->StartPut(i, "job", Manifest(std::to_string(i)), {});
      if (Wait(store.get(), 1).at(i).code != Code::kOk) ::_exit(1);
      if (::write(said[1], &i, sizeof i) != sizeof i) ::_exit(1);
    }
    ::_exit(2);
  }
  ::close(said[1]);
  uint64_t last = 0;
  while (last < 30 && ::read(said[0], &last, sizeof last) == sizeof last) {
  }
  ::kill(child, SIGKILL);
  for (uint64_t more = 0; ::read(said[0], &more, sizeof more) == sizeof more;) last = more;
  ::waitpid(child, nullptr, 0);
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  const auto manifest = store->Load("job");
  ASSERT_TRUE(manifest) << manifest.error().message;
  const uint64_t found = std::stoull(std::string(reinterpret_cast<const char*>(manifest->data()), manifest->size()));
  EXPECT_GE(found, last);
  EXPECT_LE(found, last + 1);
}

}  // namespace
}  // namespace tier::storage
