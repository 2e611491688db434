// The ram index: what a commit keeps, what a full map does, and that kill -9 loses no committed turn.
#include "daemon/storage/lmdb_index.h"

#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/storage/index_transaction.h"
#include "proto/index_record.h"
#include "tests/support/storage/fake_index.h"

namespace tier::storage {
namespace {

using ::testing::HasSubstr;
using Contents = std::map<RecordKey, std::string>;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

Contents ContentsOf(const Index& index) {
  Contents contents;
  index.Scan([&](const RecordKey& key, std::span<const std::byte> value) {
    contents[key] = std::string(reinterpret_cast<const char*>(value.data()), value.size());
  });
  return contents;
}

std::unique_ptr<LmdbIndex> Make(uint64_t map_size = 64 * kMiB) {
  auto index = LmdbIndex::Open({.map_size = map_size});
  EXPECT_TRUE(index) << index.error().message;
  return std::move(*index);
}

TEST(LmdbIndex, ShowsWhatWasCommittedAndNothingStaged) {
  const auto index = Make();
  index->Put({1, 2, 3}, Bytes("abc"));
  EXPECT_TRUE(ContentsOf(*index).empty());
  ASSERT_TRUE(index->Commit());
  EXPECT_EQ(ContentsOf(*index), (Contents{{{1, 2, 3}, "abc"}}));
}

TEST(LmdbIndex, CommitsAnEmptyTurn) { EXPECT_TRUE(Make()->Commit()); }

TEST(LmdbIndex, LetsTheLastOperationOnAKeyWin) {
  const auto index = Make();
  index->Put({1, 0, 1}, Bytes("old"));
  index->Put({1, 0, 1}, Bytes("new"));
  index->Put({1, 0, 2}, Bytes("gone"));
  index->Erase({1, 0, 2});
  index->Erase({1, 0, 3});
  index->Put({1, 0, 3}, Bytes("back"));
  ASSERT_TRUE(index->Commit());
  EXPECT_EQ(ContentsOf(*index), (Contents{{{1, 0, 1}, "new"}, {{1, 0, 3}, "back"}}));
}

TEST(LmdbIndex, ErasesWhatIsNotThereWithoutComplaint) {
  const auto index = Make();
  index->Erase({9, 9, 9});
  EXPECT_TRUE(index->Commit());
}

TEST(LmdbIndex, ScansInTheOrderOfKeysWhateverTheirBytes) {
  const auto index = Make();
  const uint64_t values[] = {256, 1, UINT64_MAX, 255, 65536, 0};
  for (const uint64_t value : values) index->Put({value, 0, value}, Bytes("v"));
  ASSERT_TRUE(index->Commit());
  std::vector<uint64_t> seen;
  index->Scan([&](const RecordKey& key, std::span<const std::byte>) { seen.push_back(key.job); });
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 255, 256, 65536, UINT64_MAX));
}

