// The file of the index when its disk is full, cut short, or unreadable, or fails in the middle of a commit.
#include "daemon/storage/index_file.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/storage/file_mapping.h"
#include "tests/unit/storage/manifest_store_fixture.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using IndexFileTest = ManifestStoreTest;

TEST_F(IndexFileTest, GrowsForAManifestLargerThanItsMap) {
  const std::vector<std::byte> large(9 * kMiB, std::byte{7});
  {
    const auto store = Open();
    store->StartPut(1, "small", Manifest("fits"), {});
    store->StartPut(2, "large", large, Manifest("its list"));
    for (const auto& [cookie, result] : Wait(store.get(), 2)) EXPECT_EQ(result.code, Code::kOk) << result.message;
    for (uint64_t i = 3; i < 8; ++i) {
      store->StartPut(i, "large", large, {});
      EXPECT_EQ(Wait(store.get(), 1).at(i).code, Code::kOk);
    }
    EXPECT_EQ(*store->Load("large"), large);
  }
  const auto store = Open();
  EXPECT_EQ(*store->Load("large"), large);
  EXPECT_EQ(*store->Load("small"), Manifest("fits"));
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_LE(about.st_size, 64 * static_cast<off_t>(kMiB)) << "pages of replaced manifests are used again";
  EXPECT_GE(static_cast<uint64_t>(about.st_blocks) * 512, static_cast<uint64_t>(about.st_size));
}

// Makes an index as an earlier tierd did, of 4 MiB, with so many manifests of a page each. Where they do not fit it
// makes none, and answers how many may.
int MakeIndexOfThreeTables(const std::string& path, int jobs) {
  MDB_env* environment = nullptr;
  EXPECT_EQ(mdb_env_create(&environment), 0);
  EXPECT_EQ(mdb_env_set_mapsize(environment, 4 * kMiB), 0);
  EXPECT_EQ(mdb_env_set_maxdbs(environment, 3), 0);
  EXPECT_EQ(mdb_env_open(environment, path.c_str(), MDB_NOSUBDIR | MDB_NOTLS | MDB_NOLOCK | MDB_NOSYNC, 0600), 0);
  MDB_txn* transaction = nullptr;
  EXPECT_EQ(mdb_txn_begin(environment, nullptr, 0, &transaction), 0);
  MDB_dbi table = 0;
  for (const char* name : {"binding", "extents", "manifests"}) {
    EXPECT_EQ(mdb_dbi_open(transaction, name, MDB_CREATE, &table), 0);
  }
  std::vector<char> manifest(3000);
  int error = 0;
  int put = 0;
  while (put < jobs && error == 0) {
    std::string job = "1000/" + std::to_string(put);
    MDB_val key{job.size(), job.data()};
    MDB_val value{manifest.size(), manifest.data()};
    error = mdb_put(transaction, table, &key, &value, 0);
    if (error == 0) ++put;
  }
  if (error == 0) {
    error = mdb_txn_commit(transaction);
    if (error != 0) --put;
  } else {
    mdb_txn_abort(transaction);
  }
  mdb_env_close(environment);
  EXPECT_TRUE(error == 0 || error == MDB_MAP_FULL) << mdb_strerror(error);
  return put;
}

TEST_F(IndexFileTest, GrowsForATableThatAFullIndexOfAnEarlierTierdLacks) {
  int jobs = 1000000;
  for (int fit = 0; (fit = MakeIndexOfThreeTables(path_, jobs)) != jobs;) jobs = fit;
  ASSERT_GT(jobs, 900);
  ManifestStoreOptions options = Options();
  options.space = [](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = kGiB, .available = kIndexDiskKept};
  };
  const auto refused = LmdbManifestStore::Open(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_THAT(refused.error().message, HasSubstr("the index " + path_ + " of 4 MiB is full"));
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->Jobs().value().size(), static_cast<size_t>(jobs));
  store->StartQuarantine(0, {{1, 1, 1}});
  store->StartPut(1, "1000/new", Manifest("fits"), {});
  EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
}

Result<std::unique_ptr<IndexFile>> Look(const std::string& path) {
  return IndexFile::Open({.path = path, .read_only = true});
}

