#include "daemon/engine_side.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "daemon/base/fault_guard.h"
#include "daemon/base/format_bytes.h"
#include "daemon/host_limits.h"
#include "daemon/session/engine_calls.h"
#include "daemon/session/line_file.h"
#include "daemon/session/quota_file.h"
#include "daemon/ssd_devices.h"
#include "proto/start_thread.h"

namespace tier {
namespace {

constexpr auto kDeviceLockRetry = std::chrono::milliseconds(10);
constexpr unsigned kWorkersMin = 1;  // Half of the processors, of two as well: the others are for those that wait.
constexpr unsigned kWorkersMax = 16;
constexpr unsigned kClosers = 2;

unsigned WorkerCount(const config::Config& config) {
  if (config.engine.workers != 0) return static_cast<unsigned>(config.engine.workers);
  return std::clamp(session::AllowedCpus() / 2, kWorkersMin, kWorkersMax);
}

Status StartThreads(const config::Config& config, EngineThreads* threads) {
  struct Pool {
    const char* name;
    unsigned count;
    proto::Urgency urgency;
    std::unique_ptr<base::Workers>* place;
  };
  const unsigned workers = WorkerCount(config);
  for (const Pool& pool : {Pool{"tierd-work", workers, proto::Urgency::kBulk, &threads->workers},
                           Pool{"tierd-make", workers, proto::Urgency::kWanted, &threads->makers},
                           Pool{"tierd-close", kClosers, proto::Urgency::kWanted, &threads->closers}}) {
    auto started = base::Workers::Start(pool.count, pool.name, pool.urgency);
    if (!started) return std::unexpected(std::move(started.error()));
    *pool.place = std::move(*started);
  }
  return {};
}

session::SpinMode SpinModeOf(const std::string& text) {
  if (text == "always") return session::SpinMode::kAlways;
  return text == "never" ? session::SpinMode::kNever : session::SpinMode::kAuto;
}

memory::HugePagePolicy HugePagesOf(const std::string& text) {
  if (text == "always") return memory::HugePagePolicy::kAlways;
  return text == "never" ? memory::HugePagePolicy::kNever : memory::HugePagePolicy::kAuto;
}

// "always" promises to refuse at the start, not in the middle of a training step.
Status CheckHugePages(memory::HugePagePolicy policy, uint64_t window_bytes, const memory::HostReading& host) {
  const uint64_t free = host.huge_page_size == kBlockSize ? host.huge_pages_free * kBlockSize : 0;
  if (policy != memory::HugePagePolicy::kAlways || free >= window_bytes) return {};
  return Fail(Code::kNoMemory,
              fmt::format("arena.huge_pages is \"always\" and {} of huge pages are free, where one window takes {}: "
                          "raise vm.nr_hugepages, or set it to \"auto\"",
                          base::FormatBytes(free), base::FormatBytes(window_bytes)));
}

storage::IoChoice IoChoiceOf(const std::string& text) {
  if (text == "io_uring") return storage::IoChoice::kUring;
  return text == "threads" ? storage::IoChoice::kThreads : storage::IoChoice::kAuto;
}

Status MakeDataDirectory(const std::string& directory) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(directory, error);
  if (error) {
    return Fail(Code::kDenied, fmt::format("cannot make the data directory {}: {}; set daemon.data_directory",
                                           directory, error.message()));
  }
  // No other user may read tensors.
  if (made) std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  return {};
}

bool IsOptional(const storage::SsdDeviceOptions& device) { return device.need == storage::Need::kIfPossible; }

// A killed predecessor's device is in use until its last request has landed; there is no event to wait for.
Result<std::unique_ptr<storage::SsdTier>> OpenSsd(storage::SsdTierOptions options, base::Workers& workers, bool wait) {
  options.open_until = options.now() + storage::kOpenWait;  // Once, however often it is opened.
  if (wait && options.on_wait) options.on_wait(kDeviceLockWait + 2 * storage::kOpenWait);
  const auto give_up = std::chrono::steady_clock::now() + (wait ? kDeviceLockWait : std::chrono::seconds(0));
  for (;;) {
    auto ssd = storage::SsdTier::Open(options, workers);
    const bool busy = !ssd && ssd.error().code == Code::kAlreadyExists;
    if (!busy || std::chrono::steady_clock::now() >= give_up) return ssd;
    std::this_thread::sleep_for(kDeviceLockRetry);
  }
}

// Of requests that name none.
uint32_t RequestTimeoutMs(const config::EngineConfig& engine) {
  return static_cast<uint32_t>(std::chrono::ceil<std::chrono::milliseconds>(engine.deadline).count());
}

}  // namespace

