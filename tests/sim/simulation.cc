// See simulation.h.
#include "tests/sim/simulation.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "libclient/client/invariant.h"

namespace tier::tiering::sim {
namespace {

constexpr uint32_t kWindDownTurnsMax = 20000;
constexpr uint32_t kRestTurns = 2000;  // In which all that is left is freed, one piece in a turn.
constexpr uint32_t kWindowsPerSimulation = 64;
constexpr uint32_t kHostileUid = 77;

std::vector<uint64_t> IdsOf(const auto& sessions) {
  std::vector<uint64_t> ids;
  for (const auto& [session, client] : sessions) ids.push_back(session);
  return ids;
}

}  // namespace

Simulation::Simulation(const Plan& plan)
    : plan_(plan),
      chance_(plan.seed ^ 0x5deece66d),
      windows_({.window_size = plan.window_size,
                .slot_window_size = plan.slot_window_size,
                .window_size_min = plan.several_sizes ? kBlockSize : 0,
                .arena_max_bytes = plan.arena_max_bytes,
                .windows_max = kWindowsPerSimulation,
                .delay_turns = plan.window_delay_turns,
                .page_size = static_cast<uint32_t>(plan.huge_pages ? kBlockSize : kPageSize),
                .memory_files = true,
                .by_readings = plan.by_readings}),
      transfers_({.seed = plan.seed,
                  .inflight_max = plan.inflight_max,
                  .device_count = plan.devices,
                  .delay_turns_min = 0,
                  .delay_turns_max = plan.delay_turns_max}),
      copier_({.seed = plan.seed, .delay_turns_max = plan.copy_delay_turns_max}),
      move_memory_(std::make_unique_for_overwrite<std::byte[]>(plan.move_blocks * kBlockSize)),
      daemon_(windows_, now_, *this) {
  using storage::Direction;
  using storage::TransferOutcome;
  client::SetAbortOnBrokenInvariant(true);
  for (uint16_t device = 0; device < plan.devices; ++device) extents_.AddDevice(plan.device_blocks);
  transfers_.SetRemoveDelay(plan.remove_delay_turns);
  transfers_.SetFaultRate({Direction::kWrite, TransferOutcome::kDeviceError, 5}, plan.write_errors);
  transfers_.SetFaultRate({Direction::kRead, TransferOutcome::kDeviceError, 5}, plan.read_errors);
  transfers_.SetFaultRate({Direction::kWrite, TransferOutcome::kNoSpace, 28}, plan.no_space);
  transfers_.SetFaultRate({Direction::kRead, TransferOutcome::kCorrupt, 0}, plan.corruptions);
  EngineOptions options{.deadline_default = std::chrono::milliseconds(100),
                        .reclaim_deadline = std::chrono::milliseconds(plan.reclaim_deadline_ms),
                        .idle_after = std::chrono::milliseconds(plan.idle_after_ms),
                        .work = plan.work};
  if (plan.metadata_bytes != 0) options.metadata_bytes_per_uid_max = plan.metadata_bytes;
  engine_ = std::make_unique<Engine>(options, EnginePorts{.windows = windows_,
                                                          .extents = extents_,
                                                          .transfers = transfers_,
                                                          .manifests = plan.manifests ? &manifests_ : nullptr,
                                                          .replies = daemon_,
                                                          .move_memory = {.address = move_memory_.get(),
                                                                          .size = plan.move_blocks * kBlockSize,
                                                                          .window = WindowIndex{kWindowsPerSimulation}},
                                                          .copier = &copier_});
  daemon_.Connect(*engine_);
  MakeSurroundings();
  transfers_.WatchSubmits([this] {
    if (transfers_.inflight() == 0) return;  // There is nothing to compare.
    if (const auto overwrite = transfer_check_.AtSubmit(engine_->NamedPlaces(), transfers_, manifests_))
      Fail(*overwrite);
  });
  jobs_.resize(plan.jobs);
}

Simulation::~Simulation() = default;

void Simulation::MakeSurroundings() {
  surroundings_ = std::make_unique<Surroundings>(Surroundings{
      .plan = plan_,
      .chance = chance_,
      .model = model_,
      .now = now_,
      .turns = engine_turns_,
      .address = [this](uint32_t window, uint64_t offset) { return windows_.address(WindowIndex{window}) + offset; },
      .fail = [this](const std::string& finding) { Fail(finding); },
      .failed = [this] { return outcome_.finding.has_value(); },
      .step =
          [this] {
            Round();
            Mishap();
            DeviceMishap();
            DeviceMishap();
            HostMishap();
            QuotaMishap();
            TakeTurn();
          },
      .window_returned = [this](SessionId session, WindowIndex window) { daemon_.GiveWindowBack(session, window); },
      .punched = punched_,
      .contents = contents_,
      .next_seed = next_seed_,
      .next_swap = next_swap_,
      .next_tensor = next_tensor_,
      .somebody_sleeps = somebody_sleeps_});
}

void Simulation::Fail(const std::string& finding) {
  const char* const state = daemon_.asleep() ? " (the engine sleeps)" : "";
  if (!outcome_.finding) outcome_.finding = fmt::format("turn {}{}: {}", outcome_.turns, state, finding);
}

std::string Simulation::Job::Key() const { return fmt::format("{}/{}", uid, name); }

session::OpenJobRequest Simulation::PlanJob(Job& job) {
  const bool persisted = job.named && manifests_.Load(job.Key()).has_value();
  if (job.interlude && !persisted) Fail("an ephemeral job took the manifest of an earlier run with it");
  job.interlude = persisted && chance_.OneIn(4);
  if (job.name.empty()) {
    const uint64_t number = next_id_++;
    job.name = fmt::format("job-{}", number);
    job.uid = static_cast<uint32_t>(number % 3);
  }
  job.named = job.named || (plan_.manifests && chance_.OneIn(2));
  session::OpenJobRequest open{.name = job.name, .token = {}, .launch = {}, .named = job.named && !job.interlude};
  if (persisted && !job.interlude) open.mode = proto::OpenMode::kResume;
  if (chance_.OneIn(4)) open.limit_bytes = chance_.Between(1, 4) * plan_.window_size;
  const uint64_t most = open.limit_bytes == 0 ? plan_.arena_max_bytes : open.limit_bytes;
  if (plan_.guarantees && chance_.OneIn(2)) open.guarantee_bytes = chance_.Between(1, most);
  if (plan_.ssd_terms) {
    const uint64_t devices = uint64_t{plan_.devices} * plan_.device_blocks * kBlockSize;
    if (chance_.OneIn(2)) open.ssd_limit_bytes = chance_.Between(1, devices);
    const uint64_t limit = open.ssd_limit_bytes == 0 ? devices : open.ssd_limit_bytes;
    if (chance_.OneIn(2)) open.ssd_guarantee_bytes = chance_.Between(1, limit);
  }
  return open;
}

LinkOptions Simulation::Options() const {
  return {
      .page = daemon_.page(), .windows_max = kWindowsPerSimulation, .address_space = windows_.address_space_bytes()};
}

void Simulation::Attach() {
  Job& job = jobs_[plan_.clients == plan_.jobs ? clients_.size() % jobs_.size() : chance_.Below(jobs_.size())];
  if (job.resuming || outcome_.turns < job.closed_until) return;
  const SessionId session{next_id_++};
  session::OpenJobRequest open{.name = job.name, .token = job.token, .launch = {}, .named = job.named};
  if (!job.open) open = PlanJob(job);
  job.resuming = open.mode == proto::OpenMode::kResume;
  daemon_.Attach(session, job.uid, open, [this, &job, session, open](Result<AttachedSession> attached) {
    job.resuming = false;
    OnAttached(job, session, open, std::move(attached));
  });
}

void Simulation::OnAttached(Job& job, SessionId session, const session::OpenJobRequest& open,
                            Result<AttachedSession> attached) {
  if (!attached) {
    const Code code = attached.error().code;
    // Its manifest takes more than the user may have, or its guarantee more than others leave.
    if (code == Code::kNoMemory && (plan_.metadata_bytes != 0 || open.guarantee_bytes != 0)) return;
    if (code == Code::kNoSpace && open.ssd_guarantee_bytes != 0) return;
    const bool explained = !job.open && (code == Code::kTimeout || code == Code::kAlreadyExists ||
                                         (code == Code::kIoError && manifests_.lost()));
    if (!explained) Fail("a session could not be opened: " + attached.error().message);
    return;
  }
  job.open = true;
  job.id = attached->job;
  job.token = attached->token;
  clients_.emplace(static_cast<uint64_t>(session),
                   std::make_shared<SimClient>(*surroundings_, session, std::move(*attached), Options()));
}

void Simulation::AttachHostile() {
  const SessionId session{next_id_++};
  if (hostiles_.empty()) hostile_token_.clear();
  const session::OpenJobRequest open{.name = "hostile", .token = hostile_token_, .launch = {}};
  daemon_.Attach(session, kHostileUid, open, [this, session](Result<AttachedSession> attached) {
    if (!attached) {
      if (attached.error().code != Code::kNoMemory) Fail("a session could not be opened: " + attached.error().message);
      return;
    }
    hostile_token_ = attached->token;
    hostiles_.emplace(static_cast<uint64_t>(session),
                      std::make_unique<HostileClient>(
                          now_, chance_, [this] { return SomeLease(); }, std::move(*attached), Options()));
  });
}

uint64_t Simulation::SomeLease() {
  return clients_.empty() ? 0 : clients_.begin()->second->some_lease() + chance_.Below(3);
}

Link* Simulation::FindLink(SessionId session) {
  const auto id = static_cast<uint64_t>(session);
  if (const auto client = clients_.find(id); client != clients_.end()) return &client->second->link();
  const auto hostile = hostiles_.find(id);
  return hostile == hostiles_.end() ? nullptr : &hostile->second->link();
}

// The client's process is gone and, with the last of an ephemeral job, the job.
void Simulation::Kill(uint64_t session) {
  hostiles_.erase(session);
  const auto found = clients_.find(session);
  if (found == clients_.end()) return;
  const std::shared_ptr<SimClient> client = found->second;
  client->Die();
  client->link().channel().End(Code::kDisconnected, "the session is over");
  const uint64_t job_id = client->job();
  outcome_.answered += client->answered();
  outcome_.granted += client->granted();
  clients_.erase(found);
  const bool last =
      std::none_of(clients_.begin(), clients_.end(), [&](const auto& entry) { return entry.second->job() == job_id; });
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& each) { return each.id == job_id; });
  if (!last || job == jobs_.end() || (job->named && !job->interlude)) return;
  model_.RemoveJob(job_id);
  job->open = false;
  if (!job->interlude) job->name.clear();
}