TEST_F(IndexFileTest, IsReadBesideItsDaemonAndStaysAsItIs) {
  const auto store = Open();
  store->StartPut(1, "job", Manifest("m"), Manifest("l"));
  ASSERT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  struct stat before{};
  ASSERT_EQ(::stat(path_.c_str(), &before), 0);
  {
    const auto index = Look(path_);
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_THAT((*index)->Keys(IndexTable::kManifests).value(), UnorderedElementsAre("job"));
    EXPECT_EQ((*index)->Get(IndexTable::kExtents, "job").value(), Manifest("l"));
    EXPECT_EQ((*index)->Get(IndexTable::kExtents, "other").error().code, Code::kNotFound);
  }
  struct stat after{};
  ASSERT_EQ(::stat(path_.c_str(), &after), 0);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_EQ(after.st_size, before.st_size);
  store->StartPut(2, "later", Manifest("m"), {});
  EXPECT_EQ(Wait(store.get(), 1).at(2).code, Code::kOk) << "its daemon goes on";
}

// What it found may have been used for something else by then.
TEST_F(IndexFileTest, SaysThatItWasChangedWhileItWasRead) {
  const auto store = Open();
  const auto index = Look(path_);
  ASSERT_TRUE(index);
  store->StartPut(1, "job", Manifest("m"), {});
  ASSERT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  EXPECT_EQ((*index)->Get(IndexTable::kManifests, "job").error().code, Code::kAlreadyExists);
  const auto names = (*index)->Keys(IndexTable::kManifests);
  ASSERT_FALSE(names);
  EXPECT_EQ(names.error().code, Code::kAlreadyExists);
  EXPECT_THAT(names.error().message, HasSubstr("try again"));
}

TEST_F(IndexFileTest, IsReadThoughItLacksATable) {
  ASSERT_EQ(MakeIndexOfThreeTables(path_, 1), 1);
  const auto index = Look(path_);
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_THAT((*index)->Keys(IndexTable::kManifests).value(), UnorderedElementsAre("1000/0"));
  EXPECT_THAT((*index)->Keys(IndexTable::kQuarantine).value(), ::testing::IsEmpty());
  EXPECT_EQ((*index)->Get(IndexTable::kQuarantine, "any").error().code, Code::kNotFound);
}

TEST_F(IndexFileTest, WhatIsNoIndexIsNotReadAndStaysAsItIs) {
  EXPECT_EQ(Look(path_).error().code, Code::kNotFound);
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
  std::ofstream(path_) << std::string(8192, 'x');
  EXPECT_FALSE(Look(path_));
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_size, 8192);
}

TEST_F(IndexFileTest, AnswersNoSpaceForAManifestThatDoesNotFitAndKeepsTheOthers) {
  ManifestStoreOptions options = Options();
  options.space = [](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = kGiB, .available = kIndexDiskKept + 2 * kMiB};
  };
  auto opened = LmdbManifestStore::Open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  const std::unique_ptr<LmdbManifestStore>& store = *opened;
  store->StartPut(1, "small", Manifest("fits"), {});
  store->StartPut(2, "large", std::vector<std::byte>(8 * kMiB), {});
  store->StartPut(3, "small too", Manifest("fits"), {});
  const auto results = Wait(store.get(), 3);
  EXPECT_EQ(results.at(1).code, Code::kOk) << results.at(1).message;
  EXPECT_EQ(results.at(2).code, Code::kNoSpace) << results.at(2).message;
  EXPECT_THAT(results.at(2).message, HasSubstr("the index " + path_ + " of 4 MiB is full"));
  EXPECT_THAT(results.at(2).message, HasSubstr("its disk has 66 MiB free"));
  EXPECT_EQ(results.at(3).code, Code::kOk) << results.at(3).message;
  EXPECT_THAT(store->Jobs().value(), UnorderedElementsAre("small", "small too"));
}

// What is left of the file holds the newest commit, or a part of its tables, or nothing.
TEST_F(IndexFileTest, AnswersIoErrorForAFileThatWasCutShortAndStaysAlive) {
  for (const off_t size : {off_t{0}, off_t{8192}, off_t{2 * kMiB}}) {
    SCOPED_TRACE(size);
    {
      const auto store = Open();
      store->StartPut(1, "a", Manifest("first"), {});
      EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
      ASSERT_TRUE(testing::RunCommand("cp " + path_ + " " + path_ + ".whole"));
      ASSERT_EQ(::truncate(path_.c_str(), size), 0);
      store->StartPut(2, "a", Manifest("second"), {});
      store->StartLoad(3, "a");
      store->StartErase(4, "a");
      for (const auto& [cookie, result] : Wait(store.get(), 3)) {
        EXPECT_EQ(result.code, Code::kIoError) << cookie;
        EXPECT_THAT(result.message, HasSubstr(path_));
        EXPECT_THAT(result.message, HasSubstr("was cut short to"));
        EXPECT_THAT(result.message, HasSubstr("restart tierd"));
      }
      EXPECT_EQ(store->Jobs().error().code, Code::kIoError);
      EXPECT_THAT(store->failure(),
                  AllOf(HasSubstr("nothing can be persisted or resumed until tierd is restarted"),
                        HasSubstr(path_ + " was cut short to"), Not(HasSubstr("save them elsewhere"))));
      ASSERT_EQ(::truncate(path_.c_str(), 4 * kMiB), 0);
      store->StartPut(5, "a", Manifest("third"), {});
      EXPECT_EQ(Wait(store.get(), 1).at(5).code, Code::kIoError) << "trusted again";
    }
    ASSERT_TRUE(testing::RunCommand("mv " + path_ + ".whole " + path_));
    const auto store = Open();
    EXPECT_EQ(*store->Load("a"), Manifest("first"));
  }
}

