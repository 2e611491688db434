// ControlApi: what gRPC, metrics and tools may ask of a running daemon. Callable from any thread: each call is carried
// to the engine thread and waits for the answer (never longer than a turn), so callers keep no locks.
//
// Identity: `Caller` is established by the control layer from the kernel (SO_PEERCRED at accept) and the job token; the
// rules (may this caller touch this job?) are applied here, once, by the code that serves the handshake as well.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/session/control_calls.h"
#include "daemon/session/device_faults.h"
#include "daemon/session/quota_table.h"
#include "daemon/session/settings.h"
#include "daemon/storage/smart_log.h"
#include "daemon/tiering/api/options.h"
#include "daemon/tiering/api/snapshot.h"
#include "proto/handshake.h"
#include "proto/result.h"

namespace tier::session {

struct Caller {
  uint32_t uid = ~0u;  // ~0u: unknown; then only the token speaks for it.
  bool admin = false;  // Came by the admin socket: root or group `tierd`.
  std::string token;   // Job token, may be empty.
};

// The fields of Hello and of control.proto's OpenJobRequest: one struct, one validation (ValidateOpenJob).
struct OpenJobRequest {
  std::string name;    // Empty: derived ("job-" + 8 random hexadecimal digits).
  std::string token;   // Empty: a new job makes one.
  std::string launch;  // Hello alone has it: what all ranks of one launch share. Empty with a token.
  proto::OpenMode mode = proto::OpenMode::kAttach;
  bool named = false;
  int32_t rank = -1;
  int32_t client_pid = 0;  // Of the process that attaches, as the kernel says, whatever Hello does; control.proto: 0.
  int32_t world_size = 0;
  uint64_t guarantee_bytes = 0;
  uint64_t limit_bytes = 0;
  uint64_t ssd_guarantee_bytes = 0;  // Hello has neither of these two: control.proto alone.
  uint64_t ssd_limit_bytes = 0;
  std::optional<uint32_t> owner;  // Whose job it is; absent: the caller's. Of admins alone, and without a session.

  // Asks for what the job persisted.
  bool resumes() const { return mode == proto::OpenMode::kResume || mode == proto::OpenMode::kResumeOrCreate; }
};
// INVALID naming the field and what is allowed.
Status ValidateOpenJob(const OpenJobRequest& request);

// A process that is attached to a job.
struct JobSession {
  uint64_t id = 0;
  int32_t rank = -1;
  int64_t client_pid = 0;  // 0: it is in a pid namespace that cannot be seen from here.
};

struct JobDescription {
  uint64_t id = 0;
  std::string name;
  uint32_t uid = 0;
  std::string owner;      // Whose socket this uid stands for; empty: it is a user of the system.
  bool reserved = false;  // It waits for its owner's first run.
  bool named = false;
  int32_t world_size = 0;
  std::vector<int32_t> ranks;          // Of live sessions, -1 for those without.
  std::vector<JobSession> sessions{};  // By id, with `ranks`.
  std::string token;                   // Only for its owner and admins, else empty.
  tiering::JobCounters counters;
  std::map<int, uint64_t> node_bytes{};  // Only in NodeObservation: of its windows, by NUMA node.
};

// What a job that is not open persisted, for its next run.
struct StoredManifestDescription {
  uint32_t uid = 0;
  std::string owner;  // As JobDescription has it.
  std::string name;
  uint64_t ssd_bytes = 0;
  std::string damage;                     // Why it cannot be resumed; empty: it can.
  std::vector<std::string> lost_devices;  // Uuids of missing devices without which it is lost.

  std::string QualifiedName() const { return std::to_string(uid) + "/" + name; }
};

// A job that is reserved for its user's first run, and not open.
struct UnopenedReservationDescription {
  uint32_t uid = 0;
  std::string owner;  // As JobDescription has it.
  std::string name;
  bool named = false;
  tiering::TermsChange terms;  // All of them.
  std::string why;             // It is not open.

  std::string QualifiedName() const { return std::to_string(uid) + "/" + name; }
};

// What tierd-smart found out of a device.
struct DeviceSmart {
  storage::SmartFigures figures;
  int64_t read_time = 0;  // Seconds of the Unix epoch.
  bool stale = false;     // Read so long ago that it may be wrong by now.