void Simulation::KillOne() {
  const uint64_t session = std::next(clients_.begin(), static_cast<ptrdiff_t>(chance_.Below(clients_.size())))->first;
  Detach(session, "killed");
  ++outcome_.killed;
}

void Simulation::DetachHostile(uint64_t session) {
  daemon_.Detach(SessionId{session}, "killed");
  Kill(session);
}

// What it has sent before its end counts: what it released is released.
void Simulation::Detach(uint64_t session, const std::string& reason) {
  const std::shared_ptr<SimClient> client = clients_.at(session);
  daemon_.Detach(SessionId{session}, reason);
  if (!client->heard() && !client->broke_protocol()) Fail("what a client sent before its end was not heard");
  Kill(session);
}

void Simulation::Mishap() {
  if (outcome_.turns == plan_.lost_commit_turn && plan_.lost_commit_turn != 0) {
    manifests_.LoseNext(plan_.lost_commit_made);
  }
  if (plan_.kill_one_in != 0 && chance_.OneIn(plan_.kill_one_in) && !clients_.empty()) KillOne();
  if (plan_.punch_one_in != 0 && chance_.OneIn(plan_.punch_one_in)) {
    const uint32_t window = static_cast<uint32_t>(chance_.Below(kWindowsPerSimulation));
    if (windows_.ready(WindowIndex{window})) {
      transfers_.PunchWindow(WindowIndex{window});
      // What lies in it and is on SSD nowhere may tear; a named job's tensors outlive the sessions that this ends.
      punched_ = true;
      // Where there are no pages left to fill it with, a worker that touches the hole faults.
      if (copier_.inflight() != 0 && chance_.OneIn(2)) {
        copier_.FaultNext(chance_.OneIn(2) ? memory::CopyOutcome::kSourceFault : memory::CopyOutcome::kTargetFault);
      }
      for (const auto& [key, tensor] : model_.tensors()) {
        tensor->tainted = true;
        tensor->doubtful.assign(tensor->doubtful.size(), true);
      }
    }
  }
  if (plan_.manifests && chance_.OneIn(plan_.close_one_in)) {
    Job& job = jobs_[chance_.Below(jobs_.size())];
    if (!job.open || !job.named || job.interlude) return;
    daemon_.CloseJob(job.id, "closed by the operator", false);
    model_.RemoveJob(job.id);
    job.open = false;
    job.closed_until = outcome_.turns + plan_.closed_turns;
  }
  if (chance_.OneIn(40)) windows_.FailNext(1);
  if (!plan_.several_sizes) return;
  if (chance_.OneIn(20)) windows_.SetSmallestWished(kBlockSize << chance_.Below(3));
  if (chance_.OneIn(20)) windows_.SetMergedWished(chance_.OneIn(2) ? 0 : 4 * kBlockSize << chance_.Below(2));
  if (chance_.OneIn(40)) windows_.HalveNext(1);
}