TEST(LmdbIndex, KeepsLargeValuesWhole) {
  const auto index = Make();
  const std::string large(100'000, 'q');
  index->Put({1, 0, 1}, Bytes(large));
  ASSERT_TRUE(index->Commit());
  EXPECT_EQ(ContentsOf(*index).at({1, 0, 1}), large);
}

TEST(LmdbIndex, AnswersNoMemoryWhenFullAndRecoversAfterErases) {
  const auto index = Make(2 * kMiB);
  const std::string value(1000, 'v');
  uint64_t tensor = 0;
  Status status;
  while (status) {
    for (int i = 0; i < 100; ++i) index->Put({1, 0, tensor++}, Bytes(value));
    status = index->Commit();
    ASSERT_LT(tensor, 10'000u) << "2 MiB never became full";
  }
  EXPECT_EQ(status.error().code, Code::kNoMemory);
  EXPECT_THAT(status.error().message, HasSubstr("100 changes wait"));
  const size_t held = ContentsOf(*index).size();
  EXPECT_EQ(held, tensor - 100) << "a refused commit changed something";
  // Erasing is possible even now, and what waited then fits.
  for (uint64_t i = 0; i < 300; ++i) index->Erase({1, 0, i});
  status = index->Commit();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(ContentsOf(*index).size(), tensor - 300);
}

// Else some records of a tensor would be its own, and others those of the one it replaces.
TEST(LmdbIndex, IsNotFullForWhomItSaidThatThereIsRoom) {
  const auto index = Make(8 * kMiB);
  constexpr uint32_t kChanges = 50;
  const std::string value(sizeof(proto::IndexTensorRecord) + 16 * sizeof(proto::IndexPieceRecord), 'x');
  uint64_t key = 1;
  uint64_t commits = 0;
  for (; index->HasRoom(kChanges); ++commits) {
    for (uint32_t i = 0; i < kChanges; ++i) {
      key = key * 6364136223846793005 + 1442695040888963407;
      index->Put({1, 0, key}, Bytes(value));
    }
    ASSERT_TRUE(index->Commit()) << "after " << commits;
  }
  EXPECT_GT(index->used_bytes(), 6 * kMiB) << "nor says no much too early";
  EXPECT_TRUE(index->HasRoom(1));
  for (uint32_t i = 0; i < 500; ++i) index->Put({2, 0, i}, Bytes(value));
  EXPECT_FALSE(index->HasRoom(1)) << "what is staged takes room too";
}

TEST(LmdbIndex, ErasesWhatIsReplacedThoughWhatReplacesItDoesNotFit) {
  const auto run = [](Index* index) {
    for (uint32_t record = 0; record < 3; ++record) index->Put({1, 0, 1, record}, Bytes("old"));
    index->Put({1, 0, 2}, Bytes("other"));
    ASSERT_TRUE(index->Commit());
    for (uint32_t record = 0; record < 3; ++record) index->Erase({1, 0, 1, record});
    index->Put({1, 0, 1, 0}, Bytes(std::string(1'900'000, 'n')));
    index->Put({1, 0, 2}, Bytes(std::string(1'900'000, 'o')));
    const Status full = index->Commit();
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code, Code::kNoMemory);
    EXPECT_EQ(ContentsOf(*index), (Contents{{{1, 0, 2}, "other"}})) << "what is only changed stays as it was";
    index->Put({1, 0, 1, 0}, Bytes("new"));
    index->Put({1, 0, 2}, Bytes("changed"));
    ASSERT_TRUE(index->Commit());
    EXPECT_EQ(ContentsOf(*index), (Contents{{{1, 0, 1}, "new"}, {{1, 0, 2}, "changed"}}));
  };
  run(Make(2 * kMiB).get());
  testing::FakeIndex fake;
  fake.SetCapacity(2'000'000);
  run(&fake);
}

TEST(LmdbIndex, CountsUsedBytesUpAndDown) {
  const auto index = Make();
  for (uint64_t i = 0; i < 5000; ++i) index->Put({1, 3, i}, Bytes("some value of a tensor"));
  ASSERT_TRUE(index->Commit());
  const uint64_t full = index->used_bytes();
  EXPECT_GT(full, 5000u * 40);
  for (uint64_t i = 0; i < 5000; ++i) index->Erase({1, 3, i});
  ASSERT_TRUE(index->Commit());
  EXPECT_LT(index->used_bytes(), full / 10);
}

TEST(LmdbIndex, IsFoundAgainThroughItsKeptFile) {
  int kept = -1;
  {
    const auto index = Make(8 * kMiB);
    index->Put({1, 2, 3}, Bytes("kept"));
    ASSERT_TRUE(index->Commit());
    index->Put({1, 2, 4}, Bytes("staged only"));
    kept = ::dup(index->memory_file());
  }
  auto again = LmdbIndex::Open({.memory_file = kept});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(ContentsOf(**again), (Contents{{{1, 2, 3}, "kept"}}));
  EXPECT_EQ((*again)->map_size(), 8 * kMiB);
}

TEST(LmdbIndex, RefusesAKeptFileThatIsNoIndex) {
  auto garbage = proto::CreateMemoryFile("garbage", 2 * kMiB);
  ASSERT_TRUE(garbage);
  ASSERT_EQ(::pwrite(garbage->get(), "no index", 8, 0), 8);
  const auto index = LmdbIndex::Open({.memory_file = garbage->Release()});
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Code::kCorrupt);
}

// Version 1 had one record a tensor, under a key of 24 bytes, and said nothing of its format.
TEST(LmdbIndex, RefusesAKeptIndexOfTheFirstFormat) {
  auto memory = proto::CreateMemoryFile("old", 0, /*seal=*/false);
  ASSERT_TRUE(memory);
  {
    MDB_env* handle = nullptr;
    ASSERT_EQ(mdb_env_create(&handle), 0);
    const IndexEnvironment environment(handle);
    ASSERT_EQ(mdb_env_set_mapsize(handle, 2 * kMiB), 0);
    const std::string path = "/proc/self/fd/" + std::to_string(memory->get());
    ASSERT_EQ(mdb_env_open(handle, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_WRITEMAP, 0600), 0);
    auto transaction = IndexTransaction::Begin(handle, 0);
    ASSERT_TRUE(transaction);
    MDB_dbi database = 0;
    ASSERT_EQ(mdb_dbi_open(transaction->get(), nullptr, 0, &database), 0);
    std::string key(24, 'k');
    std::string record(72, 'r');
    MDB_val name{key.size(), key.data()};
    MDB_val value{record.size(), record.data()};
    ASSERT_EQ(mdb_put(transaction->get(), database, &name, &value, 0), 0);
    ASSERT_EQ(transaction->Commit(), 0);
  }
  const auto index = LmdbIndex::Open({.memory_file = memory->Release()});
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Code::kVersion);
  EXPECT_THAT(index.error().message, HasSubstr("format 1, this daemon reads format 2"));
}

