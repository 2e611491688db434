// Random turns against a map: LmdbIndex and the simulator's FakeIndex must both end where the map does, also when the
// environment is reopened between turns.
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include "daemon/storage/lmdb_index.h"
#include "tests/support/storage/fake_index.h"

namespace tier::storage {
namespace {

using Contents = std::map<RecordKey, std::string>;

Contents ContentsOf(const Index& index) {
  Contents contents;
  index.Scan([&](const RecordKey& key, std::span<const std::byte> value) {
    contents[key] = std::string(reinterpret_cast<const char*>(value.data()), value.size());
  });
  return contents;
}

RecordKey DrawKey() {
  return {.job = *rc::gen::inRange<uint64_t>(0, 3),
          .space = *rc::gen::inRange<uint64_t>(0, 3),
          .tensor = *rc::gen::element<uint64_t>(0, 1, 2, 255, 256, 257, UINT64_MAX),
          .record = *rc::gen::element<uint32_t>(0, 1, 256, UINT32_MAX)};
}

void Stage(Index* index, Contents* model) {
  const RecordKey key = DrawKey();
  if (*rc::gen::weightedElement<bool>({{2, true}, {1, false}})) {
    const std::string value(*rc::gen::inRange<size_t>(1, 6000), *rc::gen::inRange('a', 'z'));
    index->Put(key, std::as_bytes(std::span(value)));
    (*model)[key] = value;
  } else {
    index->Erase(key);
    model->erase(key);
  }
}

template <typename Reopen>
void RunTurns(std::unique_ptr<Index> index, Reopen reopen) {
  Contents model;
  const auto turns = *rc::gen::inRange(1, 15);
  for (int turn = 0; turn < turns; ++turn) {
    const auto operations = *rc::gen::inRange(0, 40);
    const Contents before = model;
    for (int i = 0; i < operations; ++i) Stage(index.get(), &model);
    RC_ASSERT(ContentsOf(*index) == before);
    RC_ASSERT(index->Commit().has_value());
    RC_ASSERT(ContentsOf(*index) == model);
    if (*rc::gen::weightedElement<bool>({{3, false}, {1, true}})) index = reopen(std::move(index));
    RC_ASSERT(ContentsOf(*index) == model);
  }
}

TEST(IndexProperty, LmdbIndexAgreesWithAMap) {
  const bool holds = rc::check("lmdb index", [] {
    RunTurns(*LmdbIndex::Open({.map_size = 16 * kMiB}), [](std::unique_ptr<Index> index) -> std::unique_ptr<Index> {
      const int kept = ::dup(static_cast<LmdbIndex&>(*index).memory_file());
      index.reset();
      auto again = LmdbIndex::Open({.memory_file = kept});
      RC_ASSERT(again.has_value());
      return std::move(*again);
    });
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

TEST(IndexProperty, FakeIndexAgreesWithAMap) {
  const bool holds = rc::check("fake index", [] {
    RunTurns(std::make_unique<testing::FakeIndex>(), [](std::unique_ptr<Index> index) -> std::unique_ptr<Index> {
      return std::make_unique<testing::FakeIndex>(static_cast<testing::FakeIndex&>(*index).shared_contents());
    });
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

}  // namespace
}  // namespace tier::storage