tiering::EngineOptions EngineOptionsOf(const config::Config& config) {
  tiering::EngineOptions options;
  options.deadline_default = config.engine.deadline;
  options.reclaim_deadline = config.jobs.reclaim_deadline;
  options.kills_keepers = config.jobs.kills_keepers();
  options.idle_after = config.jobs.idle_after;
  options.tensors_per_job_max = static_cast<uint32_t>(config.jobs.max_tensors);
  options.leases_per_session_max = static_cast<uint32_t>(config.jobs.max_leases);
  options.metadata_bytes_per_uid_max = config.jobs.max_metadata;
  options.write_behind_start = config.engine.write_behind;
  options.evict_start = config.engine.evict;
  options.prefetch_bytes_max = config.engine.prefetch_maximum;
  options.stall_threshold = config.jobs.stall_threshold;
  return options;
}

tiering::QuotaLimit SsdOfOneUser(const config::JobsConfig& jobs) {
  tiering::QuotaLimit limit;
  if (jobs.max_ssd_per_uid != 0) limit.most = jobs.max_ssd_per_uid;
  return limit;
}

tiering::QuotaLimit JobsOfOneUser(const config::JobsConfig& jobs) {
  tiering::QuotaLimit limit;
  limit.most = jobs.max_jobs_per_uid;
  return limit;
}

EngineSide::EngineSide(EngineThreads threads) : threads_(std::move(threads)) {}

EngineSide::~EngineSide() { Stop(); }

Result<std::unique_ptr<EngineSide>> EngineSide::Make(const config::Config& config, const DaemonPaths& paths,
                                                     const Incarnation& incarnation) {
  base::InstallFaultGuard();
  EngineThreads threads;
  if (auto ok = StartThreads(config, &threads); !ok) return std::unexpected(std::move(ok.error()));
  std::unique_ptr<EngineSide> side(new EngineSide(std::move(threads)));
  if (auto ok = side->OpenMemory(config); !ok) return std::unexpected(std::move(ok.error()));
  if (auto ok = side->OpenStorage(config, paths, incarnation); !ok) return std::unexpected(std::move(ok.error()));
  if (auto ok = side->MakeQuotas(config, paths); !ok) return std::unexpected(std::move(ok.error()));
  if (auto ok = side->MakeEngine(config, paths, incarnation.epoch); !ok) return std::unexpected(std::move(ok.error()));
  side->OpenReservations(paths);
  return side;
}

// By the memory that there was at the start, as all sizes of the arena are.
Result<memory::ArenaSizes> EngineSide::SizesOf(const config::ArenaConfig& arena) const {
  return ArenaSizesOn(host_at_start_, arena);
}

Status EngineSide::Check(const config::Config& next) const {
  const auto sizes = SizesOf(next.arena);
  return sizes ? Status() : std::unexpected(sizes.error());
}

Status EngineSide::OpenMemory(const config::Config& config) {
  auto host = memory::ReadHost();
  if (!host) return std::unexpected(host.error());
  host_at_start_ = std::move(*host);
  const auto sizes = SizesOf(config.arena);
  if (!sizes) return std::unexpected(sizes.error());
  memory::ArenaOptions options;
  options.sizes = *sizes;
  options.huge_pages = HugePagesOf(config.arena.huge_pages);
  if (auto there = CheckHugePages(options.huge_pages, sizes->window_size_min, host_at_start_); !there) return there;
  options.collapse = config.arena.collapse == "never" ? memory::CollapsePolicy::kNever : memory::CollapsePolicy::kAuto;
  if (auto there = CheckNumaNode(config.arena.numa_node); !there) return there;
  options.numa_node = static_cast<int>(config.arena.numa_node);
  // An empty closure wakes the engine, which then polls. A full mailbox means that it is awake.
  const auto wake = [this] { (void)mailbox_.TryPost([] {}); };
  options.on_event = wake;
  options.clock = &clock_;
  arena_ = std::make_unique<memory::Arena>(std::move(options), threads_.makers.get(), threads_.closers.get());
  copier_ = std::make_unique<memory::PageCopier>(threads_.workers.get(), wake);
  if (config.arena.prefault) prefault_bytes_ = sizes->max_bytes;
  return {};
}

