// See simulation.h.
#include "tests/sim/simulation.h"

#include <algorithm>

#include <fmt/format.h>

namespace tier::tiering::sim {
namespace {

constexpr uint32_t kWindDownTurnsMax = 20000;
constexpr uint32_t kRestTurns = 2000;  // In which all that is left is freed, one piece in a turn.
constexpr uint32_t kWindowsPerSimulation = 64;

}  // namespace

Simulation::Simulation(const Plan& plan)
    : plan_(plan),
      chance_(plan.seed ^ 0x5deece66d),
      windows_({.window_size = plan.window_size,
                .slot_window_size = plan.slot_window_size,
                .arena_max_bytes = plan.arena_max_bytes,
                .windows_max = kWindowsPerSimulation,
                .delay_turns = plan.window_delay_turns,
                .page_size = static_cast<uint32_t>(plan.huge_pages ? kBlockSize : kPageSize)}),
      transfers_({.seed = plan.seed,
                  .inflight_max = plan.inflight_max,
                  .device_count = plan.devices,
                  .delay_turns_min = 0,
                  .delay_turns_max = plan.delay_turns_max}) {
  using storage::Direction;
  using storage::TransferOutcome;
  for (uint16_t device = 0; device < plan.devices; ++device) extents_.AddDevice(plan.device_blocks);
  transfers_.SetFaultRate({Direction::kWrite, TransferOutcome::kDeviceError, 5}, plan.write_errors);
  transfers_.SetFaultRate({Direction::kRead, TransferOutcome::kDeviceError, 5}, plan.read_errors);
  transfers_.SetFaultRate({Direction::kWrite, TransferOutcome::kNoSpace, 28}, plan.no_space);
  transfers_.SetFaultRate({Direction::kRead, TransferOutcome::kCorrupt, 0}, plan.corruptions);
  EngineOptions options{.deadline_default = std::chrono::milliseconds(100), .work = plan.work};
  if (plan.metadata_bytes != 0) options.metadata_bytes_per_uid_max = plan.metadata_bytes;
  engine_ = std::make_unique<Engine>(options, EnginePorts{.windows = windows_,
                                                          .extents = extents_,
                                                          .transfers = transfers_,
                                                          .manifests = plan.manifests ? &manifests_ : nullptr,
                                                          .replies = *this});
  surroundings_ = std::make_unique<Surroundings>(Surroundings{
      .plan = plan_,
      .chance = chance_,
      .engine = *engine_,
      .model = model_,
      .now = now_,
      .turns = outcome_.turns,
      .address = [this](uint32_t window, uint64_t offset) { return windows_.address(WindowIndex{window}) + offset; },
      .fail = [this](const std::string& finding) { Fail(finding); },
      .punched = punched_,
      .next_seed = next_seed_,
      .next_swap = next_swap_,
      .next_tensor = next_tensor_});
  transfers_.WatchSubmits([this] {
    if (const auto overwrite = transfer_check_.AtSubmit(engine_->NamedPlaces(), transfers_, manifests_))
      Fail(*overwrite);
  });
  jobs_.resize(plan.jobs);
}

Simulation::~Simulation() = default;

void Simulation::Fail(const std::string& finding) {
  if (!outcome_.finding) outcome_.finding = fmt::format("turn {}: {}", outcome_.turns, finding);
}

void Simulation::OpenJob(Job& job) {
  const bool persisted = job.named && manifests_.Load(job.key).has_value();
  if (job.interlude && !persisted) Fail("an ephemeral job took the manifest of an earlier run with it");
  job.interlude = persisted && chance_.OneIn(4);
  const bool resume = persisted && !job.interlude;
  job.id = next_id_++;
  if (job.key.empty()) job.key = fmt::format("0/job-{}", job.id);
  job.named = job.named || (plan_.manifests && chance_.OneIn(2));
  JobOptions options{
      .key = job.key, .uid = static_cast<uint32_t>(job.id % 3), .named = job.named && !job.interlude, .resume = resume};
  if (chance_.OneIn(4)) options.limit_bytes = chance_.Between(1, 4) * plan_.window_size;
  const uint64_t most = options.limit_bytes == 0 ? plan_.arena_max_bytes : options.limit_bytes;
  if (plan_.guarantees && chance_.OneIn(2)) options.guarantee_bytes = chance_.Between(1, most);
  Status opened = engine_->OpenJob(JobId{job.id}, options);
  if (!opened && options.guarantee_bytes != 0 && opened.error().code == Code::kNoMemory) {
    options.guarantee_bytes = 0;  // More than others leave.
    opened = engine_->OpenJob(JobId{job.id}, options);
  }
  job.open = opened.has_value();
  if (!opened && opened.error().code == Code::kNoMemory && plan_.metadata_bytes != 0) return;  // Its manifest stays.
  if (!opened && opened.error().code != Code::kTimeout && opened.error().code != Code::kAlreadyExists) {
    Fail("a job could not be opened: " + opened.error().message);
  }
}

void Simulation::Attach() {
  Job& job = jobs_[plan_.clients == plan_.jobs ? clients_.size() % jobs_.size() : chance_.Below(jobs_.size())];
  if (!job.open) OpenJob(job);
  if (!job.open) return;
  const SessionId session{next_id_++};
  const Status opened = engine_->OpenSession(session, JobId{job.id});
  if (!opened) return Fail("a session could not be opened: " + opened.error().message);
  clients_.emplace(static_cast<uint64_t>(session), SimClient(*surroundings_, session, job.id));
}

// The client's process is gone and, with the last of an ephemeral job, the job.
void Simulation::Kill(uint64_t session) {
  const auto found = clients_.find(session);
  if (found == clients_.end()) return;
  found->second.Die();
  const uint64_t job_id = found->second.job();
  outcome_.answered += found->second.answered();
  outcome_.granted += found->second.granted();
  clients_.erase(found);
  const bool last =
      std::none_of(clients_.begin(), clients_.end(), [&](const auto& entry) { return entry.second.job() == job_id; });
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& each) { return each.id == job_id; });
  if (!last || job == jobs_.end() || (job->named && !job->interlude)) return;
  model_.RemoveJob(job_id);
  job->open = false;
  if (!job->interlude) job->key.clear();
}