void Simulation::DeviceMishap() {
  const auto device = static_cast<uint16_t>(chance_.Below(plan_.devices));
  if (plan_.device_fault_one_in != 0 && chance_.OneIn(plan_.device_fault_one_in)) {
    switch (chance_.Below(6)) {
      case 0: transfers_.FailDevice(device, EIO); break;
      case 1: transfers_.FailDevice(device, ETIMEDOUT); break;
      case 2: transfers_.FailWritesOf(device, EIO); break;
      case 3: transfers_.HangDevice(device); break;
      default: transfers_.HealDevice(device);
    }
  }
  if (plan_.drain_one_in != 0 && chance_.OneIn(plan_.drain_one_in)) {
    if (chance_.OneIn(4)) (void)engine_->RetryDevice(device);
    const Status set = engine_->SetDeviceDraining(device, chance_.OneIn(2));
    if (!set) Fail("a device cannot be drained: " + set.error().message);
  }
}

void Simulation::HostMishap() {
  if (plan_.pressure_one_in == 0 || !chance_.OneIn(plan_.pressure_one_in)) return;
  const uint64_t all = plan_.arena_max_bytes;
  windows_.SetArenaMax(chance_.OneIn(3) ? all : chance_.Between(0, all / kBlockSize) * kBlockSize);
  host_was_read_ = true;
}

