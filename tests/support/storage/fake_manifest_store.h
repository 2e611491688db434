// FakeManifestStore: a ManifestStore in ordinary memory, for the simulator and engine tests. Deterministic; the
// committed state can be handed to the next engine, as after a restart.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/storage/manifest_store.h"

namespace tier::storage::testing {

class FakeManifestStore final : public ManifestStore {
 public:
  using Contents = std::map<std::string, std::vector<std::byte>, std::less<>>;
  using Quarantines = std::map<uint16_t, std::vector<base::PageRun>>;
  explicit FakeManifestStore(std::shared_ptr<Contents> committed = nullptr, std::shared_ptr<Contents> extents = nullptr,
                             std::shared_ptr<Quarantines> quarantines = nullptr);

  void StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest,
                std::vector<std::byte> extents) override;
  void StartErase(uint64_t cookie, std::string job) override;
  void Discard(std::shared_ptr<void>) override {}
  void StartLoad(uint64_t cookie, std::string job) override;
  void StartPurge(uint64_t cookie, std::string device_uuid) override;
  void Poll(std::vector<ManifestResult>* results) override;
  Result<std::vector<std::byte>> Load(std::string_view job) const override;
  Result<std::vector<std::byte>> LoadExtents(std::string_view job) const override;
  Result<std::vector<std::string>> Jobs() const override;
  std::string failure() const override;
  // At once.
  void StartQuarantine(uint16_t device, std::vector<base::PageRun> places) override;
  std::vector<base::PageRun> Quarantined(uint16_t device) const override;

  // Devices of this run have these stored numbers, and others are missing.
  void SetDevices(const DeviceNumbers& numbers, std::vector<MissingDevice> missing) {
    device_numbers_ = numbers;
    missing_ = std::move(missing);
  }
  // The script. Each request takes `turns` further calls of Poll before it is answered (0: at the next Poll).
  void SetDelay(uint32_t turns) { delay_turns_ = turns; }
  void FailNext(Code code, std::string message);  // The next request ends like this and changes nothing.
  // The outcome of the next change is unknown, and every later request is refused. `made`: the next daemon finds it.
  void LoseNext(bool made) { lose_next_ = made; }
  void Crash() { queue_.clear(); }  // The daemon dies: what was not committed never will be.
  const std::shared_ptr<Contents>& shared_contents() const { return committed_; }  // Manifests.
  const std::shared_ptr<Contents>& shared_extents() const { return extents_; }     // Lists of their extents.
  const std::shared_ptr<Quarantines>& shared_quarantines() const { return quarantines_; }
  // Manifests that a machine which crashes now may come back with: the committed ones, and those that wait.
  template <typename Visit>
  void ForEachThatMayBeFound(Visit visit) const {
    for (const auto& [job, manifest] : *committed_) visit(manifest);
    for (const std::vector<std::byte>& manifest : doubtful_) visit(manifest);
    for (const Request& request : queue_) {
      if (request.kind == Request::Kind::kPut) visit(request.manifest);
    }
  }
  uint64_t commit() const { return commit_; }
  bool lost() const { return lost_; }                 // The outcome of some commit is unknown.
  bool under_way() const { return !queue_.empty(); }  // Some requests are not committed yet.

 private:
  struct Request {
    uint64_t cookie = 0;
    std::string job;  // Of a purge: the uuid of the device.
    std::vector<std::byte> manifest;
    std::vector<std::byte> extents;
    enum class Kind : uint8_t { kPut, kErase, kLoad, kPurge } kind = Kind::kPut;
    uint64_t due_turn = 0;
  };
  void Enqueue(Request request);
  void Commit(Request request);
  ManifestResult Lose(Request request);
  ManifestResult Purge(const Request& request);
  std::shared_ptr<Contents> committed_;
  std::shared_ptr<Contents> extents_;
  std::shared_ptr<Quarantines> quarantines_;
  std::deque<Request> queue_;
  std::deque<Error> failures_;
  std::optional<bool> lose_next_;
  bool lost_ = false;
  std::vector<std::vector<std::byte>> doubtful_;  // The other one of two manifests.
  uint32_t delay_turns_ = 0;
  uint64_t turn_ = 0;
  uint64_t commit_ = 0;
};

}  // namespace tier::storage::testing