Status EngineSide::OpenStorage(const config::Config& config, const DaemonPaths& paths, const Incarnation& incarnation) {
  storage::SsdTierOptions options;
  options.devices = SsdDevicesOf(config, paths);
  if (auto made = MakeDataDirectory(paths.data_directory); !made) {
    if (paths.persistent || !std::ranges::all_of(options.devices, IsOptional)) return made;
    if (!options.devices.empty()) options.no_device_reason = made.error().message;
    options.devices.clear();
  }
  options.io = IoChoiceOf(config.ssd.engine);
  options.io_depth = static_cast<uint32_t>(config.ssd.queue_depth);
  options.windows_max = std::min(arena_->windows_max() + 1, kWindowsMax);  // One for the move memory.
  options.window_bytes_max = arena_->arena_limit_bytes();
  options.discard_at_format = config.ssd.discard;
  options.data_dir = paths.persistent ? paths.data_directory : std::string();
  options.allow_any_file_system = config.ssd.any_file_system;
  options.on_wait = incarnation.on_wait;
  auto ssd = OpenSsd(options, *threads_.workers, incarnation.predecessor_crashed);
  if (!ssd) return std::unexpected(std::move(ssd.error()));
  ssd_ = std::move(*ssd);
  pinned_ = ssd_->pinned();
  drive_writes_.resize(ssd_->device_count());
  return {};
}

uint64_t EngineSide::WriteBudgetPerDay(const config::Config& config) const {
  uint64_t capacity = 0;
  for (uint16_t device = 0; device < ssd_->device_count(); ++device) capacity += ssd_->device(device).capacity;
  const double bytes = config.ssd.drive_writes_per_day * static_cast<double>(capacity);
  // A budget that rounds to nothing is still one.
  return bytes <= 0 ? 0 : std::max<uint64_t>(static_cast<uint64_t>(std::min(bytes, 0x1p60)), 1);
}

// An arena with as many windows as the devices know leaves it no index: then there is none.
Result<tiering::MoveMemory> EngineSide::MakeMoveMemory() {
  const bool used = ssd_->device_count() > 1 && ssd_->manifests() != nullptr && arena_->windows_max() < kWindowsMax;
  if (!used) return tiering::MoveMemory{};
  constexpr uint64_t kSize = tiering::kMoveBlocks * kBlockSize;
  move_memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageSize, kSize)));
  if (move_memory_ == nullptr) {
    return Fail(Code::kNoMemory, fmt::format("the system gives no {} of address space", base::FormatBytes(kSize)));
  }
  return tiering::MoveMemory{
      .address = move_memory_.get(), .size = kSize, .window = WindowIndex{arena_->windows_max()}};
}

Status EngineSide::MakeQuotas(const config::Config& config, const DaemonPaths& paths) {
  session::QuotaBookOptions options{
      .table = config.quota, .ssd = SsdOfOneUser(config.jobs), .jobs = JobsOfOneUser(config.jobs), .file = {}};
  if (paths.persistent) options.file = session::QuotasPath(paths.data_directory);
  auto stored = options.file.empty() ? Result<session::QuotaOverrides>() : session::LoadQuotas(options.file);
  if (!stored) return std::unexpected(std::move(stored.error()));
  const std::string owners = paths.persistent ? session::OwnersPath(paths.data_directory) : std::string();
  auto known = owners.empty() ? Result<session::OwnerRecords>() : session::LoadOwners(owners);
  if (!known) return std::unexpected(std::move(known.error()));
  owners_ = std::make_unique<session::OwnerTable>(owners, std::move(*known));
  users_ = std::make_unique<session::OwnerDirectory>(*owners_, system_users_);
  quotas_ = std::make_unique<session::QuotaBook>(std::move(options), std::move(*stored), *users_, clock_);
  return {};
}

// Where the file of owners was lost, or is an older copy, no owner gets the number, and with it what is there, of
// another.
void EngineSide::ExcludeNumbersOfOwners(const std::vector<session::Reservation>& reservations) {
  for (const session::Reservation& reservation : reservations) owners_->Exclude(reservation.uid);
  for (const session::QuotaRow& row : quotas_->List()) {
    const auto uid = row.level == tiering::QuotaLevel::kUser ? session::NumberOf<uint32_t>(row.name) : std::nullopt;
    if (uid) owners_->Exclude(*uid);
  }
  for (const tiering::StoredManifest& stored : engine_->StoredManifests("", SIZE_MAX)) {
    if (const auto owner = session::ParseQualifiedName(stored.key)) owners_->Exclude(owner->first);
  }
}

