// The books of the SSD pages: what becomes free when, and that figures always add up.
#include "daemon/storage/extent_store.h"

#include "daemon/storage/quarantine_record.h"

#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::storage {
namespace {

using ::testing::HasSubstr;

std::vector<Extent> FillUp(ExtentStore* store, uint32_t pages) {
  std::vector<Extent> extents;
  for (auto extent = store->Allocate(pages); extent; extent = store->Allocate(pages)) extents.push_back(*extent);
  return extents;
}

TEST(ExtentStore, GivesOutEveryPageOnce) {
  ExtentStore store;
  store.AddDevice(4);
  std::set<uint64_t> offsets;
  for (const Extent& extent : FillUp(&store, 512)) EXPECT_TRUE(offsets.insert(extent.run.offset_bytes()).second);
  EXPECT_EQ(offsets.size(), 4u);
  EXPECT_EQ(store.space(0).free, 0u);
  EXPECT_EQ(store.space(0).live, 4 * kBlockSize);
  store.CheckInvariants();
}

TEST(ExtentStore, KeepsAStreamOfWholeBlocksSequential) {
  ExtentStore store;
  store.AddDevice(64);
  uint64_t expected = store.Allocate(512)->run.offset_bytes();
  for (int i = 0; i < 60; ++i) {
    expected += kBlockSize;
    EXPECT_EQ(store.Allocate(512)->run.offset_bytes(), expected);
  }
}

TEST(ExtentStore, AnswersNoSpaceWithFigures) {
  ExtentStore store;
  store.AddDevice(2);
  (void)FillUp(&store, 512);
  const auto refused = store.Allocate(3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_THAT(refused.error().message, HasSubstr("12 KiB"));
  EXPECT_THAT(refused.error().message, HasSubstr("0 bytes of 4 MiB are free"));
  EXPECT_THAT(refused.error().message, HasSubstr("one more device in ssd.devices")) << "a file keeps its size";
}

TEST(ExtentStore, AnswersNoSpaceWithoutDevices) {
  ExtentStore store;
  EXPECT_EQ(store.Allocate(1).error().code, Code::kNoSpace);
  EXPECT_THAT(store.Allocate(1).error().message, HasSubstr("ssd.devices"));
  EXPECT_FALSE(store.HasRoom(1));
  EXPECT_TRUE(store.HasRoom(0));
}

// One page in two is free.
std::vector<Extent> MakeHoles(ExtentStore* store) {
  std::vector<Extent> kept = FillUp(store, 1);
  std::erase_if(kept, [store](const Extent& extent) {
    if (extent.run.page % 2 == 0) return false;
    store->Free(extent);
    return true;
  });
  return kept;
}

TEST(ExtentStore, HoldsInSeveralRunsWhatNoSingleRunCan) {
  ExtentStore store;
  store.AddDevice(2);
  const std::vector<Extent> kept = MakeHoles(&store);
  EXPECT_TRUE(store.WouldScatter(512));
  EXPECT_FALSE(store.WouldScatter(1));
  const auto extent = store.Allocate(512);
  ASSERT_TRUE(extent) << extent.error().message;
  EXPECT_TRUE(extent->scattered);
  EXPECT_EQ(store.RunsOf(*extent).size(), 512u);
  EXPECT_EQ(store.space(0).free, 0u);
  EXPECT_FALSE(store.Allocate(1)) << "a page in two hands";
  store.CheckInvariants();
  store.FreeAtTurnEnd(*extent);
  EXPECT_EQ(store.RunsOf(*extent).size(), 512u) << "until the turn ends";
  store.OnTurnEnded();
  EXPECT_EQ(store.space(0).free, kBlockSize);
  for (const Extent& one : kept) store.Free(one);
  EXPECT_FALSE(store.Allocate(512)->scattered) << "a run is preferred";
}

TEST(ExtentStore, ScattersOverOneDeviceOnly) {
  ExtentStore store;
  for (int i = 0; i < 2; ++i) store.AddDevice(1);
  (void)MakeHoles(&store);
  EXPECT_FALSE(store.Allocate(512)) << "256 pages are free on each";
  EXPECT_FALSE(store.WouldScatter(512));
  for (int i = 0; i < 2; ++i) {
    const auto extent = store.Allocate(256);
    ASSERT_TRUE(extent) << extent.error().message;
    EXPECT_TRUE(extent->scattered);
  }
}

TEST(ExtentStore, DoubtsOnlyTheRunThatFailed) {
  ExtentStore store;
  store.AddDevice(1);
  (void)MakeHoles(&store);
  const Extent extent = *store.Allocate(4);
  store.SetInDoubt(extent, true, 2 * kPageSize);
  EXPECT_EQ(store.space(0).doubtful, kPageSize);
  EXPECT_EQ(store.space(0).pending, 3 * kPageSize);
  store.CheckInvariants();
}

TEST(ExtentStore, ReusesFreedPagesAtOnce) {
  ExtentStore store;
  store.AddDevice(1);
  const Extent extent = *store.Allocate(512);
  EXPECT_FALSE(store.Allocate(1));
  store.Free(extent);
  EXPECT_TRUE(store.Allocate(512));
  store.CheckInvariants();
}

TEST(ExtentStore, KeepsPendingExtentsUntilTheTurnEnds) {
  ExtentStore store;
  store.AddDevice(1);
  const Extent extent = *store.Allocate(512);
  EXPECT_FALSE(store.RoomComes());
  store.FreeAtTurnEnd(extent);
  EXPECT_EQ(store.space(0).pending, kBlockSize);
  EXPECT_EQ(store.space(0).live, 0u);
  EXPECT_FALSE(store.Allocate(1)) << "an extent was handed out in the turn that freed it";
  EXPECT_TRUE(store.RoomComes());
  EXPECT_TRUE(store.HasRoom(kBlockSize));
  store.CheckInvariants();
  store.OnTurnEnded();
  EXPECT_EQ(store.space(0).pending, 0u);
  EXPECT_FALSE(store.RoomComes());
  EXPECT_TRUE(store.Allocate(512));
  store.CheckInvariants();
}

TEST(ExtentStore, SaysNothingOfRoomThatComesOnADrainingDevice) {
  ExtentStore store;
  store.AddDevice(1);
  store.FreeAtTurnEnd(*store.Allocate(512));
  store.SetDraining(0, true);
  EXPECT_FALSE(store.RoomComes());
  EXPECT_FALSE(store.HasRoom(1));
}

// Everything else is taken until the place comes back.
Extent UntilTriedAgain(ExtentStore* store) {
  (void)FillUp(store, 512);
  store->OnTurnEnded();
  return store->Allocate(512).value();
}

TEST(ExtentStore, APlaceThatFailedAloneIsPutAsideAndTriedLast) {
  ExtentStore store;
  store.AddDevice(4);
  const Extent place = *store.Allocate(512);
  store.SetInDoubt(place, true);
  store.EndDoubts(0, Doubt::kOfPlaces);
  store.OnTurnEnded();
  EXPECT_EQ(store.space(0).doubtful, kBlockSize);
  EXPECT_TRUE(store.HasRoom(4 * kBlockSize)) << "it may still do";
  EXPECT_EQ(UntilTriedAgain(&store), place);
  store.NoteWritten(place);
  store.SetInDoubt(place, true);
  store.EndDoubts(0, Doubt::kOfPlaces);
  EXPECT_EQ(store.space(0).quarantined, 0u) << "a write succeeded there";
  store.CheckInvariants();
}

TEST(ExtentStore, WhatFailsWhileNothingElseWorksIsAsGoodAsBefore) {
  ExtentStore store;
  store.AddDevice(2);
  for (int outage = 0; outage < 3; ++outage) {
    const Extent alone = *store.Allocate(512);
    store.SetInDoubt(alone, true);
    store.EndDoubts(0, Doubt::kOfPlaces);
    const Extent later = *store.Allocate(512);
    store.SetInDoubt(later, true);
    store.EndDoubts(0, Doubt::kOfDevice);
    store.OnTurnEnded();
    EXPECT_EQ(store.space(0).free, 2 * kBlockSize);
  }
  store.CheckInvariants();
}

TEST(ExtentStore, PlacesFarApartThatFailTogetherHaveNoStrike) {
  ExtentStore store;
  store.AddDevice(8);
  const std::vector<Extent> places = FillUp(&store, 512);
  for (int outage = 0; outage < 3; ++outage) {
    store.SetInDoubt(places.front(), true);
    store.SetInDoubt(places.back(), true);
    store.EndDoubts(0, Doubt::kOfPlaces);
    store.OnTurnEnded();
    ASSERT_EQ(store.space(0).free, 2 * kBlockSize);
    for (const Extent& place : {places.front(), places.back()}) ASSERT_TRUE(store.Take(place));
  }
  EXPECT_EQ(store.space(0).quarantined, 0u);
}

TEST(ExtentStore, PlacesInDoubtAreTheLastToBeHandedOut) {
  ExtentStore store;
  store.AddDevice(2);
  const Extent place = *store.Allocate(512);
  store.SetInDoubt(place, true);
  EXPECT_TRUE(store.HasRoom(2 * kBlockSize));
  EXPECT_NE(store.Allocate(512).value().run.block, place.run.block);
  EXPECT_FALSE(store.Allocate(512)) << "it may have been of a piece until this turn";
  EXPECT_TRUE(store.RoomComes());
  store.OnTurnEnded();
  EXPECT_EQ(store.Allocate(512).value(), place);
  EXPECT_EQ(store.space(0).doubtful, 0u);
  store.CheckInvariants();
}

TEST(ExtentStore, AShutDeviceIsPassedOver) {
  ExtentStore store;
  store.AddDevice(2);
  store.AddDevice(1);
  store.SetShut(0, Shut::kBusy);
  EXPECT_EQ(store.Allocate(512).value().device, 1);
  EXPECT_TRUE(store.AnyOpen() && store.AnyShut());
  EXPECT_FALSE(store.Allocate(512));
  EXPECT_TRUE(store.RoomBehindShut(512));
  EXPECT_TRUE(store.HasRoom(2 * kBlockSize)) << "only for the moment";
  store.SetShut(0, Shut::kOpen);
  EXPECT_EQ(store.Allocate(512).value().device, 0);
}

TEST(ExtentStore, ADeviceThatIsAwayCountsWithWhatItHolds) {
  ExtentStore store;
  store.AddDevice(2);
  store.AddDevice(2);
  const Extent first = *store.Allocate(512);
  const Extent second = *store.Allocate(512);
  ASSERT_EQ(first.device, second.device);
  store.Free(second);
  store.SetAway(first.device, true);
  EXPECT_EQ(store.usable().capacity, 3 * kBlockSize);
  EXPECT_EQ(store.usable().live, kBlockSize);
  EXPECT_EQ(store.usable().free, 2 * kBlockSize);
  EXPECT_FALSE(store.HasRoom(3 * kBlockSize));
  EXPECT_FALSE(store.RoomBehindShut(1));
  EXPECT_EQ(store.UnusableNote(), "; 1 device of 4 MiB is offline and takes nothing");
  store.SetInDoubt(first, true);
  EXPECT_EQ(store.space(first.device).pending, kBlockSize) << "nothing is known of the place";
  store.SetAway(static_cast<uint16_t>(1 - first.device), true);
  const auto refused = store.Allocate(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kIoError);
  EXPECT_THAT(refused.error().message, HasSubstr("2 devices of 8 MiB are offline and take nothing"));
}

TEST(ExtentStore, NeverHandsOutQuarantinedPages) {
  ExtentStore store;
  store.AddDevice(2);
  const Extent bad = *store.Allocate(512);
  store.SetInDoubt(bad, true);
  store.EndDoubts(0, Doubt::kOfPlaces);
  ASSERT_EQ(UntilTriedAgain(&store), bad);
  store.SetInDoubt(bad, true);
  store.EndDoubts(0, Doubt::kOfPlaces);
  EXPECT_EQ(store.space(0).quarantined, kBlockSize);
  EXPECT_TRUE(FillUp(&store, 1).empty());
  store.EndDoubts(0, Doubt::kOfDevice);
  EXPECT_EQ(store.space(0).quarantined, kBlockSize);
  store.CheckInvariants();
}

// Two blocks: the first is quarantined, and the change taken.
Extent QuarantineOne(ExtentStore* store) {
  const Extent bad = *store->Allocate(512);
  for (int i = 0; i < 2; ++i) {
    store->SetInDoubt(bad, true);
    store->EndDoubts(0, Doubt::kOfPlaces);
    if (i == 0) {
      EXPECT_EQ(UntilTriedAgain(store), bad);
    }
  }
  EXPECT_TRUE(store->any_quarantine_change());
  EXPECT_THAT(store->TakeQuarantineChanges(), ::testing::ElementsAre(0));
  EXPECT_FALSE(store->any_quarantine_change());
  return bad;
}

TEST(ExtentStore, WhatAnEarlierRunQuarantinedIsNotHandedOut) {
  ExtentStore store;
  store.AddDevice(2);
  const Extent bad = QuarantineOne(&store);
  ExtentStore next;
  next.AddDevice(2);
  for (const base::PageRun place : store.quarantined(0)) next.Quarantine(0, place);
  EXPECT_TRUE(next.TakeQuarantineChanges().empty()) << "it is written down as it is";
  EXPECT_EQ(next.space(0).quarantined, kBlockSize);
  for (const Extent& extent : FillUp(&next, 1)) EXPECT_NE(extent.run.block, bad.run.block);
  next.CheckInvariants();
}

TEST(ExtentStore, AQuarantinedPlaceThatAManifestNamesIsTheManifests) {
  ExtentStore store;
  store.AddDevice(2);
  ASSERT_TRUE(store.Take({.run = {.block = 1, .page = 100, .pages = 7}}));
  store.Quarantine(0, {.block = 1, .page = 0, .pages = 512});
  store.Quarantine(0, {.block = 9, .page = 0, .pages = 512});  // Of no block.
  EXPECT_EQ(store.space(0).live, 7 * kPageSize);
  EXPECT_EQ(store.space(0).quarantined, (512 - 7) * kPageSize);
  EXPECT_THAT(store.TakeQuarantineChanges(), ::testing::ElementsAre(0)) << "the record says too much";
  store.CheckInvariants();
}

TEST(ExtentStore, RetriedPlacesAreTheLastToBeHandedOutAndOnlyOneStrikeAway) {
  ExtentStore store;
  store.AddDevice(2);
  const Extent bad = QuarantineOne(&store);
  store.RetryQuarantined(0);
  EXPECT_EQ(store.space(0).quarantined, 0u);
  EXPECT_EQ(store.space(0).doubtful, kBlockSize);
  EXPECT_TRUE(store.quarantined(0).empty());
  EXPECT_THAT(store.TakeQuarantineChanges(), ::testing::ElementsAre(0));
  store.RetryQuarantined(0);
  EXPECT_FALSE(store.any_quarantine_change()) << "there was nothing to retry";
  EXPECT_EQ(UntilTriedAgain(&store), bad);
  store.SetInDoubt(bad, true);
  store.EndDoubts(0, Doubt::kOfPlaces);
  EXPECT_EQ(store.space(0).quarantined, kBlockSize);
  store.CheckInvariants();
}

TEST(ExtentStore, ADeviceWithMorePlacesThanCanBeListedIsFailing) {
  ExtentStore store;
  store.AddDevice(kQuarantinedPlacesMax / 256 + 1);
  for (uint32_t i = 0; i < kQuarantinedPlacesMax + 2; ++i) {
    EXPECT_EQ(store.IsFailing(0), i >= kQuarantinedPlacesMax);
    store.Quarantine(0, {.block = i / 256, .page = static_cast<uint16_t>(i % 256 * 2), .pages = 1});
  }
  EXPECT_EQ(store.quarantined(0).size(), kQuarantinedPlacesMax);
  EXPECT_EQ(store.space(0).quarantined, (kQuarantinedPlacesMax + 2) * kPageSize);
  store.CheckInvariants();
  store.RetryQuarantined(0);
  EXPECT_FALSE(store.IsFailing(0));
  EXPECT_EQ(store.space(0).quarantined, 2 * kPageSize) << "these wait for the next start";
  store.CheckInvariants();
}

TEST(ExtentStore, PutsNothingOnADrainingDevice) {
  ExtentStore store;
  store.AddDevice(2);
  store.AddDevice(2);
  store.SetDraining(0, true);
  const std::vector<Extent> extents = FillUp(&store, 512);
  EXPECT_EQ(extents.size(), 2u);
  for (const Extent& extent : extents) EXPECT_EQ(extent.device, 1);
  EXPECT_FALSE(store.HasRoom(1));
  store.SetDraining(0, false);
  EXPECT_TRUE(store.HasRoom(2 * kBlockSize));
  EXPECT_TRUE(store.Allocate(512));
}

TEST(ExtentStore, FreeBytesOfADrainingDeviceAreNotOffered) {
  ExtentStore store;
  store.AddDevice(2);
  store.AddDevice(1);
  EXPECT_EQ(store.UnusableNote(), "");
  store.SetDraining(0, true);
  EXPECT_EQ(store.total().free, 3 * kBlockSize);
  EXPECT_EQ(store.usable().free, kBlockSize);
  EXPECT_EQ(store.usable().capacity, kBlockSize);
  (void)store.Allocate(512);
  EXPECT_THAT(store.Allocate(1).error().message, HasSubstr("0 bytes of 2 MiB are free"));
  EXPECT_THAT(store.Allocate(1).error().message, HasSubstr("; 1 device of 4 MiB is draining and takes nothing;"));
  store.SetDraining(1, true);
  EXPECT_EQ(store.UnusableNote(), "; 2 devices of 6 MiB are draining and take nothing");
}

TEST(ExtentStore, StripesOverDevicesInRunsThatCanBecomeOneRequest) {
  ExtentStore store;
  for (int i = 0; i < 3; ++i) store.AddDevice(64);
  std::vector<uint16_t> devices;
  for (int i = 0; i < 12; ++i) devices.push_back(store.Allocate(512)->device);
  for (size_t i = 0; i < devices.size(); i += 2) EXPECT_EQ(devices[i], devices[i + 1]);
  EXPECT_EQ(std::set(devices.begin(), devices.end()).size(), 3u);
  for (uint16_t i = 0; i < 3; ++i) EXPECT_EQ(store.space(i).live, 4 * kBlockSize);
}

TEST(ExtentStore, FallsBackToWhicheverDeviceHasRoom) {
  ExtentStore store;
  store.AddDevice(1);
  store.AddDevice(8);
  EXPECT_EQ(FillUp(&store, 512).size(), 9u);
}

TEST(ExtentStore, TakesWhatAnIndexNamesAndRefusesOverlaps) {
  ExtentStore store;
  store.AddDevice(4);
  EXPECT_TRUE(store.Take({.run = {.block = 1, .page = 8, .pages = 16}}));
  EXPECT_EQ(store.Take({.run = {.block = 1, .page = 23, .pages = 1}}).error().code, Code::kCorrupt);
  EXPECT_TRUE(store.Take({.run = {.block = 1, .page = 24, .pages = 1}}));
  EXPECT_TRUE(store.Take({.run = {.block = 2, .page = 0, .pages = 512}}));
  EXPECT_EQ(store.space(0).live, (16 + 1 + 512) * kPageSize);
  store.CheckInvariants();
}

TEST(ExtentStore, RefusesExtentsThatNoDeviceCouldHold) {
  ExtentStore store;
  store.AddDevice(4);
  const Extent impossible[] = {{.run = {.block = 4, .page = 0, .pages = 1}},
                               {.run = {.block = 0, .page = 0, .pages = 0}},
                               {.run = {.block = 0, .page = 511, .pages = 2}},
                               {.run = {.block = 0, .page = 0, .pages = 513}},
                               {.run = {.block = 0, .page = 0, .pages = 1}, .device = 1}};
  for (const Extent& extent : impossible) EXPECT_EQ(store.Take(extent).error().code, Code::kCorrupt);
  EXPECT_EQ(store.space(0).live, 0u);
}

TEST(ExtentStoreDeathTest, AbortsOnAFreeOfWhatIsNotLive) {
  ExtentStore store;
  store.AddDevice(1);
  const Extent extent = *store.Allocate(8);
  store.Free(extent);
  EXPECT_DEATH(store.Free(extent), "live");
}

}  // namespace
}  // namespace tier::storage