void Simulation::Mishap() {
  if (plan_.kill_one_in != 0 && chance_.OneIn(plan_.kill_one_in) && !clients_.empty()) {
    const uint64_t session = std::next(clients_.begin(), static_cast<ptrdiff_t>(chance_.Below(clients_.size())))->first;
    engine_->EndSession(SessionId{session}, "killed");
    Kill(session);
    ++outcome_.killed;
  }
  if (plan_.punch_one_in != 0 && chance_.OneIn(plan_.punch_one_in)) {
    const uint32_t window = static_cast<uint32_t>(chance_.Below(kWindowsPerSimulation));
    if (windows_.ready(WindowIndex{window})) {
      transfers_.PunchWindow(WindowIndex{window});
      // What lies in it and is on SSD nowhere may tear; a named job's tensors outlive the sessions that this ends.
      punched_ = true;
      for (const auto& [key, tensor] : model_.tensors()) {
        tensor->tainted = true;
        tensor->doubtful.assign(tensor->doubtful.size(), true);
      }
    }
  }
  if (plan_.manifests && chance_.OneIn(150)) {
    Job& job = jobs_[chance_.Below(jobs_.size())];
    if (!job.open || !job.named || job.interlude) return;
    engine_->CloseJob(JobId{job.id}, "closed by the operator", false);
    model_.RemoveJob(job.id);
    job.open = false;
  }
  if (chance_.OneIn(40)) windows_.FailNext(1);
}

void Simulation::TakeTurn() {
  ++outcome_.turns;
  now_ = now_ + std::chrono::microseconds(chance_.Between(10, 3000));
  engine_->Turn(now_);
  engine_->CheckInvariants();
  if (const auto overwrite = transfer_check_.AfterTurn(engine_->NamedPlaces(), transfers_, manifests_))
    Fail(*overwrite);
  for (const uint64_t session : std::exchange(ended_, {})) Kill(session);
  for (const auto& [session, client] : clients_) client.CheckDeadlines();
  // Clients unmap what is asked back, when they get to it.
  for (const auto& [session, window] : std::exchange(asked_back_, {})) {
    if (chance_.OneIn(2)) {
      engine_->WindowReturned(SessionId{session}, WindowIndex{window});
    } else {
      asked_back_.emplace_back(session, window);
    }
  }
}