void Simulation::NoteHost() {
  const bool is_short = windows_.arena_bytes() > windows_.arena_max_bytes();
  if (is_short && !short_of_memory_) ++outcome_.shortages;
  if (!is_short && short_of_memory_) ++outcome_.paid;
  short_of_memory_ = is_short;
}

// Now and then a client is stopped, perhaps for the rest of the run. It loses nothing by that, unless it holds leases.
bool Simulation::IsStopped(uint64_t session, SimClient& client) {
  if (plan_.stop_one_in == 0) return false;
  const auto stopped = stopped_until_.find(session);
  if (stopped != stopped_until_.end()) {
    if (outcome_.turns < stopped->second) return true;
    client.Listen();
    // Its answers wait until it has returned what was taken from it.
    if (!client.awaits_delivery()) stopped_until_.erase(session);
  } else if (chance_.OneIn(plan_.stop_one_in)) {
    stopped_until_[session] = outcome_.turns + chance_.Between(1, plan_.turns);
  }
  return false;
}

void Simulation::Round() {
  for (const uint64_t session : IdsOf(clients_)) {
    const auto found = clients_.find(session);
    if (found == clients_.end() || outcome_.finding) continue;
    const std::shared_ptr<SimClient> client = found->second;
    if (IsStopped(session, *client)) continue;
    if (chance_.OneIn(2)) client->Listen();
    if (chance_.OneIn(2)) client->Act();
  }
  for (const uint64_t session : IdsOf(hostiles_)) {
    HostileClient& hostile = *hostiles_.at(session);
    if (chance_.OneIn(2)) hostile.Act();
    if (hostile.wants_to_die()) DetachHostile(session);
  }
}

