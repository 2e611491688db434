// The check that the simulator and the scripted world rely on finds what it is there to find.
#include "tests/support/tiering/transfer_check.h"

#include <gtest/gtest.h>

#include "daemon/tiering/durability/manifest_codec.h"
#include "tests/support/storage/scratch.h"

namespace tier::tiering::testing {
namespace {

using storage::Direction;
using storage::Extent;

constexpr WindowIndex kWindow{0};
constexpr Extent kExtent{.run = {.block = 3, .page = 8, .pages = 4}, .device = 0};
constexpr base::PageRun kRam{.block = 0, .page = 16, .pages = 4};

PiecePlace Place(base::PageRun ram, Extent extent, std::optional<uint64_t> transfer = std::nullopt) {
  return {.tensor = 0x77,
          .piece = 2,
          .generation = 5,
          .ram = PlaceRuns(ram),
          .extent = extent,
          .runs = PlaceRuns(extent.run),
          .transfer = transfer};
}

class TransferCheckTest : public ::testing::Test {
 protected:
  TransferCheckTest() { transfers.AddWindow(kWindow, memory.data(), memory.size()); }
  void Start(Direction direction, uint64_t cookie) {
    transfers.Start({.cookie = cookie,
                     .direction = direction,
                     .extent = kExtent,
                     .window = kWindow,
                     .memory = memory.data() + kRam.page * kPageSize,
                     .length = 4 * kPageSize});
  }

  storage::testing::WindowMemory memory{kBlockSize};
  storage::testing::FakeTransferPort transfers;
  storage::testing::FakeManifestStore manifests;
  TransferCheck check;
};

TEST_F(TransferCheckTest, AWriteMustNotGoToAnExtentOfAPiece) {
  Start(Direction::kWrite, 1);
  EXPECT_FALSE(check.AtSubmit({Place(kRam, {}, 1)}, transfers, manifests)) << "its own piece, which has none yet";
  const auto found = check.AtSubmit({Place({}, {.run = {3, 11, 1}, .device = 0})}, transfers, manifests);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found,
            "a write goes to block 3 page 8 + 4, which belongs to tensor 0x77 piece 2 generation 5 at the end of "
            "the turn");
  EXPECT_FALSE(check.AtSubmit({Place({}, {.run = {3, 12, 1}, .device = 0})}, transfers, manifests)) << "beside it";
  EXPECT_FALSE(check.AtSubmit({Place({}, {.run = {3, 8, 4}, .device = 1})}, transfers, manifests)) << "another device";
}

TEST_F(TransferCheckTest, AWriteMustNotGoToAnExtentThatItsOwnTurnFreed) {
  EXPECT_FALSE(check.AfterTurn({Place({}, kExtent)}, transfers, manifests));
  Start(Direction::kWrite, 1);
  const auto found = check.AtSubmit({}, transfers, manifests);
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("at the end of the last turn"), std::string::npos) << *found;
  EXPECT_FALSE(check.AfterTurn({}, transfers, manifests));
  EXPECT_FALSE(check.AtSubmit({}, transfers, manifests)) << "a turn later it is free";
}

TEST_F(TransferCheckTest, AWriteMustNotGoToAnExtentThatAWaitingManifestNames) {
  ManifestTensor tensor;
  tensor.record = {.tensor = 0x88, .size = 4 * kPageSize, .generation = 1, .piece_count = 1, .space = 0};
  tensor.pieces.push_back({.block = 3, .page = 8, .pages = 4, .crc = 0, .generation = 1, .device = 0});
  manifests.StartPut(1, "0/a", EncodeManifest({.step = 0, .tensors = {tensor}, .keys = {}}), {});
  Start(Direction::kWrite, 1);
  const auto found = check.AtSubmit({}, transfers, manifests);
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("which a manifest names for tensor 0x88"), std::string::npos) << *found;
}

TEST_F(TransferCheckTest, AReadMustNotGoToRamOfAnotherPiece) {
  Start(Direction::kRead, 1);
  EXPECT_FALSE(check.AfterTurn({Place(kRam, kExtent, 1)}, transfers, manifests)) << "its own";
  EXPECT_TRUE(check.AfterTurn({Place(kRam, kExtent)}, transfers, manifests));
  EXPECT_TRUE(check.AfterTurn({Place(kRam, {}, 2)}, transfers, manifests)) << "another transfer's";
}

}  // namespace
}  // namespace tier::tiering::testing