void Simulation::WindDown() {
  transfers_.SetDelay(0, 0);
  for (uint32_t turn = 0; turn < kWindDownTurnsMax && !outcome_.finding; ++turn) {
    bool pending = false;
    for (auto& [session, client] : clients_) {
      client.ReleaseAll();
      pending = pending || client.pending_count() != 0;
    }
    if (!pending) break;
    TakeTurn();
  }
  const EngineSnapshot snapshot = engine_->Snapshot();
  for (const storage::DeviceTraffic& traffic : snapshot.traffic) outcome_.swapped_in_bytes += traffic.read_bytes;
  for (uint16_t code = 0; code < kCodeCount; ++code) {
    const uint64_t count = snapshot.requests[static_cast<size_t>(proto::Op::kCreate)][code] +
                           snapshot.requests[static_cast<size_t>(proto::Op::kAcquire)][code];
    if (count != 0) outcome_.codes += fmt::format(" {} {}", CodeName(static_cast<Code>(code)), count);
  }
  while (!clients_.empty()) {
    const uint64_t session = clients_.begin()->first;
    engine_->EndSession(SessionId{session}, "goodbye");
    Kill(session);
  }
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding && !AtRest(); ++turn)
    TakeTurn();  // Closed jobs come to rest.
  for (Job& job : jobs_) {
    if (job.open) engine_->CloseJob(JobId{job.id}, "the end", true);
  }
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding && !AtRest(); ++turn) TakeTurn();
  for (const StoredManifest& kept : engine_->StoredManifests("", SIZE_MAX)) {
    if (const Status gone = engine_->DeleteStoredManifest(kept.key); !gone) Fail(gone.error().message);
  }
  for (uint32_t turn = 0; turn < kRestTurns && !outcome_.finding && !AtRest(); ++turn) TakeTurn();
}

// All is freed, where there is nobody left.
bool Simulation::AtRest() const {
  const EngineSnapshot snapshot = engine_->Snapshot();
  return snapshot.tensor_count == 0 && snapshot.lease_count == 0 && windows_.window_count() == 0 && engine_->idle();
}

void Simulation::CheckEmpty() {
  const EngineSnapshot snapshot = engine_->Snapshot();
  if (snapshot.tensor_count != 0)
    Fail(fmt::format("{} tensors are left, {} leases", snapshot.tensor_count, snapshot.lease_count));
  if (snapshot.lease_count != 0) Fail(fmt::format("{} leases are left", snapshot.lease_count));
  if (snapshot.waiting_count != 0) Fail(fmt::format("{} requests still wait", snapshot.waiting_count));
  if (windows_.window_count() != 0) Fail(fmt::format("{} windows are left", windows_.window_count()));
  if (extents_.total().live != 0) Fail(fmt::format("{} bytes are live on SSD", extents_.total().live));
  if (extents_.total().pending != 0) Fail(fmt::format("{} bytes wait for the end of a turn", extents_.total().pending));
  if (!engine_->idle()) Fail("the engine is not idle");
  if (transfers_.memory_changes() != 0) Fail("memory changed while it was being written out");
}

Outcome Simulation::Run() {
  for (uint32_t turn = 0; turn < plan_.turns && !outcome_.finding; ++turn) {
    while (clients_.size() < plan_.clients && chance_.OneIn(2)) Attach();
    for (auto& [session, client] : clients_) {
      if (chance_.OneIn(2)) client.Act();
    }
    Mishap();
    TakeTurn();
  }
  if (!outcome_.finding) WindDown();
  if (!outcome_.finding) CheckEmpty();
  for (const auto& [session, client] : clients_) {
    outcome_.answered += client.answered();
    outcome_.granted += client.granted();
  }
  return outcome_;
}

void Simulation::OnReply(SessionId session, const Reply& reply) {
  const auto client = clients_.find(static_cast<uint64_t>(session));
  if (client == clients_.end()) return Fail("an answer to a session that is gone");
  client->second.OnReply(reply);
}

void Simulation::OnWindow(SessionId, const memory::WindowShape&) {}

void Simulation::OnWindowReturn(SessionId session, WindowIndex window) {
  asked_back_.emplace_back(static_cast<uint64_t>(session), Value(window));
}

void Simulation::OnSessionEnded(SessionId session, Code code, const std::string& reason) {
  if (code != Code::kRevoked || reason.empty()) Fail("a session ended without a reason");
  ended_.push_back(static_cast<uint64_t>(session));
}

}  // namespace tier::tiering::sim
