// Simulation: an engine, its fakes and its clients, run from one plan. See README.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/hostile_client.h"
#include "tests/support/storage/fake_manifest_store.h"
#include "tests/support/storage/fake_transfer.h"
#include "tests/support/tiering/fake_copier.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/transfer_check.h"

namespace tier::tiering::sim {

struct Outcome {
  std::optional<std::string> finding;  // What went wrong first.
  uint64_t turns = 0;
  uint64_t answered = 0;
  uint64_t granted = 0;
  uint64_t killed = 0;
  uint64_t revoked = 0;  // Sessions that the daemon ended.
  uint64_t sleeps = 0;   // Of the engine.
  uint64_t swapped_in_bytes = 0;
  uint64_t moves = 0;  // In RAM …
  uint64_t cancelled_moves = 0;
  uint64_t hand_over_moves = 0;  // … of these to empty windows, …
  uint64_t left_by_moves = 0;    // … and windows that these have emptied.
  uint64_t shortages = 0;        // Times that the arena was above what the host had for it …
  uint64_t paid = 0;             // … and came down to that.
  uint64_t quota_changes = 0;
  uint64_t quota_refusals = 0;  // Requests that a quota refused.
  std::string codes;            // Of creates and acquires: "OK 12 TIMEOUT 3 ...".
};

class Simulation final : private DaemonEvents {
 public:
  explicit Simulation(const Plan& plan);
  ~Simulation() override;
  Outcome Run();

 private:
  struct Job {
    uint64_t id = 0;
    uint32_t uid = 0;
    std::string name;
    std::string token;
    bool named = false;
    bool open = false;
    uint64_t closed_until = 0;  // Turn before which no session opens it.
    bool resuming = false;      // A session is attaching, and waits for it to come back.
    bool interlude = false;     // An ephemeral run under the name of a named job that is closed.
    std::string Key() const;
  };
  // DaemonEvents.
  void OnSubmit(SessionId session, uint64_t sequence) override;
  void OnTurnEnd() override;
  void OnAnswer(SessionId session, const Reply& reply) override;
  void OnWindowSent(SessionId session, const memory::WindowShape& window,
                    std::shared_ptr<const proto::FileDescriptor> file) override;
  void OnWindowAskedBack(SessionId session, WindowIndex window) override;
  void OnEnd(SessionId session, Code code, const std::string& reason) override;

  void CheckEnd(SessionId session, const std::string& reason);
  void MakeSurroundings();
  // Each client by chance listens and acts.
  void Round();
  bool IsStopped(uint64_t session, SimClient& client);
  // Time goes on; the engine has a turn unless it sleeps.
  void TakeTurn();
  void Attach();
  session::OpenJobRequest PlanJob(Job& job);
  void OnAttached(Job& job, SessionId session, const session::OpenJobRequest& open, Result<AttachedSession> attached);
  void AttachHostile();
  Link* FindLink(SessionId session);
  uint64_t SomeLease();
  LinkOptions Options() const;
  void Kill(uint64_t session);
  void KillOne();
  void Detach(uint64_t session, const std::string& reason);
  void DetachHostile(uint64_t session);
  void Mishap();
  void DeviceMishap();
  // The host has memory for another part of the arena.
  void HostMishap();
  // A user has other quotas.
  void QuotaMishap();
  void CheckQuota(uint32_t uid, const QuotaLimit& ram);
  void CountQuotaRefusal(const Reply& reply);
  void NoteHost();
  void WindDown();
  // No lease, no request, and a host that has no memory: whatever can go goes.
  void PressAtEnd();
  void DeleteStoredManifests();
  bool AtRest() const;
  void CheckHeld();
  void CheckEmpty();
  void Fail(const std::string& finding);

  Plan plan_;
  Chance chance_;
  memory::testing::FakeWindowSource windows_;
  storage::ExtentStore extents_;
  storage::testing::FakeTransferPort transfers_;
  memory::testing::FakeCopier copier_;
  storage::testing::FakeManifestStore manifests_;
  testing::TransferCheck transfer_check_;
  std::unique_ptr<std::byte[]> move_memory_;
  base::TimePoint now_{std::chrono::seconds(1)};
  DaemonSide daemon_;
  std::unique_ptr<Engine> engine_;
  ModelTable model_;
  std::unique_ptr<Surroundings> surroundings_;
  std::vector<Job> jobs_;
  // By session. A client that sleeps while it is killed stays until it has seen that.
  std::map<uint64_t, std::shared_ptr<SimClient>> clients_;
  std::map<uint64_t, std::unique_ptr<HostileClient>> hostiles_;
  std::string hostile_token_;
  bool punched_ = false;
  bool short_of_memory_ = false;                // The arena is above what the host has for it.
  bool host_was_read_ = false;                  // That wakes the engine.
  std::map<uint64_t, uint64_t> stopped_until_;  // Turns, by session: clients that are stopped.
  bool somebody_sleeps_ = false;
  uint64_t engine_turns_ = 0;
  uint64_t next_id_ = 1;
  uint64_t next_tensor_ = 1;
  ContentTable contents_;
  uint32_t next_seed_ = 1;
  uint64_t next_swap_ = 1;
  Outcome outcome_;
};

}  // namespace tier::tiering::sim