  int celsius() const { return int{figures.temperature_kelvin} - storage::kKelvinOfZeroCelsius; }
};

struct DeviceDescription {
  uint16_t index = 0;
  std::string path;
  std::string uuid;
  bool block_device = false;
  tiering::DeviceView now;
  RecentFaults recent_faults;
  std::optional<DeviceSmart> smart;  // None: nothing is known.
  double drive_writes_per_day = 0;   // In the last 24 hours, or since the start. 0: not known yet.
  uint64_t drive_bytes = 0;          // Of the whole drive below. 0: not known.
};

struct PrefaultFigures {  // Bytes. Without arena.prefault both are 0.
  uint64_t done_bytes = 0;
  uint64_t target_bytes = 0;  // Falls, as the other one may, by what was closed before a job had it.
};

// What a shortage of the host's memory does to the arena.
struct HostShortage {
  std::string why;                // Empty: there is none.
  uint64_t count = 0;             // Shortages since start in which the arena gave memory back.
  uint64_t given_back_bytes = 0;  // Since start.
  uint64_t daemon_own_bytes = 0;  // Heap, tables, stacks and page tables of the daemon.
};

struct DaemonDescription {
  std::string version;
  uint64_t epoch = 0;
  int64_t pid = 0;
  double uptime_seconds = 0;
  std::string io_mode;             // "io_uring" or "threads"
  std::string memory_mode;         // "pinned" or "unpinned"
  std::string memory_mode_reason;  // Why "unpinned"; empty: it is pinned.
  std::string ssd_mode;            // "full", "reduced", "none"
  std::string ssd_mode_reason;     // Why not "full"; empty: as configured.
  std::string spin_mode;           // As configured: "auto", "always", "never"
  std::string huge_page_mode;      // "hugetlb", "thp", "small"; "none": there is no window
  bool draining = false;           // No new jobs and processes are taken, until it is undrained; or it stops.
  bool is_private = false;
  std::string socket_directory;
  std::string data_directory;                   // Empty: none.
  std::string metrics_address;                  // ADDRESS:PORT; empty: none.
  std::optional<ReloadFailure> reload_failure;  // Of the configuration, until a reload succeeds.
  tiering::EngineSnapshot engine;
  std::vector<DeviceDescription> devices;
  double observed_seconds = 0;  // What figures for others took of the engine thread, or kept it from waking.
  uint64_t spin_pauses = 0;     // Spins that ended because another thread had the processor.
  PrefaultFigures prefault;
  HostShortage shortage;
  uint64_t host_available_bytes = 0;
  double psi_memory_some_ratio = 0;
};

// Whose windows are shown together: those of one job that the caller may see, of all other jobs, or of jobs that have
// ended, which go back to the arena.
enum class PoolOwnerKind : uint8_t { kJob, kOtherUsers, kEnded };

struct PoolOwner {
  PoolOwnerKind kind = PoolOwnerKind::kJob;
  std::string job;  // With kJob alone, as `uid`.
  uint32_t uid = 0;
  tiering::PoolFigures figures;
};

struct PoolWindow {
  tiering::WindowView now;
  uint32_t owner = 0;  // Its place in PoolDescription::owners.
};

struct PoolDescription {
  uint64_t arena_bytes = 0;
  uint64_t arena_max_bytes = 0;
  uint64_t stock_bytes = 0;         // As in tiering::PoolView.
  uint64_t kept_bytes = 0;          // The same.
  std::vector<PoolOwner> owners;    // Jobs by name and uid; then the others, and the ended, where there are any.
  std::vector<PoolWindow> windows;  // By place; those that are being made have none, and come last.
};

struct Event {
  uint64_t sequence = 0;  // Rises with each event of the daemon, whether this watcher may see it or not.
  int64_t unix_time_ms = 0;
  std::string kind;  // job_opened job_closed job_changed job_purged device_purged quota_changed session_attached
                     // session_ended session_revoked pressure io_error corrupt torn drain draining undrained degraded
                     // recovered forced_return prefault host_memory config_changed socket_opened socket_closed …;
                     // events_lost: some up to this number are missing here
  std::string job;   // Name, or empty.
  std::string message;            // One sentence.
  std::optional<uint32_t> uid{};  // Whose job it is. None: it is of no job.
  std::string owner{};            // As JobDescription has it.
};

// The node as of one moment, for who watches all of it.
struct NodeObservation {
  DaemonDescription daemon;
  std::vector<JobDescription> jobs;  // By id, with the counters of daemon.engine; without tokens and ranks.
};

class ControlApi {
 public:
  virtual ~ControlApi() = default;
  virtual Result<JobDescription> OpenJob(const Caller& caller, const OpenJobRequest& request) = 0;
  virtual Status CloseJob(const Caller& caller, const std::string& name, const JobClosing& closing) = 0;
  virtual Result<JobDescription> SetJob(const Caller& caller, const std::string& name,
                                        const tiering::TermsChange& change) = 0;
  // A refusal with owners by name: all of them for administrators, an owner's own for itself.
  virtual std::string NameOwners(const Caller& caller, std::string refusal) const = 0;
  virtual uint64_t epoch() const = 0;                                              // Of this start of the daemon.
  virtual Result<std::vector<JobDescription>> ListJobs(const Caller& caller) = 0;  // Those it may see, by id.
  // Those of the caller's uid, for an admin of all uids, by qualified name, at most `max`: those behind the name
  // `after`; empty: from the first on.
  virtual Result<std::vector<StoredManifestDescription>> ListStoredManifests(const Caller& caller,
                                                                             const std::string& after, size_t max) = 0;
  // The same of reservations that are not open, by uid and name.
  virtual Result<std::vector<UnopenedReservationDescription>> ListUnopenedReservations(const Caller& caller,
                                                                                       const std::string& after,
                                                                                       size_t max) = 0;
  // At most `max`, more than 0, in no order. `from`: 0, or TensorPage::next of the page before. Where nothing is left,
  // next is 0.
  virtual Result<tiering::TensorPage> ListTensors(const Caller& caller, const std::string& job, uint32_t from,
                                                  size_t max) = 0;
  virtual Result<DaemonDescription> Describe() = 0;
  // The same with all jobs, in one call of the engine. Calls that come close together get the same figures.
  virtual Result<NodeObservation> Observe() = 0;
  // What each job holds of the arena, and each window. Jobs that the caller may not see are one owner without a name.
  // Calls that come close together get the same answer.
  virtual Result<PoolDescription> DescribePool(const Caller& caller) = 0;
  // What users with jobs have, and may have; for an admin of all users, and all quotas that there are. Else of the
  // caller's uid alone.
  virtual Result<QuotaReport> ListQuotas(const Caller& caller) = 0;
  // Admins only. What is set is durable, and holds for open jobs too, when it returns. Refusals: those of QuotaBook.
  virtual Status SetQuota(const Caller& caller, const QuotaTarget& target, const QuotaFields& fields) = 0;
  virtual Status ClearQuota(const Caller& caller, const QuotaTarget& target) = 0;
  // Requests of the job that wait, or waited, for longer than EngineOptions::stall_threshold.
  virtual Result<StallReport> ListStalls(const Caller& caller, const std::string& job) = 0;
  // The options of the daemon; for an admin with what the configuration file says, which is read for that.
  virtual Result<SettingsReport> ListOptions(const Caller& caller) = 0;
  // Admins only. The option as it is then, in all of the daemon, until the next reload or restart. INVALID,
  // DISCONNECTED or TIMEOUT.
  virtual Result<OptionState> SetOption(const Caller& caller, const std::string& name, const std::string& value) = 0;
  // Admins only, and not on a private daemon. The owner of a new name has a uid of its own, as durable as the socket:
  // it is there again after a restart. INVALID: the name is none, or that of a user of the system. TIMEOUT: it may be
  // that of one, as the user database does not answer.
  virtual Result<OwnerSocket> OpenSocket(const Caller& caller, const std::string& owner) = 0;
  // Nothing connects by it when it returns; what is connected goes on. `purge`: the owner's name is given up too, and
  // its connections end; DENIED while it has jobs, open or reserved, or persisted tensors, and TIMEOUT while these are
  // being closed, written or removed: then the socket is closed all the same, and the name stays.
  virtual Status CloseSocket(const Caller& caller, const std::string& owner, bool purge) = 0;
  virtual Result<std::vector<OwnerSocket>> ListSockets(const Caller& caller) = 0;  // By name.
  // Blocks until every session of the job has written its dirty pieces to SSD. Job empty: of all jobs; and no new job
  // or process is taken until Undrain, also where the writes fail. Those that are there go on.
  virtual Result<Drained> Drain(const Caller& caller, const std::string& job, std::chrono::milliseconds timeout) = 0;
  // New jobs and processes are taken again; also where they were before.
  virtual Status Undrain(const Caller& caller) = 0;
  // Empties a device, or uses it again.
  virtual Status DrainDevice(const Caller& caller, uint16_t device, bool draining) = 0;
  // Gives up a missing device and what jobs persisted on it: these jobs, as "uid/name". The rest as
  // EnginePort::PurgeDevice.
  virtual Result<std::vector<std::string>> PurgeDevice(const Caller& caller, const std::string& uuid) = 0;
  // Has its quarantined places tried again, and its faults up to now make the daemon degraded no more.
  virtual Status RetryDevice(const Caller& caller, uint16_t device) = 0;
  // Calls back on a private thread for each event the caller may see until the subscription object is destroyed.
  // NO_MEMORY: too many watch already.
  virtual Result<std::shared_ptr<void>> Watch(const Caller& caller, std::function<void(const Event&)> callback) = 0;
  // As Watch, but first come the events behind `since` that are kept, and events_lost in place of those that are gone.
  virtual Result<std::shared_ptr<void>> WatchFrom(const Caller& caller, uint64_t since,
                                                  std::function<void(const Event&)> callback) = 0;
  // These alone. 0: all that are kept.
  virtual std::vector<Event> RecentEvents(const Caller& caller, uint64_t since) = 0;
};

}  // namespace tier::session