void Simulation::TakeTurn() {
  ++outcome_.turns;
  now_ = now_ + std::chrono::microseconds(chance_.Between(10, 3000));
  const bool interrupted = transfers_.inflight() != 0 || transfers_.removing() || transfers_.probing() ||
                           windows_.under_way() || manifests_.under_way() || copier_.inflight() != 0 ||
                           std::exchange(host_was_read_, false);
  daemon_.Pass(interrupted, chance_.OneIn(2));
  for (const auto& [session, client] : clients_) {
    if (!stopped_until_.contains(session)) client->CheckDeadlines();  // A stopped one reads no answer.
  }
}

void Simulation::WindDown() {
  transfers_.SetDelay(0, 0);
  copier_.SetDelay(0, 0);
  for (uint16_t device = 0; device < plan_.devices; ++device) transfers_.HealDevice(device);
  while (!hostiles_.empty()) DetachHostile(hostiles_.begin()->first);
  for (uint32_t turn = 0; turn < kWindDownTurnsMax && !outcome_.finding; ++turn) {
    bool pending = false;
    for (const auto& [session, client] : clients_) {
      client->Listen();
      client->ReleaseAll();
      pending = pending || client->pending_count() != 0;
    }
    if (!pending) break;
    TakeTurn();
  }
  if (plan_.pressure_one_in != 0 && !outcome_.finding) PressAtEnd();
  const EngineSnapshot snapshot = engine_->Snapshot();
  for (const DeviceView& device : snapshot.devices) outcome_.swapped_in_bytes += device.traffic.read_bytes;
  for (const CompactionFigures& figures : snapshot.compaction) {
    outcome_.moves += figures.moves;
    outcome_.cancelled_moves += figures.cancelled;
  }
  outcome_.hand_over_moves = snapshot.compaction[static_cast<size_t>(CompactionCause::kWindow)].moves;
  outcome_.left_by_moves = snapshot.hand_over.windows[static_cast<size_t>(LeftBy::kMoves)];
  for (uint16_t code = 0; code < kCodeCount; ++code) {
    const uint64_t count = snapshot.requests[static_cast<size_t>(proto::Op::kCreate)][code] +
                           snapshot.requests[static_cast<size_t>(proto::Op::kAcquire)][code];
    if (count != 0) outcome_.codes += fmt::format(" {} {}", CodeName(static_cast<Code>(code)), count);
  }
  const auto resuming = [&] { return std::ranges::any_of(jobs_, [](const Job& job) { return job.resuming; }); };
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding && resuming(); ++turn) TakeTurn();
  if (resuming()) Fail("a job is never resumed");
  while (!clients_.empty()) Detach(clients_.begin()->first, "goodbye");
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding && !AtRest(); ++turn)
    TakeTurn();  // Closed jobs come to rest.
  for (Job& job : jobs_) {
    if (job.open) daemon_.CloseJob(job.id, "the end", true);
  }
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding && !AtRest(); ++turn) TakeTurn();
  DeleteStoredManifests();
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding && !AtRest(); ++turn) TakeTurn();
}