// One that cannot be opened, as a quota or the arena is smaller now, stays reserved.
void EngineSide::OpenReservations(const DaemonPaths& paths) {
  if (!paths.persistent) return;
  const std::string path = paths.data_directory + "/reservations";
  session::StoredReservations stored = session::LoadReservations(path);
  if (!stored.warning.empty()) spdlog::warn("{}", stored.warning);
  ExcludeNumbersOfOwners(stored.reservations);
  for (const session::Reservation& reservation : stored.reservations) {
    quotas_->Learn(reservation.uid);
    const Status opened = jobs_->Restore(reservation, clock_.Now());
    if (opened) continue;
    spdlog::warn(
        "job '{0}' is reserved for uid {1} and cannot be opened now: {2}; it is tried again every {3} s, and at each "
        "start (tierctl job remove {1}/{0} gives it up)",
        reservation.name, reservation.uid, opened.error().message,
        session::kRefusedReservationRetry / std::chrono::seconds(1));
  }
  auto known = stored.warning.empty() ? std::optional(std::move(stored.reservations)) : std::nullopt;
  reservations_ = std::make_unique<session::ReservationFile>(path, std::move(known));
}

Status EngineSide::MakeEngine(const config::Config& config, const DaemonPaths& paths, uint64_t epoch) {
  auto page = session::EnginePageOwner::Make(epoch);
  if (!page) return std::unexpected(std::move(page.error()));
  page_ = std::make_unique<session::EnginePageOwner>(std::move(*page));
  const session::SessionTableOptions table = {.sessions_max = static_cast<uint32_t>(config.jobs.max_sessions),
                                              .one_user = config.daemon.is_private,
                                              .request_timeout_ms = RequestTimeoutMs(config.engine),
                                              .owners = owners_.get()};
  sessions_ = std::make_unique<session::SessionTable>(table, poller_, *arena_);
  tiering::EngineOptions options = EngineOptionsOf(config);
  options.hash_seed = tokens_.Random();
  options.write_budget_per_day = WriteBudgetPerDay(config);
  const auto move_memory = MakeMoveMemory();
  if (!move_memory) return std::unexpected(move_memory.error());
  engine_ = std::make_unique<tiering::Engine>(options, tiering::EnginePorts{.windows = *arena_,
                                                                            .extents = ssd_->extents(),
                                                                            .transfers = ssd_->transfers(),
                                                                            .manifests = ssd_->manifests(),
                                                                            .replies = *sessions_,
                                                                            .move_memory = *move_memory,
                                                                            .copier = copier_.get()});
  const auto only_uid = config.daemon.is_private ? std::optional(::geteuid()) : std::nullopt;
  const session::JobRegistryOptions jobs = {.jobs_per_uid_max = static_cast<uint32_t>(config.jobs.max_jobs_per_uid),
                                            .persistent = paths.persistent,
                                            .has_ssd = ssd_->device_count() != 0,
                                            .only_uid = only_uid};
  registry_ = std::make_unique<session::JobRegistry>(jobs, tokens_);
  jobs_ = std::make_unique<session::JobService>(*engine_, *registry_, events_, quotas_.get(), owners_.get());
  loop_ = std::make_unique<session::EngineLoop>(
      session::EngineLoopParts{.engine = *engine_,
                               .sessions = *sessions_,
                               .jobs = *jobs_,
                               .mailbox = mailbox_,
                               .page = *page_,
                               .poller = poller_,
                               .clock = clock_,
                               .rest = &rest_},
      session::SpinPolicy(SpinModeOf(config.engine.spin), session::AllowedCpus()));
  return loop_->AddWakeup(ssd_->completion_fd(), [this] { ssd_->ClearWakeup(); });
}

void EngineSide::TakeOver(const config::Config& config) {
  tiering::EngineOptions options = EngineOptionsOf(config);
  options.write_budget_per_day = WriteBudgetPerDay(config);
  engine_->SetOptions(options);
  arena_->SetHostLimits(SizesOf(config.arena).value());  // Check has found them.
  loop_->SetSpin(SpinModeOf(config.engine.spin));
  sessions_->SetTerms(static_cast<uint32_t>(config.jobs.max_sessions), RequestTimeoutMs(config.engine));
}