// What the kept file then answers to being opened, when `byte` of its format record is another.
Error OpenWithFormatByte(size_t byte, char value) {
  const auto index = Make(2 * kMiB);
  std::string file(2 * kMiB, '\0');
  EXPECT_EQ(::pread(index->memory_file(), file.data(), file.size(), 0), static_cast<ssize_t>(file.size()));
  const std::string_view magic(reinterpret_cast<const char*>(&proto::kIndexMagic), sizeof(proto::kIndexMagic));
  const size_t at = file.find(magic);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(::pwrite(index->memory_file(), &value, 1, static_cast<off_t>(at + byte)), 1);
  auto again = LmdbIndex::Open({.memory_file = ::dup(index->memory_file())});
  return again ? Error{Code::kOk, ""} : again.error();
}

TEST(LmdbIndex, RefusesAKeptIndexOfALaterFormat) {
  EXPECT_EQ(OpenWithFormatByte(8, proto::kIndexVersion).code, Code::kOk);
  EXPECT_EQ(OpenWithFormatByte(8, 9).code, Code::kVersion);
  EXPECT_THAT(OpenWithFormatByte(8, 9).message, HasSubstr("format 9, this daemon reads format 2"));
  EXPECT_EQ(OpenWithFormatByte(0, 'X').code, Code::kCorrupt);
  EXPECT_EQ(OpenWithFormatByte(12, 1).code, Code::kCorrupt) << "what is reserved";
}

// A child commits numbered turns of 64 records, says each over a pipe once committed, and is killed at some moment.
TEST(LmdbIndex, LosesNoCommittedTurnAndTearsNoneWhenItsProcessIsKilled) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const int memory = ::dup(Make(32 * kMiB)->memory_file());
    int said[2];
    ASSERT_EQ(::pipe(said), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto index = LmdbIndex::Open({.memory_file = ::dup(memory)});
      for (uint64_t turn = 1; index; ++turn) {
        const std::string value = std::to_string(turn);
        for (uint64_t i = 0; i < 64; ++i) (*index)->Put({1, 0, i}, Bytes(value));
        if (!(*index)->Commit()) ::_exit(1);
        if (::write(said[1], &turn, sizeof turn) != sizeof turn) ::_exit(1);
      }
      ::_exit(2);
    }
    ::close(said[1]);
    uint64_t last = 0;
    // Killed once it has got this far, in the middle of whatever it then does.
    while (last < 100 + static_cast<uint64_t>(attempt) * 37 && ::read(said[0], &last, sizeof last) == sizeof last) {
    }
    ::kill(child, SIGKILL);
    for (uint64_t more = 0; ::read(said[0], &more, sizeof more) == sizeof more;) last = more;
    ::close(said[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    auto index = LmdbIndex::Open({.memory_file = memory});
    ASSERT_TRUE(index) << index.error().message;
    const Contents contents = ContentsOf(**index);
    ASSERT_EQ(contents.size(), 64u);
    const uint64_t found = std::stoull(contents.begin()->second);
    EXPECT_GE(found, last);
    for (const auto& [key, value] : contents) EXPECT_EQ(value, contents.begin()->second) << "a torn turn";
  }
}

TEST(LmdbIndex, TakesHundredsOfThousandsOfRecordsASecond) {
  const auto index = Make(256 * kMiB);
  const std::string value(80, 'r');
  constexpr uint64_t kRecords = 200'000;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < kRecords; ++i) {
    index->Put({1, 0, (i * 7919) % kRecords}, Bytes(value));
    if (i % 1000 != 999) continue;
    ASSERT_TRUE(index->Commit());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("records_per_second", static_cast<int>(kRecords / took.count()));
  std::printf("%.0f records/s in commits of 1,000\n", kRecords / took.count());
  EXPECT_EQ(ContentsOf(*index).size(), kRecords);
}

}  // namespace
}  // namespace tier::storage
