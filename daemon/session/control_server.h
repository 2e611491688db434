// ControlServer: ControlApi over the engine thread. Each call posts a closure to the mailbox and waits for its result;
// the closure checks the caller's rights in the registry, on the thread where these cannot change meanwhile. What is
// "of the engine thread" below runs there, or elsewhere while that sleeps (engine_rest.h).
//
// Any thread but the engine's. Stop the callers before the engine loop: a call that the engine thread does not run ends
// with TIMEOUT after kAnswerTimeout.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/mailbox.h"
#include "daemon/session/control_api.h"
#include "daemon/session/degraded.h"
#include "daemon/session/drain_control.h"
#include "daemon/session/engine_calls.h"
#include "daemon/session/job_names.h"
#include "daemon/session/owner_control.h"
#include "daemon/session/owner_words.h"
#include "daemon/session/pool_description.h"
#include "daemon/session/quota_control.h"
#include "daemon/session/reservation_file.h"
#include "daemon/session/session_table.h"
#include "daemon/session/settings.h"
#include "daemon/session/snapshot_rate.h"
#include "daemon/session/stored_control.h"

namespace tier::session {

// Longer, a thread that took figures was kept from its processor.
inline constexpr base::Duration kSnapshotLongest = std::chrono::milliseconds(100);
// Of figures of the engine (SnapshotRate), and of views of its pool.
inline constexpr uint32_t kSnapshotsPerTickMax = 4;
inline constexpr int kSnapshotTimeShare = 10;
inline constexpr uint32_t kPoolViewsPerTickMax = 4;
inline constexpr int kPoolViewTimeShare = 50;

struct HostFigures {
  uint64_t available_bytes = 0;
  double psi_memory_some_ratio = 0;
};

// What does not change while the daemon runs.
struct DaemonFacts {
  std::string version;
  uint64_t epoch = 0;
  std::string io_mode;
  std::string ssd_mode;
  std::string ssd_mode_reason;
  bool is_private = false;
  std::string socket_directory;
  std::string data_directory;
  std::vector<DeviceDescription> devices;  // Without their figures.
  std::function<HostFigures()> read_host;
  // Of the windows that there are; engine thread.
  std::function<std::string()> huge_page_mode;
  std::function<std::string()> memory_mode;
  std::function<std::string()> memory_mode_reason;
  std::function<PrefaultFigures()> prefault;
  std::function<HostShortage()> shortage;
  std::function<double(uint16_t device)> drive_writes_per_day;
  std::function<std::optional<DeviceSmart>(const std::string& path)> smart;  // Any thread.
  std::function<std::string()> spin_mode;                                    // Any thread, as the next ones.
  std::function<uint64_t()> spin_pauses;
  std::function<std::string()> metrics_address;  // A reload may move it.
  std::function<std::optional<ReloadFailure>()> reload_failure;
};

struct ControlServerParts {
  base::Mailbox& mailbox;
  JobService& jobs;  // Touched only in closures, as are the sessions.
  SessionTable& sessions;
  EventLog& events;
  const base::Clock& clock;
  QuotaBook* quotas = nullptr;  // Null: there are none. What blocks there is called on the caller's thread.
  SettingsAccess settings{};
  // Applies quotas that are stored once the engine answers again; and tells watchers so. May be empty.
  std::function<void(const std::string& what)> apply_quotas_later;
  EngineRest* rest = nullptr;    // Null: the engine thread is woken for each look.
  OwnerTable* owners = nullptr;  // Null: there are none, and no sockets of them.
  OwnerSockets* sockets = nullptr;
  UserDirectory* users = nullptr;           // The system's.
  ReservationFile* reservations = nullptr;  // Null: they end with the daemon.
  // Each time that the causes, or their figures, are others: what makes it degraded now; empty: nothing. Engine thread.
  std::function<void(const std::string& text)> on_degraded;
};

class ControlServer final : public ControlApi {
 public:
  ControlServer(DaemonFacts facts, const ControlServerParts& parts);

  Result<JobDescription> OpenJob(const Caller& caller, const OpenJobRequest& request) override;
  Status CloseJob(const Caller& caller, const std::string& name, const JobClosing& closing) override;
  Result<JobDescription> SetJob(const Caller& caller, const std::string& name,
                                const tiering::TermsChange& change) override;
  Result<std::vector<JobDescription>> ListJobs(const Caller& caller) override;
  std::string NameOwners(const Caller& caller, std::string refusal) const override {
    return session::NameOwners(std::move(refusal), parts_.owners,
                               caller.admin ? std::nullopt : std::optional(caller.uid));
  }
  uint64_t epoch() const override { return facts_.epoch; }
  Result<std::vector<StoredManifestDescription>> ListStoredManifests(const Caller& caller, const std::string& after,
                                                                     size_t max) override;
  Result<std::vector<UnopenedReservationDescription>> ListUnopenedReservations(const Caller& caller,
                                                                               const std::string& after,
                                                                               size_t max) override;
  Result<tiering::TensorPage> ListTensors(const Caller& caller, const std::string& job, uint32_t from,
                                          size_t max) override;
  Result<DaemonDescription> Describe() override;
  Result<NodeObservation> Observe() override;
  Result<PoolDescription> DescribePool(const Caller& caller) override;
  Result<QuotaReport> ListQuotas(const Caller& caller) override;
  Status SetQuota(const Caller& caller, const QuotaTarget& target, const QuotaFields& fields) override;
  Status ClearQuota(const Caller& caller, const QuotaTarget& target) override;
  Result<StallReport> ListStalls(const Caller& caller, const std::string& job) override;
  Result<SettingsReport> ListOptions(const Caller& caller) override;
  Result<OptionState> SetOption(const Caller& caller, const std::string& name, const std::string& value) override;
  Result<OwnerSocket> OpenSocket(const Caller& caller, const std::string& owner) override;
  Status CloseSocket(const Caller& caller, const std::string& owner, bool purge) override;
  Result<std::vector<OwnerSocket>> ListSockets(const Caller& caller) override;
  Result<Drained> Drain(const Caller& caller, const std::string& job, std::chrono::milliseconds timeout) override;
  Status Undrain(const Caller& caller) override;
  Status DrainDevice(const Caller& caller, uint16_t device, bool draining) override;
  Status RetryDevice(const Caller& caller, uint16_t device) override;
  Result<std::vector<std::string>> PurgeDevice(const Caller& caller, const std::string& uuid) override;
  Result<std::shared_ptr<void>> Watch(const Caller& caller, std::function<void(const Event&)> callback) override;
  Result<std::shared_ptr<void>> WatchFrom(const Caller& caller, uint64_t since,
                                          std::function<void(const Event&)> callback) override;
  std::vector<Event> RecentEvents(const Caller& caller, uint64_t since) override;