// Nobody persists, and nothing is resumed: without a look of its own the store would seem well.
TEST_F(IndexFileTest, FindsByItselfThatItWasCutShort) {
  ManifestStoreOptions options = Options();
  options.index_check = std::chrono::milliseconds(1);
  const auto opened = LmdbManifestStore::Open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->failure(), "");
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  while ((*opened)->failure().empty()) std::this_thread::yield();
  EXPECT_THAT((*opened)->failure(), HasSubstr(path_ + " was cut short to 0 of"));
}

TEST_F(IndexFileTest, FindsByItselfThatItsFileSystemTakesNoWritesAndThatItDoesAgain) {
  std::atomic<bool> read_only{false};
  ManifestStoreOptions options = Options();
  options.index_check = std::chrono::milliseconds(1);
  options.space = [&](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = kGiB, .available = kGiB, .read_only = read_only};
  };
  const auto opened = LmdbManifestStore::Open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->failure(), "");
  read_only = true;
  while ((*opened)->failure().empty()) std::this_thread::yield();
  EXPECT_EQ((*opened)->failure(), "nothing can be persisted: the file system of the index " + path_ + " is read-only");
  read_only = false;
  while (!(*opened)->failure().empty()) std::this_thread::yield();
  Put(opened->get(), "a");
}

// A disk that cannot read a page of the map raises SIGBUS just as a page without access raises SIGSEGV.
class UnreadableIndexTest : public IndexFileTest {
 protected:
  void TakeMapAway() const {
    const proto::FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    const auto map = FindMapping(file.get(), 4 * kMiB);
    ASSERT_TRUE(map) << map.error().message;
    ASSERT_EQ(::mprotect(const_cast<std::byte*>(map->data()), map->size(), PROT_NONE), 0);
  }
  static void ExpectGivenUp(const Error& error) {
    EXPECT_EQ(error.code, Code::kIoError);
    EXPECT_THAT(error.message, HasSubstr("a part of the file cannot be read"));
    EXPECT_THAT(error.message, HasSubstr("restart tierd"));
  }
};

TEST_F(UnreadableIndexTest, AnswersIoErrorToEveryChange) {
  const auto store = Open();
  TakeMapAway();
  for (uint64_t i = 1; i <= 2; ++i) {
    store->StartPut(i, "a", Manifest("first"), {});
    const ManifestResult result = Wait(store.get(), 1).at(i);
    ExpectGivenUp({result.code, result.message});
  }
}

TEST_F(UnreadableIndexTest, IsGuardedWhereItLiesAfterItHasGrown) {
  const auto store = Open();
  store->StartPut(1, "a", std::vector<std::byte>(9 * kMiB), {});
  EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  TakeMapAway();
  ExpectGivenUp(store->Load("a").error());
}

TEST_F(UnreadableIndexTest, AnswersIoErrorToEveryLoad) {
  const auto store = Open();
  store->StartPut(1, "a", Manifest("first"), {});
  (void)Wait(store.get(), 1);
  TakeMapAway();
  ExpectGivenUp(store->Load("a").error());
  ExpectGivenUp(store->Load("a").error());
}

TEST_F(UnreadableIndexTest, AnswersIoErrorToAListOfJobs) {
  const auto store = Open();
  TakeMapAway();
  ExpectGivenUp(store->Jobs().error());
}

