// Simulation: an engine, its fakes and its clients, run from one plan. See README.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/client.h"
#include "tests/support/storage/fake_manifest_store.h"
#include "tests/support/storage/fake_transfer.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/transfer_check.h"

namespace tier::tiering::sim {

struct Outcome {
  std::optional<std::string> finding;  // What went wrong first.
  uint64_t turns = 0;
  uint64_t answered = 0;
  uint64_t granted = 0;
  uint64_t killed = 0;
  uint64_t swapped_in_bytes = 0;
  std::string codes;  // Of creates and acquires: "OK 12 TIMEOUT 3 ...".
};

class Simulation final : public ReplySink {
 public:
  explicit Simulation(const Plan& plan);
  ~Simulation() override;
  Outcome Run();

  void OnReply(SessionId session, const Reply& reply) override;
  void OnWindow(SessionId session, const memory::WindowShape& window) override;
  void OnWindowReturn(SessionId session, WindowIndex window) override;
  void OnSessionEnded(SessionId session, Code code, const std::string& reason) override;

 private:
  struct Job {
    uint64_t id = 0;
    std::string key;
    bool named = false;
    bool open = false;
    bool interlude = false;  // An ephemeral run under the name of a named job that is closed.
  };
  void TakeTurn();
  void Attach();
  void OpenJob(Job& job);
  void Kill(uint64_t session);
  void Mishap();
  void WindDown();
  bool AtRest() const;
  void CheckEmpty();
  void Fail(const std::string& finding);

  Plan plan_;
  Chance chance_;
  memory::testing::FakeWindowSource windows_;
  storage::ExtentStore extents_;
  storage::testing::FakeTransferPort transfers_;
  storage::testing::FakeManifestStore manifests_;
  testing::TransferCheck transfer_check_;
  std::unique_ptr<Engine> engine_;
  base::TimePoint now_{std::chrono::seconds(1)};
  ModelTable model_;
  std::unique_ptr<Surroundings> surroundings_;
  std::vector<Job> jobs_;
  std::map<uint64_t, SimClient> clients_;  // By session.
  std::vector<std::pair<uint64_t, uint32_t>> asked_back_;
  std::vector<uint64_t> ended_;
  bool punched_ = false;
  uint64_t next_id_ = 1;
  uint64_t next_tensor_ = 1;
  uint32_t next_seed_ = 1;
  uint64_t next_swap_ = 1;
  Outcome outcome_;
};

}  // namespace tier::tiering::sim