void EngineSide::SampleHost() {
  arena_->StartSample();
  const memory::PressureFigures figures{.arena_bytes = arena_->arena_bytes(),
                                        .given_back_bytes = arena_->given_back_bytes()};
  auto due = pressure_report_.Note(arena_->pressure(), figures, arena_->PressureText(), clock_.Now());
  if (due) events_.Emit("host_memory", nullptr, std::move(*due));
  if (arena_->host().cgroup.unreadable == unreadable_) return;
  unreadable_ = arena_->host().cgroup.unreadable;
  if (!unreadable_.empty()) {
    events_.Emit("io_error", nullptr,
                 fmt::format("the limit in {} makes no sense and is left out: it is no number", unreadable_));
  }
}

void EngineSide::Refresh() {
  arena_->SetMetadata(engine_->HeldMetadata());
  arena_->StartRefresh();
  for (uint16_t device = 0; device < drive_writes_.size(); ++device)
    drive_writes_[device].Note(ssd_->transfers().traffic(device).written_bytes, clock_.Now());
  if (!prefault_report_.ended()) {
    const session::PrefaultFigures prefault = Prefault();
    if (auto due = prefault_report_.Note(prefault.done_bytes, prefault.target_bytes)) {
      events_.Emit("prefault", nullptr, std::move(*due));
    }
  }
  if (const uint64_t failures = arena_->create_failures(); failures != create_failures_) {
    create_failures_ = failures;
    events_.Emit("window_failed", nullptr, arena_->last_failure());
  }
  if (const bool pinned = ssd_->pinned(); pinned != pinned_) {
    pinned_ = pinned;
    events_.Emit(pinned ? "pinned" : "unpinned", nullptr,
                 pinned ? "memory mode pinned: every window is registered for I/O again"
                        : "memory mode unpinned: " + ssd_->unpinned_reason());
  }
  if (std::string lost = ssd_->quarantine_failure(); lost != quarantine_failure_) {
    if (!lost.empty()) {
      events_.Emit("io_error", nullptr,
                   "quarantined places are not written down, and the next start tries them again: " + lost);
    }
    quarantine_failure_ = std::move(lost);
  }
  std::string failure = ssd_->superblock_failure();
  if (failure == superblock_failure_) return;
  events_.Emit(failure.empty() ? "superblock" : "io_error", nullptr,
               failure.empty() ? "every superblock names the index's last commit again"
                               : "a manifest is committed, but a superblock does not name it yet: " + failure);
  superblock_failure_ = std::move(failure);
}

session::PrefaultFigures EngineSide::Prefault() const {
  const memory::ArenaSnapshot snapshot = arena_->snapshot();
  return {.done_bytes = snapshot.prefault_done_bytes, .target_bytes = snapshot.prefault_target_bytes};
}

session::HostShortage EngineSide::Shortage() const {
  return {.why = arena_->pressure().active() ? arena_->PressureText() : std::string(),
          .count = arena_->pressure().count(),
          .given_back_bytes = arena_->given_back_bytes(),
          .daemon_own_bytes = arena_->host().own_bytes};
}

double EngineSide::DriveWritesPerDay(uint16_t device) const {
  return drive_writes_.at(device).PerDay(ssd_->device(device).capacity);
}

std::string EngineSide::HugePageMode() const {
  const memory::ArenaSnapshot snapshot = arena_->snapshot();
  if (snapshot.owned_bytes + snapshot.stock_bytes == 0) return "none";
  if (snapshot.huge_page_bytes > 0) return "hugetlb";
  return snapshot.made.collapsed_bytes > 0 ? "thp" : "small";
}

Status EngineSide::Start(session::SessionNotices& notices) {
  sessions_->Connect(*jobs_, notices);
  // Signals are the main thread's: it has a descriptor for them. Faults of our own must end us, not be held back; and
  // the fault guard lives on them.
  auto thread = proto::StartThread(
      "tierd-engine", proto::BlockedSignals::kAsynchronous, [this] { loop_->Run(); }, proto::Urgency::kFirst);
  if (!thread) return std::unexpected(std::move(thread.error()));
  thread_ = std::move(*thread);
  return {};
}

Status EngineSide::StartPrefault() {
  if (prefault_bytes_ == 0) return {};
  return session::EngineCalls(mailbox_).Ask<void>([this] { return arena_->StartPrefault(prefault_bytes_); });
}

void EngineSide::Stop() {
  if (!thread_.joinable()) return;
  loop_->Stop();
  (void)mailbox_.TryPost([] {});  // Wakes it; when the box is full it is awake.
  thread_.join();
}

}  // namespace tier