TEST_F(IndexFileTest, ACommitThatFailsHasAnUnknownOutcomeAndRefusesEverythingAfter) {
  {
    const auto store = Open();
    store->StartPut(1, "a", Manifest("first"), {});
    (void)Wait(store.get(), 1);
    std::map<uint64_t, ManifestResult> results;
    {
      const WriteLimit limit(8192);  // The first two pages make a commit count.
      store->StartPut(2, "a", Manifest("second"), {});
      results = Wait(store.get(), 1);
    }
    EXPECT_EQ(results.at(2).code, Code::kIoError);
    EXPECT_TRUE(results.at(2).unknown);
    EXPECT_THAT(results.at(2).message, HasSubstr("unknown"));
    EXPECT_THAT(results.at(2).message, HasSubstr("File too large"));
    store->StartPut(3, "b", Manifest("third"), {});
    store->StartErase(4, "a");
    store->StartLoad(5, "a");
    for (const auto& [cookie, later] : Wait(store.get(), 3)) {
      EXPECT_EQ(later.code, Code::kIoError) << cookie;
      EXPECT_FALSE(later.unknown) << cookie;
      EXPECT_EQ(later.message, results.at(2).message);
    }
    EXPECT_THAT(store->failure(), AllOf(HasSubstr("until tierd is restarted: it is unknown whether"),
                                        HasSubstr("File too large"), Not(HasSubstr("save them elsewhere"))));
  }
  const auto store = Open();
  const auto found = store->Load("a");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(*found == Manifest("first") || *found == Manifest("second"));
  EXPECT_EQ(store->Load("b").error().code, Code::kNotFound);
}

// A page of a disk comes back as zeros, or as something else: LMDB keeps no checksum, and would abort or follow it.
TEST_F(IndexFileTest, ADamagedPageIsAnErrorAtWorst) {
  {
    const auto store = Open();
    for (uint64_t i = 1; i <= 40; ++i) {
      store->StartPut(i, "1000/job-" + std::to_string(i), std::vector<std::byte>(i * 150), std::vector<std::byte>(i));
    }
    Wait(store.get(), 40);
    for (uint64_t i = 1; i <= 20; ++i) {
      store->StartErase(100 + i, "1000/job-" + std::to_string(2 * i));
      Wait(store.get(), 1);
    }
  }
  const ManifestDevice bound = device_;
  std::ifstream file(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  const size_t used = AlignUp(whole.find_last_not_of('\0') + 1, kPageSize);
  size_t refused = 0;
  for (size_t at = 0; at < used; at += kPageSize) {
    for (const char other : {'\0', '\x55'}) {
      device_ = bound;
      std::string damaged = whole;
      damaged.replace(at, kPageSize, kPageSize, other);
      std::ofstream(path_, std::ios::binary | std::ios::trunc) << damaged;
      auto store = LmdbManifestStore::Open(Options());
      refused += store ? 0 : 1;
      if (!store) continue;
      const auto jobs = (*store)->Jobs();
      for (const std::string& job : jobs.value_or(std::vector<std::string>{})) {
        (void)(*store)->Load(job);  // Whole, or an error.
        (void)(*store)->LoadExtents(job);
      }
      (*store)->StartPut(1, "1000/new", std::vector<std::byte>(5000), std::vector<std::byte>(100));
      (*store)->StartErase(2, "1000/job-1");
      Wait(store->get(), 2);
    }
  }
  EXPECT_NE(refused, 0u);
}

TEST_F(IndexFileTest, HasNoFileOfLocksThatCouldBeCutShort) {
  ASSERT_TRUE(testing::RunCommand("touch " + path_ + "-lock"));
  const auto store = Open();
  EXPECT_NE(::access((path_ + "-lock").c_str(), F_OK), 0);
}

TEST_F(IndexFileTest, AFailedStartLeavesNoFileThatItMade) {
  device_.index_uuid = DrawUuid();  // Of another index.
  device_.index_commit = 12;
  EXPECT_EQ(LmdbManifestStore::Open(Options()).error().code, Code::kCorrupt);
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
  device_.index_uuid = {};
  device_.index_commit = 0;
  {
    const WriteLimit limit(kMiB);  // The disk ends in the middle of the file.
    EXPECT_EQ(LmdbManifestStore::Open(Options()).error().code, Code::kNoSpace);
  }
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(IndexFileTest, AFailedStartLeavesAFileThatWasThereAsItWas) {
  (void)Open();
  ManifestStoreOptions options = Options();
  options.map_size = 16 * kMiB;
  {
    const WriteLimit limit(6 * kMiB);
    EXPECT_EQ(LmdbManifestStore::Open(options).error().code, Code::kNoSpace);
  }
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(static_cast<uint64_t>(about.st_size), 4 * kMiB);
  EXPECT_NE(Open(), nullptr);
}

}  // namespace
}  // namespace tier::storage