  // The engine's figures, not older than others asked for them. Engine thread.
  std::shared_ptr<const tiering::EngineSnapshot> Figures();
  // Compares the engine's figures with those of the last call and tells watchers what became worse. Engine thread,
  // about every second; does nothing while there is no watcher.
  void EmitChanges();
  // As DrainControl has them.
  void RestoreDrain() { drain_.Restore(); }
  void TellRestoredDrain() { drain_.TellRestored(); }
  // The daemon ends: it drains, and cannot be undrained.
  void SetStopping() { drain_.SetStopping(); }
  bool draining() const { return drain_.draining(); }

 private:
  // What of a description the engine thread has.
  struct PartOfEngine {
    std::shared_ptr<const tiering::EngineSnapshot> figures;
    DaemonDescription modes;           // Modes(), and what else changes; no more.
    std::vector<double> drive_writes;  // By device, a day. Empty: not known.
    std::vector<RecentFaults> faults;  // By device.
  };
  struct ObservedJob {  // What the registry has of one.
    uint64_t id = 0;
    std::string name;
    uint32_t uid = 0;
    bool reserved = false;
    bool named = false;
    int32_t world_size = 0;
  };

  std::string OwnerOf(uint32_t uid) const { return parts_.owners == nullptr ? "" : parts_.owners->NameOf(uid); }
  // DENIED: the name of this owner was given up; the caller's connection is older than that.
  Status CheckCaller(const Caller& caller) const;
  Status KeepReservations();
  Result<JobDescription> GiveUpReservation(const JobDescription& job, const std::optional<Reservation>& before,
                                           const Error& why);
  Result<JobDescription> WithOwner(Result<JobDescription> job) const;
  // The log of events knows users by number alone.
  std::function<void(const Event&)> WithOwners(std::function<void(const Event&)> callback) const {
    if (parts_.owners == nullptr) return callback;
    return [owners = parts_.owners, callback = std::move(callback)](Event event) {
      NameOwner(*owners, &event);
      callback(event);
    };
  }
  static void NameOwner(const OwnerTable& owners, Event* event) {
    if (event->uid) event->owner = owners.NameOf(*event->uid);
  }
  std::shared_ptr<const PoolSnapshot> Pool();  // Engine thread.
  void EmitDevice(size_t device, const tiering::DeviceView& now);
  void EmitCorrupt(const tiering::EngineSnapshot& snapshot);
  DaemonDescription Modes() const;                   // Of SSD and memory; no more. Engine thread.
  PartOfEngine TakePart();                           // Engine thread.
  DaemonDescription Whole(PartOfEngine part) const;  // On the caller's thread.
  void AddDevices(const tiering::EngineSnapshot& snapshot, DaemonDescription* description) const;
  void AddOtherParts(DaemonDescription* description) const;
  void EmitDegraded(const tiering::EngineSnapshot& snapshot);
  Result<JobDescription> ChangeJob(const Caller& caller, const std::string& name, const tiering::TermsChange& change);
  Result<StallReport> StallsOf(const Caller& caller, const std::string& name);
  static JobDescription Describe(const Job& job, const tiering::JobCounters& counters);

  const DaemonFacts facts_;
  ControlServerParts parts_;
  EngineCalls calls_;
  const JobNames names_;
  StoredControl stored_;
  QuotaControl quotas_;
  OwnerControl owners_;
  DrainControl drain_;
  const base::TimePoint started_;
  std::shared_ptr<const tiering::EngineSnapshot> figures_;  // Engine thread, as those below. Null: none were taken.
  SnapshotRate snapshot_rate_{kSnapshotsPerTickMax, kSnapshotTimeShare};
  std::shared_ptr<const PoolSnapshot> pool_;  // Null: none was taken.
  SnapshotRate pool_rate_{kPoolViewsPerTickMax, kPoolViewTimeShare};
  std::shared_ptr<const tiering::EngineSnapshot> looked_at_;  // Of the last EmitChanges.
  uint64_t torn_seen_ = 0;
  uint64_t waiting_seen_ = 0;
  std::vector<tiering::DeviceView> devices_seen_;
  std::vector<DeviceFaults> faults_;  // By device.
  // Corrupt pieces that watchers were told of: by job and device, and by device.
  std::map<std::pair<tiering::JobId, uint16_t>, uint64_t> corrupt_seen_;
  std::vector<uint64_t> corrupt_told_;
  std::array<bool, kDegradedCauses> degraded_seen_{};
  std::string degraded_text_;
};

}  // namespace tier::session