void Simulation::DeleteStoredManifests() {
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding; ++turn) {
    if (manifests_.lost()) return;  // It takes nothing until a restart.
    const std::vector<StoredManifest> stored = engine_->StoredManifests("", SIZE_MAX);
    if (stored.empty()) return;
    for (const StoredManifest& manifest : stored) {
      const Status gone = engine_->DeleteStoredManifest(manifest.key);
      // It leaves a device just now, and does not any more when that is heard of.
      if (!gone && gone.error().code != Code::kTimeout && !manifests_.lost()) Fail(gone.error().message);
    }
    TakeTurn();
  }
  Fail("a stored manifest cannot be deleted");
}

bool Simulation::AtRest() const {
  const EngineSnapshot snapshot = engine_->Snapshot();
  return snapshot.tensor_count == 0 && snapshot.lease_count == 0 && windows_.window_count() == 0 &&
         extents_.total().pending == 0 && engine_->idle();
}

Outcome Simulation::Run() {
  // Turns in which somebody sleeps count, too.
  while (outcome_.turns < plan_.turns && !outcome_.finding) {
    while (clients_.size() < plan_.clients && chance_.OneIn(2)) Attach();
    if (hostiles_.size() < plan_.hostiles && chance_.OneIn(8)) AttachHostile();
    Round();
    Mishap();
    DeviceMishap();
    HostMishap();
    QuotaMishap();
    TakeTurn();
  }
  if (!outcome_.finding) WindDown();
  if (!outcome_.finding) CheckEmpty();
  for (const auto& [session, client] : clients_) {
    outcome_.answered += client->answered();
    outcome_.granted += client->granted();
  }
  outcome_.sleeps = daemon_.sleeps();
  return outcome_;
}

void Simulation::OnSubmit(SessionId session, uint64_t sequence) {
  const auto client = clients_.find(static_cast<uint64_t>(session));
  if (client != clients_.end()) return client->second->OnSubmit(sequence);
  if (!hostiles_.contains(static_cast<uint64_t>(session))) Fail("a request of a session that is gone");
}

void Simulation::OnTurnEnd() {
  ++engine_turns_;
  NoteHost();
  engine_->CheckInvariants();
  if (const auto overwrite = transfer_check_.AfterTurn(engine_->NamedPlaces(), transfers_, manifests_))
    Fail(*overwrite);
}

void Simulation::OnAnswer(SessionId session, const Reply& reply) {
  CountQuotaRefusal(reply);
  const auto client = clients_.find(static_cast<uint64_t>(session));
  if (client != clients_.end()) return client->second->OnReply(reply);
  if (!hostiles_.contains(static_cast<uint64_t>(session))) Fail("an answer to a session that is gone");
}

void Simulation::OnWindowSent(SessionId session, const memory::WindowShape& window,
                              std::shared_ptr<const proto::FileDescriptor> file) {
  if (Link* link = FindLink(session); link != nullptr) link->Deliver(window, std::move(file));
}

void Simulation::OnWindowAskedBack(SessionId session, WindowIndex window) {
  if (Link* link = FindLink(session); link != nullptr) link->DeliverReturn(window);
}

// Only what a client did itself, what became of its windows, what its job leases of other jobs' promises, or an
// operator ends its session.
void Simulation::OnEnd(SessionId session, Code code, const std::string& reason) {
  if (code != Code::kRevoked || reason.empty()) {
    Fail(fmt::format("a session ended with {}, reason '{}'", CodeName(code), reason));
  }
  ++outcome_.revoked;
  CheckEnd(session, reason);
  Kill(static_cast<uint64_t>(session));
}

void Simulation::CheckEnd(SessionId session, const std::string& reason) {
  const auto found = clients_.find(static_cast<uint64_t>(session));
  if (found == clients_.end() || punched_ || found->second->broke_protocol()) return;
  if (plan_.stop_one_in != 0 && reason.find("has been owed") != std::string::npos) return;
  const auto job =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& each) { return each.id == found->second->job(); });
  if (job != jobs_.end() && job->open)
    Fail(fmt::format("session {} was ended: {}", static_cast<uint64_t>(session), reason));
}

}  // namespace tier::tiering::sim
