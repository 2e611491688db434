// What has to be true at the end of a simulation. See simulation.h.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "daemon/tiering/durability/manifest_codec.h"
#include "tests/sim/simulation.h"

namespace tier::tiering::sim {
namespace {

constexpr uint32_t kPressTurns = 1200;

}  // namespace

// What the manifests name that the next daemon may find stays; else nothing does. (What the job of a lost commit held
// besides stays too.)
void Simulation::CheckHeld() {
  const uint64_t live = extents_.total().live;
  if (!manifests_.lost()) {
    if (live != 0) Fail(fmt::format("{} bytes are live on SSD", live));
    return;
  }
  storage::ExtentStore next;
  for (uint16_t device = 0; device < plan_.devices; ++device) next.AddDevice(plan_.device_blocks);
  manifests_.ForEachThatMayBeFound([&](const std::vector<std::byte>& bytes) {
    const Result<Manifest> manifest = DecodeManifest(bytes);
    if (!manifest) return Fail("a manifest cannot be read: " + manifest.error().message);
    for (const ManifestTensor& tensor : manifest->tensors) {
      for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
        const storage::Extent extent = ExtentOf(piece);
        // Two manifests of one job may name it: it is taken once.
        (void)(extent.scattered ? next.Take(extent, RunsIn(*manifest, piece)) : next.Take(extent));
      }
    }
  });
  for (uint16_t device = 0; device < plan_.devices; ++device) {
    const uint64_t named = next.space(device).live;
    if (extents_.space(device).live < named) {
      Fail(
          fmt::format("{} bytes are live on device {}, manifests name {}", extents_.space(device).live, device, named));
    }
  }
}

void Simulation::PressAtEnd() {
  windows_.SetArenaMax(0);
  host_was_read_ = true;
  for (uint32_t turn = 0; turn < kPressTurns && !outcome_.finding && windows_.arena_bytes() != 0; ++turn) {
    for (const auto& [session, client] : clients_) client->Listen();
    TakeTurn();
  }
  // What is torn or was never completed stays in RAM, as what is leased does; and windows in huge pages are not the
  // host's memory.
  const auto stays = [](const TensorView& tensor) { return !tensor.sealed || tensor.torn || tensor.lease_count != 0; };
  const auto may_stay = [&](const WindowView& window) {
    if (window.condition != PoolCondition::kReady || window.job == JobId{}) return true;
    if (plan_.huge_pages && window.kind == WindowKind::kBlock) return true;
    return std::ranges::any_of(engine_->Tensors(window.job, 0, SIZE_MAX).tensors, stays);
  };
  for (const WindowView& window : engine_->Pool().windows) {
    if (may_stay(window)) continue;
    Fail(
        fmt::format("window {} of job {} stays with {} pages in use, though nothing is leased and the host has no "
                    "memory",
                    tier::Value(window.index), static_cast<uint64_t>(window.job),
                    std::accumulate(window.used_pages.begin(), window.used_pages.end(), 0u)));
  }
  windows_.SetArenaMax(plan_.arena_max_bytes);
}

void Simulation::CheckEmpty() {
  const EngineSnapshot snapshot = engine_->Snapshot();
  if (snapshot.tensor_count != 0)
    Fail(fmt::format("{} tensors are left, {} leases", snapshot.tensor_count, snapshot.lease_count));
  if (snapshot.lease_count != 0) Fail(fmt::format("{} leases are left", snapshot.lease_count));
  if (snapshot.waiting_count != 0) Fail(fmt::format("{} requests still wait", snapshot.waiting_count));
  if (windows_.window_count() != 0) Fail(fmt::format("{} windows are left", windows_.window_count()));
  CheckHeld();
  if (extents_.total().pending != 0) Fail(fmt::format("{} bytes wait for the end of a turn", extents_.total().pending));
  if (daemon_.sessions() != 0) Fail(fmt::format("{} sessions are left", daemon_.sessions()));
  if (!engine_->idle()) Fail("the engine is not idle");
  if (transfers_.memory_changes() != 0) Fail("memory changed while it was being written out");
}

}  // namespace tier::tiering::sim
