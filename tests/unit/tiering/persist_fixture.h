// A named job with one session over a store of manifests.
#pragma once

#include <algorithm>

#include <gtest/gtest.h>

#include "daemon/storage/extent_list.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {

inline constexpr uint64_t kPiece = kBlockSize;
inline constexpr uint32_t kShared = proto::kFlagShared;
inline const JobOptions kNamed{.key = "1000/training", .named = true};
inline const JobOptions kResume{.key = "1000/training", .named = true, .resume = true};

class Persist : public ::testing::Test {
 protected:
  Persist() : world({.manifests = true}), job(world.OpenJob(kNamed)), session(world.OpenSession(job)) {}

  Answer PersistAll() { return world.Ask(session, proto::Op::kPersist, {}); }
  // With a tensor of its own; the store has not answered yet.
  void EndTheLastSessionWhileItPersists() {
    world.manifests.SetDelay(5);
    world.Put(session, 1, kPiece, 1);
    world.Send(session, proto::Op::kPersist, {});
    world.Turns(4);
    world.EndSession(session, "left");
  }
  void Reopen() {
    world.engine->CloseJob(job, "closed", false);
    world.Turns(5);
    job = world.OpenJob(kResume);
    session = world.OpenSession(job);
  }

  World world;
  JobId job;
  SessionId session;
};

// Puts pieces of its own pattern from `first` on until one is refused: how many.
inline uint64_t PutUntilRefused(World& world, SessionId session, uint64_t first, Answer* refused) {
  for (uint64_t tensor = first;; ++tensor) {
    *refused = world.Create(session, tensor, kPiece);
    if (refused->code != Code::kOk) return tensor - first;
    world.Fill(refused->spans, tensor, tensor);
    EXPECT_EQ(world.Release(session, World::LeaseOf(*refused)).code, Code::kOk);
  }
}

// The list beside the manifest of kNamed has its extents, each once, and no other.
inline void ExpectListOfManifest(const World& world) {
  const Manifest manifest = *DecodeManifest(world.manifests.shared_contents()->at(kNamed.key));
  const auto runs = *storage::DecodeExtentList(world.manifests.shared_extents()->at(kNamed.key));
  uint64_t pages = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
      pages += piece.pages;
      const base::PageRun one{.block = piece.block, .page = piece.page, .pages = piece.pages};
      const auto several = RunsIn(manifest, piece);
      for (const base::PageRun part : several.empty() ? std::span(&one, 1) : several) {
        const uint64_t first = uint64_t{part.block} * kPagesPerBlock + part.page;
        const bool listed = std::ranges::any_of(runs, [&](const proto::ExtentListRun& run) {
          return run.device == piece.device && run.first_page <= first &&
                 first + part.pages <= run.first_page + run.pages;
        });
        EXPECT_TRUE(listed) << "block " << part.block << " page " << part.page;
      }
    }
  }
  uint64_t listed_pages = 0;
  for (const proto::ExtentListRun& run : runs) listed_pages += run.pages;
  EXPECT_EQ(listed_pages, pages);
}

// A world over what the daemon before left: the same device and the same manifests.
inline WorldOptions After(const World& before) {
  return {.manifests = true,
          .disk = before.transfers.shared_disk(),
          .persisted = before.manifests.shared_contents(),
          .extent_lists = before.manifests.shared_extents(),
          .quarantines = before.manifests.shared_quarantines()};
}

// The next daemon: the same device and the same manifests, a new engine.
class NextDaemon {
 public:
  explicit NextDaemon(World& before)
      : windows({}),
        manifests(before.manifests.shared_contents(), before.manifests.shared_extents()),
        transfers({}, before.transfers.shared_disk()) {
    extents.AddDevice(before.options.device_blocks);
    engine = std::make_unique<Engine>(EngineOptions{}, EnginePorts{windows, extents, transfers, &manifests, sink});
  }
  memory::testing::FakeWindowSource windows;
  storage::ExtentStore extents;
  storage::testing::FakeManifestStore manifests;
  storage::testing::FakeTransferPort transfers;
  RecordingSink sink;
  std::unique_ptr<Engine> engine;
  void Turns(int count) {
    for (int turn = 0; turn < count; ++turn) engine->Turn(now_ = now_ + std::chrono::milliseconds(1));
  }

 private:
  base::TimePoint now_;
};

}  // namespace tier::tiering::testing
