// EngineSide: everything that belongs to the engine thread, put together: arena, SSD tier, engine, jobs,
// sessions and the loop that runs them. Made on the main thread before the engine thread starts, destroyed there after
// it has ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/workers.h"
#include "daemon/config/config.h"
#include "daemon/daemon_paths.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/page_copier.h"
#include "daemon/memory/prefault_report.h"
#include "daemon/memory/pressure_report.h"
#include "daemon/session/engine_loop.h"
#include "daemon/session/engine_rest.h"
#include "daemon/session/event_log.h"
#include "daemon/session/job_registry.h"
#include "daemon/session/job_service.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/reservation_file.h"
#include "daemon/session/session_table.h"
#include "daemon/storage/drive_writes.h"
#include "daemon/storage/ssd_tier.h"
#include "daemon/tiering/api/engine_port.h"
#include "daemon/tiering/engine.h"

namespace tier {

// How long to wait for the devices of a predecessor that was killed: its last requests land after it is gone, and only
// then does the kernel let go of its lock (seen: 4 s).
inline constexpr auto kDeviceLockWait = std::chrono::seconds(15);

// A shortage of the host's memory is noticed in less than a second: stalls need two readings.
inline constexpr auto kHostSampleInterval = std::chrono::milliseconds(250);

struct Incarnation {
  uint64_t epoch = 0;
  bool predecessor_crashed = false;
  // Told where the start takes time: it goes on for so long at most, or says so again before.
  std::function<void(base::Duration)> on_wait{};
};

struct EngineThreads {
  std::unique_ptr<base::Workers> workers;  // Checksums, copies.
  std::unique_ptr<base::Workers> makers;   // For windows that a job waits for.
  std::unique_ptr<base::Workers> closers;  // For windows that are closed, and readings of the host.
};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// What the options say that the engine takes over while it runs too.
tiering::EngineOptions EngineOptionsOf(const config::Config& config);
// What the options say of a user for whom no quota says anything.
tiering::QuotaLimit SsdOfOneUser(const config::JobsConfig& jobs);
tiering::QuotaLimit JobsOfOneUser(const config::JobsConfig& jobs);

class EngineSide {
 public:
  // Opens the devices and their index of manifests; each refusal is one sentence that says what to do.
  static Result<std::unique_ptr<EngineSide>> Make(const config::Config& config, const DaemonPaths& paths,
                                                  const Incarnation& incarnation);
  ~EngineSide();

  // Starts the thread; NO_MEMORY if the system gives none. `notices` outlives it.
  Status Start(session::SessionNotices& notices);
  // Makes windows ahead, where the configuration says so; NO_MEMORY as Arena::StartPrefault. Behind all else of a
  // start, as it takes all processors. REQUIRES: the thread runs.
  Status StartPrefault();
  // Ends and joins it.
  void Stop();

  // INVALID: the arena cannot be so on this machine. Any thread.
  Status Check(const config::Config& next) const;
  // Those of its options that change at run time. REQUIRES: Check found them possible. Engine thread.
  void TakeOver(const config::Config& config);
  // Once a second, on the engine thread.
  void Refresh();
  // Every kHostSampleInterval, on the engine thread.
  void SampleHost();
  std::string HugePageMode() const;  // Engine thread, as the next.
  session::PrefaultFigures Prefault() const;
  session::HostShortage Shortage() const;
  double DriveWritesPerDay(uint16_t device) const;
  // Nothing is in flight on any device; only then may this be destroyed. Engine thread, or after Stop.
  bool quiet() const { return ssd_->transfers().inflight() == 0 && !ssd_->transfers().probing(); }

  base::Mailbox& mailbox() { return mailbox_; }
  session::EngineRest& rest() { return rest_; }
  const base::Clock& clock() const { return clock_; }
  session::SessionTable& sessions() { return *sessions_; }
  session::JobService& jobs() { return *jobs_; }
  session::QuotaBook& quotas() { return *quotas_; }
  session::OwnerTable& owners() { return *owners_; }
  session::UserDirectory& system_users() { return system_users_; }
  session::ReservationFile* reservations() { return reservations_.get(); }  // Null: the daemon keeps nothing.
  session::EventLog& events() { return events_; }
  tiering::EnginePort& engine() { return *engine_; }
  session::EnginePageOwner& page() { return *page_; }
  const session::EngineLoop& loop() const { return *loop_; }
  memory::Arena& arena() { return *arena_; }
  storage::SsdTier& ssd() { return *ssd_; }

 private:
  explicit EngineSide(EngineThreads threads);
  Result<memory::ArenaSizes> SizesOf(const config::ArenaConfig& arena) const;
  Status OpenMemory(const config::Config& config);
  Status OpenStorage(const config::Config& config, const DaemonPaths& paths, const Incarnation& incarnation);
  Result<tiering::MoveMemory> MakeMoveMemory();
  uint64_t WriteBudgetPerDay(const config::Config& config) const;  // Bytes. 0: no budget.
  Status MakeQuotas(const config::Config& config, const DaemonPaths& paths);
  Status MakeEngine(const config::Config& config, const DaemonPaths& paths, uint64_t epoch);
  // Before the engine thread starts.
  void OpenReservations(const DaemonPaths& paths);
  void ExcludeNumbersOfOwners(const std::vector<session::Reservation>& reservations);

  // In the order of what needs what; destroyed in the opposite one.
  base::SteadyClock clock_;
  base::Mailbox mailbox_;
  session::EngineRest rest_;
  EngineThreads threads_;
  memory::HostReading host_at_start_;  // Set by OpenMemory, and never again.
  std::unique_ptr<memory::Arena> arena_;
  std::unique_ptr<memory::PageCopier> copier_;
  std::unique_ptr<std::byte, FreeMemory> move_memory_;  // Untouched before a device is drained; never pinned.
  std::unique_ptr<storage::SsdTier> ssd_;
  std::vector<storage::DriveWrites> drive_writes_;  // By device. Engine thread.
  session::EventLog events_{session::EventLog::SequenceOfNow()};
  std::string quarantine_failure_;
  std::string superblock_failure_;  // As last told. Engine thread, as the next.
  bool pinned_ = false;
  uint64_t create_failures_ = 0;  // Of windows.
  uint64_t prefault_bytes_ = 0;   // Set by OpenMemory.
  memory::PrefaultReport prefault_report_;
  memory::PressureReport pressure_report_;
  std::string unreadable_;  // A file of a control group, as last told.
  session::KernelTokenSource tokens_;
  session::Poller poller_;
  std::unique_ptr<session::EnginePageOwner> page_;
  std::unique_ptr<session::SessionTable> sessions_;
  std::unique_ptr<tiering::Engine> engine_;
  session::SystemUserDirectory system_users_;
  std::unique_ptr<session::OwnerTable> owners_;
  std::unique_ptr<session::OwnerDirectory> users_;
  std::unique_ptr<session::QuotaBook> quotas_;
  std::unique_ptr<session::JobRegistry> registry_;
  std::unique_ptr<session::JobService> jobs_;
  std::unique_ptr<session::ReservationFile> reservations_;
  std::unique_ptr<session::EngineLoop> loop_;
  std::thread thread_;
};

}  // namespace tier
