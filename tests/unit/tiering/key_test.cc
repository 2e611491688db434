// String keys as the engine keeps them. The table by itself: intern_table_test.cc.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "daemon/tiering/inspection/figures.h"
#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

TEST(Keys, AreInternedPerJob) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  const uint64_t id = world.Wait(a, world.SendText(a, "layer.weight")).value;
  EXPECT_NE(id, 0u);
  EXPECT_EQ(world.Wait(b, world.SendText(b, "layer.weight")).value, id);
  world.Put(a, id, 100);
  const std::vector<TensorView> views = world.engine->Tensors(job, 0, 10).tensors;
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].key, "layer.weight");
  EXPECT_EQ(world.Wait(a, world.SendText(a, "")).code, Code::kInvalid);
  EXPECT_EQ(world.Wait(a, world.SendText(a, std::string(proto::kKeyLengthMax + 1, 'x'))).code, Code::kInvalid);
  EXPECT_EQ(world.Wait(a, world.SendText(a, std::string("a\0b", 3))).code, Code::kInvalid);
}

TEST(Keys, OfTensorsAreLimitedInBytesToo) {
  World world({.engine = {.key_bytes_per_job_max = 100}});
  const SessionId session = world.Open();
  const Answer first = world.Wait(session, world.SendText(session, std::string(60, 'x')));
  ASSERT_EQ(first.code, Code::kOk);
  world.Put(session, first.value, 5000);
  const Answer refused = world.Wait(session, world.SendText(session, std::string(41, 'y')));
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_EQ(refused.error.requested, 41u);
  EXPECT_EQ(refused.error.available, 40u);
  EXPECT_EQ(refused.error.limit, 100u);
  EXPECT_EQ(world.Free(session, first.value).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, world.SendText(session, std::string(41, 'y'))).code, Code::kOk);
}

TEST(Keys, AreKnownAsLongAsAnyNamespaceHasTheirTensor) {
  World world({.engine = {.keys_per_job_max = 16}});
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  const uint64_t own = world.Wait(a, world.SendText(a, "own")).value;
  const uint64_t shared = world.Wait(a, world.SendText(a, "shared")).value;
  const uint64_t nobodys = world.Wait(a, world.SendText(a, "nobody's")).value;
  world.Put(a, own, 5000);
  world.Put(a, shared, 5000, 1, proto::kFlagShared);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(world.Wait(b, world.SendText(b, "key" + std::to_string(i))).code, Code::kOk) << i;
  }
  world.Put(a, nobodys, 5000);
  std::map<uint64_t, std::string> keys;
  for (const TensorView& view : world.engine->Tensors(job, 0, 10).tensors) keys[view.tensor] = view.key;
  EXPECT_EQ(keys, (std::map<uint64_t, std::string>{{own, "own"}, {shared, "shared"}, {nobodys, ""}}));
  EXPECT_EQ(world.Wait(b, world.SendText(b, "nobody's")).value, nobodys);
}

TEST(Keys, OfWhatAResumedJobInheritedAreKnown) {
  World world({.engine = {.keys_per_job_max = 16}, .manifests = true});
  const SessionId before = world.OpenSession(world.OpenJob(kNamed));
  const uint64_t id = world.Wait(before, world.SendText(before, "inherited")).value;
  world.Put(before, id, 5000);
  EXPECT_EQ(world.Ask(before, Op::kPersist, {}).code, Code::kOk);
  world.engine->CloseJob(JobId{1}, "done", false);
  world.Turns(5);
  const JobId job = world.OpenJob(kResume);
  const SessionId session = world.OpenSession(job);
  for (int i = 0; i < 100; ++i) world.Wait(session, world.SendText(session, "key" + std::to_string(i)));
  EXPECT_EQ(world.engine->Tensors(job, 0, 10).tensors.at(0).key, "inherited");
}

// A job's list costs what a turn can spare, however many tensors other jobs have.
TEST(Tensors, AreListedInPagesOfBoundedRecords) {
  constexpr uint64_t kTensors = 3 * kRecordsPerPage;
  World world({.windows = {.window_size = 64 * kMiB, .arena_max_bytes = 512 * kMiB}});
  const SessionId crowd = world.Open();
  for (uint64_t first = 1; first <= kTensors; first += proto::kItemsPerRequestMax) {
    std::vector<proto::RequestItem> items;
    for (uint64_t id = first; id <= kTensors && items.size() < proto::kItemsPerRequestMax; ++id) {
      items.push_back({id, 0, 4096, 4096});
    }
    world.engine->Submit(crowd, {.sequence = first, .op = Op::kCreate, .items = items, .text = {}});
    while (world.engine->Turn(world.now)) {
    }
  }
  ASSERT_EQ(world.engine->Snapshot().tensor_count, kTensors);
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.Create(session, 1, 4096);
  uint32_t from = 0;
  uint32_t pages = 0;
  size_t found = 0;
  do {
    const TensorPage page = world.engine->Tensors(job, from, 10);
    EXPECT_TRUE(pages != 0 || (page.tensors.empty() && page.next != 0)) << "the first page is all of the crowd's";
    found += page.tensors.size();
    from = page.next;
  } while (++pages < 10 && from != 0);
  EXPECT_GE(pages, 3u);
  EXPECT_EQ(found, 1u);
}

TEST(Tensors, AListThatIsAskedForBehindTheLastRecordEnds) {
  World world;
  const JobId job = world.OpenJob();
  const TensorPage page = world.engine->Tensors(job, UINT32_MAX, 10);
  EXPECT_TRUE(page.tensors.empty());
  EXPECT_EQ(page.next, 0u) << "a caller that asks on would never end";
}

}  // namespace
}  // namespace tier::tiering::testing
