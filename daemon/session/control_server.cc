#include "daemon/session/control_server.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/control_settings.h"
#include "daemon/session/job_words.h"
#include "daemon/session/not_admin.h"

namespace tier::session {
namespace {

// Of a sentence that says that a job is not reserved.
std::string_view EndingOf(GivenUp given_up, bool was_reserved_before) {
  switch (given_up) {
    case GivenUp::kTakenBack: return was_reserved_before ? " with these terms, and stays so with those before" : "";
    case GivenUp::kFirstRunCame: return " any more, as its first run has come already";
    case GivenUp::kClosed: return " any more, as it was closed meanwhile";
  }
  return "";
}

}  // namespace

ControlServer::ControlServer(DaemonFacts facts, const ControlServerParts& parts)
    : facts_(std::move(facts)),
      parts_(parts),
      calls_(parts.mailbox, parts.rest),
      names_(parts.owners, parts.users),
      stored_({.calls = calls_, .jobs = parts.jobs, .owners = parts.owners}),
      quotas_({.calls = calls_,
               .jobs = parts.jobs,
               .events = parts.events,
               .book = parts.quotas,
               .owners = parts.owners,
               .apply_later = parts.apply_quotas_later}),
      owners_({.calls = calls_,
               .jobs = parts.jobs,
               .events = parts.events,
               .sockets = facts_.is_private ? nullptr : parts.sockets,
               .quotas = parts.quotas,
               .users = parts.users}),
      drain_({.calls = calls_,
              .mailbox = parts.mailbox,
              .jobs = parts.jobs,
              .sessions = parts.sessions,
              .events = parts.events,
              .has_ssd_tier = facts_.ssd_mode != "none",
              .on_closed = [this] { snapshot_rate_.EndTick(); },
              .mark_directory = facts_.is_private ? "" : facts_.socket_directory}),
      started_(parts.clock.Now()),
      devices_seen_(facts_.devices.size()),
      faults_(facts_.devices.size()),
      corrupt_told_(facts_.devices.size()) {}

JobDescription ControlServer::Describe(const Job& job, const tiering::JobCounters& counters) {
  JobDescription description = {.id = static_cast<uint64_t>(job.id),
                                .name = job.name,
                                .uid = job.uid,
                                .owner = {},
                                .reserved = job.reserved,
                                .named = job.named,
                                .world_size = job.world_size,
                                .ranks = {},
                                .token = job.token,
                                .counters = counters};
  for (const Member& member : job.members) {
    description.ranks.push_back(member.rank);
    description.sessions.push_back(
        {.id = static_cast<uint64_t>(member.session), .rank = member.rank, .client_pid = member.client_pid});
  }
  std::ranges::sort(description.ranks);
  std::ranges::sort(description.sessions, {}, &JobSession::id);
  return description;
}

// What is for administrators alone needs no look: none of them has such a uid.
Status ControlServer::CheckCaller(const Caller& caller) const {
  if (!IsOwnerUid(caller.uid) || (parts_.owners != nullptr && parts_.owners->IsOwner(caller.uid))) return {};
  return std::unexpected(NoOwnerRefusal(caller.uid));
}

Result<JobDescription> ControlServer::OpenJob(const Caller& caller, const OpenJobRequest& request) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  if (auto valid = ValidateOpenJob(request); !valid) return std::unexpected(std::move(valid.error()));
  if (request.owner && !caller.admin) return NotAdmin("open a job for another user");
  const uint32_t owner = request.owner.value_or(caller.uid);
  if (parts_.quotas != nullptr) parts_.quotas->Learn(owner);
  const auto before = std::make_shared<std::optional<Reservation>>();  // The engine thread's until it has answered.
  auto job = calls_.AskLater<JobDescription>([=, this](const EngineCalls::Answer<JobDescription>& answer) {
    if (const Reservation* const there = parts_.jobs.unopened().Find(owner, request.name)) *before = *there;
    const auto opened = parts_.jobs.Open(owner, request, std::nullopt, parts_.clock.Now());
    if (!opened) return answer(std::unexpected(opened.error()));
    parts_.jobs.WhenOpen((*opened)->id, [this, id = (*opened)->id, answer](const Status& status) {
      if (!status) return answer(std::unexpected(status.error()));
      answer(Describe(*parts_.jobs.registry().Find(id), parts_.jobs.engine().Counters(id)));
    });
  });
  if (job && request.owner) {
    if (Status kept = KeepReservations(); !kept) return GiveUpReservation(*job, *before, kept.error());
  }
  return WithOwner(std::move(job));
}

Result<JobDescription> ControlServer::WithOwner(Result<JobDescription> job) const {
  if (job) job->owner = OwnerOf(job->uid);
  return job;
}

Status ControlServer::CloseJob(const Caller& caller, const std::string& name, const JobClosing& closing) {
  if (Status known = CheckCaller(caller); !known) return known;
  return names_.Find(caller, name, [&](const std::string& written) { return stored_.Close(caller, written, closing); });
}

Result<std::vector<StoredManifestDescription>> ControlServer::ListStoredManifests(const Caller& caller,
                                                                                  const std::string& after,
                                                                                  size_t max) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return stored_.List(caller, after, max);
}

Result<std::vector<UnopenedReservationDescription>> ControlServer::ListUnopenedReservations(const Caller& caller,
                                                                                            const std::string& after,
                                                                                            size_t max) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return stored_.ListUnopened(caller, after, max);
}

Result<JobDescription> ControlServer::SetJob(const Caller& caller, const std::string& name,
                                             const tiering::TermsChange& change) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return WithOwner(names_.Find(caller, name, [&](const std::string& written) {
    return calls_.Ask<JobDescription>([=, this] { return ChangeJob(caller, written, change); });
  }));
}

// Engine thread.
Result<JobDescription> ControlServer::ChangeJob(const Caller& caller, const std::string& name,
                                                const tiering::TermsChange& change) {
  const auto found = parts_.jobs.registry().FindFor(caller, name);
  if (!found) return std::unexpected(found.error());
  const Job& job = **found;
  if (Status set = parts_.jobs.SetJob(job.id, change); !set) return std::unexpected(std::move(set.error()));
  JobDescription description = Describe(job, parts_.jobs.engine().Counters(job.id));
  parts_.events.Emit("job_changed", &job,
                     fmt::format("job '{}' has now {}", job.name, TermsText(description.counters)));
  return description;
}

Result<std::vector<JobDescription>> ControlServer::ListJobs(const Caller& caller) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  auto jobs = calls_.Ask<std::vector<JobDescription>>([this, caller]() -> Result<std::vector<JobDescription>> {
    // Not from the shared figures: a caller decides by these what it may have now.
    std::vector<JobDescription> visible;
    for (const auto& [id, job] : parts_.jobs.registry().jobs()) {
      if (JobRegistry::MaySee(caller, job)) visible.push_back(Describe(job, parts_.jobs.engine().Counters(id)));
    }
    return visible;
  });
  if (jobs) std::ranges::for_each(*jobs, [this](JobDescription& job) { job.owner = OwnerOf(job.uid); });
  return jobs;
}

Result<tiering::TensorPage> ControlServer::ListTensors(const Caller& caller, const std::string& job, uint32_t from,
                                                       size_t max) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  TIER_CHECK(max > 0, "an empty page would never end a list");
  // Once, as it may ask the user database, and all pages are of one job.
  const auto meant = names_.Find(caller, job, [&](const std::string& written) {
    return calls_.Ask<tiering::JobId>([this, caller, written]() -> Result<tiering::JobId> {
      const auto found = parts_.jobs.registry().FindFor(caller, written);
      if (!found) return std::unexpected(found.error());
      return (*found)->id;
    });
  });
  if (!meant) return std::unexpected(meant.error());
  // A page of the engine's at a time: it serves others in between.
  tiering::TensorPage listed{.tensors = {}, .next = from};
  do {
    // Once the list is full, one more tensor tells that there is another page.
    const bool full = listed.tensors.size() == max;
    const auto page = calls_.Ask<tiering::TensorPage>(
        [this, id = *meant, job, next = listed.next,
         wanted = full ? 1 : max - listed.tensors.size()]() -> Result<tiering::TensorPage> {
          if (parts_.jobs.registry().Find(id) == nullptr)
            return Fail(Code::kNotFound, fmt::format("job '{}' was closed while its tensors were listed", job));
          return parts_.jobs.engine().Tensors(id, next, wanted);
        });
    if (!page) return std::unexpected(page.error());
    if (full && !page->tensors.empty()) return listed;
    listed.tensors.insert(listed.tensors.end(), page->tensors.begin(), page->tensors.end());
    listed.next = page->next;
  } while (listed.next != 0);
  return listed;
}

Result<StallReport> ControlServer::ListStalls(const Caller& caller, const std::string& name) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return names_.Find(caller, name, [&](const std::string& written) {
    return calls_.Ask<StallReport>([this, caller, written] { return StallsOf(caller, written); });
  });
}

// Engine thread.
Result<StallReport> ControlServer::StallsOf(const Caller& caller, const std::string& name) {
  const auto job = parts_.jobs.registry().FindFor(caller, name);
  if (!job) return std::unexpected(job.error());
  const base::TimePoint now = parts_.clock.Now();
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  tiering::StallList list = parts_.jobs.engine().Stalls((*job)->id, now);
  TIER_CHECK(list.stalls.size() <= tiering::kStallsKept + tiering::kWaitingListedMax, "{} stalls of job '{}'",
             list.stalls.size(), name);
  return StallReport{.list = std::move(list),
                     .now = now,
                     .now_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(wall).count()};
}

// Shared, not copied: what callers are told of them is made on their threads.
std::shared_ptr<const tiering::EngineSnapshot> ControlServer::Figures() {
  const base::TimePoint now = parts_.clock.Now();
  if (snapshot_rate_.MayTake(now)) {
    figures_ = std::make_shared<const tiering::EngineSnapshot>(parts_.jobs.engine().Snapshot());
    snapshot_rate_.NoteTaken(std::min(parts_.clock.Now() - now, kSnapshotLongest));
    for (size_t i = 0; i < std::min(faults_.size(), figures_->devices.size()); ++i)
      faults_[i].Note(figures_->devices[i].traffic, now);
  }
  return figures_;
}

// Shared, not copied: each caller's part of it is chosen on the caller's thread.
std::shared_ptr<const PoolSnapshot> ControlServer::Pool() {
  const base::TimePoint now = parts_.clock.Now();
  if (pool_rate_.MayTake(now)) {
    auto taken = std::make_shared<PoolSnapshot>();
    taken->view = parts_.jobs.engine().Pool();
    for (const auto& [id, job] : parts_.jobs.registry().jobs()) taken->jobs.push_back(job);
    pool_ = std::move(taken);
    pool_rate_.NoteTaken(parts_.clock.Now() - now);
  }
  return pool_;
}

Result<PoolDescription> ControlServer::DescribePool(const Caller& caller) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  using Taken = std::shared_ptr<const PoolSnapshot>;
  const auto taken = calls_.Ask<Taken>([this]() -> Result<Taken> { return Pool(); });
  if (!taken) return std::unexpected(taken.error());
  return PartOf(**taken, caller);
}

Result<QuotaReport> ControlServer::ListQuotas(const Caller& caller) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return quotas_.List(caller);
}

Status ControlServer::SetQuota(const Caller& caller, const QuotaTarget& target, const QuotaFields& fields) {
  return quotas_.Set(caller, target, fields);
}

Status ControlServer::ClearQuota(const Caller& caller, const QuotaTarget& target) {
  return quotas_.Clear(caller, target);
}

Result<OwnerSocket> ControlServer::OpenSocket(const Caller& caller, const std::string& owner) {
  if (drain_.stopping()) return Fail(Code::kDisconnected, "tierd is being stopped");
  return owners_.Open(caller, owner);
}

Status ControlServer::CloseSocket(const Caller& caller, const std::string& owner, bool purge) {
  return owners_.Close(caller, owner, purge);
}

Result<std::vector<OwnerSocket>> ControlServer::ListSockets(const Caller& caller) { return owners_.List(caller); }

Status ControlServer::KeepReservations() {
  if (parts_.reservations == nullptr) return {};
  const auto list =
      calls_.Ask<ReservationList>([this]() -> Result<ReservationList> { return parts_.jobs.Reservations(); });
  return list ? parts_.reservations->Save(*list) : Status(std::unexpected(list.error()));
}

// Who reserves is promised that it outlives the daemon: without that there is no reservation, or the one before.
Result<JobDescription> ControlServer::GiveUpReservation(const JobDescription& job,
                                                        const std::optional<Reservation>& before, const Error& why) {
  const UnstoredReservation unstored{
      .job = static_cast<tiering::JobId>(job.id), .uid = job.uid, .name = job.name, .before = before};
  const auto given_up = calls_.Ask<GivenUp>(
      [=, this]() -> Result<GivenUp> { return parts_.jobs.GiveUpReservation(unstored, parts_.clock.Now()); });
  if (!given_up) {
    return Fail(why.code, fmt::format("whether job '{}' is reserved is not known (tierctl job list): {}; then {}",
                                      job.name, why.message, given_up.error().message));
  }
  return Fail(why.code, fmt::format("job '{}' is not reserved{}: {}", job.name, EndingOf(*given_up, before.has_value()),
                                    why.message));
}

Result<SettingsReport> ControlServer::ListOptions(const Caller& caller) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return session::ListOptions(parts_.settings, caller);
}

Result<OptionState> ControlServer::SetOption(const Caller& caller, const std::string& name, const std::string& value) {
  return session::SetOption(parts_.settings, caller, name, value);
}

DaemonDescription ControlServer::Modes() const {
  DaemonDescription d;
  d.ssd_mode = facts_.ssd_mode;
  d.ssd_mode_reason = facts_.ssd_mode_reason;
  if (facts_.memory_mode) d.memory_mode = facts_.memory_mode();
  if (facts_.memory_mode_reason) d.memory_mode_reason = facts_.memory_mode_reason();
  return d;
}

void ControlServer::AddDevices(const tiering::EngineSnapshot& snapshot, DaemonDescription* description) const {
  description->devices = facts_.devices;
  const size_t count = std::min(description->devices.size(), snapshot.devices.size());
  for (size_t i = 0; i < count; ++i) description->devices[i].now = snapshot.devices[i];
}

ControlServer::PartOfEngine ControlServer::TakePart() {
  PartOfEngine part{.figures = Figures(), .modes = Modes(), .drive_writes = {}, .faults = {}};
  for (const DeviceFaults& faults : faults_) part.faults.push_back(faults.Recent(parts_.clock.Now()));
  DaemonDescription& d = part.modes;
  d.huge_page_mode = facts_.huge_page_mode ? facts_.huge_page_mode() : "small";
  if (facts_.prefault) d.prefault = facts_.prefault();
  if (facts_.shortage) d.shortage = facts_.shortage();
  if (!facts_.drive_writes_per_day) return part;
  for (const DeviceDescription& device : facts_.devices)
    part.drive_writes.push_back(facts_.drive_writes_per_day(device.index));
  return part;
}

DaemonDescription ControlServer::Whole(PartOfEngine part) const {
  DaemonDescription d = std::move(part.modes);
  if (d.memory_mode.empty()) d.memory_mode = "unpinned";
  d.engine = *part.figures;
  AddDevices(*part.figures, &d);
  TIER_CHECK(part.faults.size() == d.devices.size(), "{} of {}", part.faults.size(), d.devices.size());
  for (size_t i = 0; i < d.devices.size(); ++i) {
    d.devices[i].recent_faults = part.faults[i];
    if (i < part.drive_writes.size()) d.devices[i].drive_writes_per_day = part.drive_writes[i];
    if (facts_.smart) d.devices[i].smart = facts_.smart(d.devices[i].path);
  }
  AddOtherParts(&d);
  return d;
}

void ControlServer::AddOtherParts(DaemonDescription* description) const {
  description->version = facts_.version;
  description->epoch = facts_.epoch;
  description->pid = ::getpid();
  const base::Duration uptime = parts_.clock.Now() - started_;
  description->uptime_seconds = std::chrono::duration<double>(uptime).count();
  description->io_mode = facts_.io_mode;
  if (facts_.spin_mode) description->spin_mode = facts_.spin_mode();
  if (facts_.reload_failure) description->reload_failure = facts_.reload_failure();
  if (facts_.spin_pauses) description->spin_pauses = facts_.spin_pauses();
  if (parts_.rest != nullptr) {
    description->observed_seconds = std::chrono::duration<double>(parts_.rest->spent()).count();
  }
  description->draining = draining();
  description->is_private = facts_.is_private;
  description->socket_directory = facts_.socket_directory;
  description->data_directory = facts_.data_directory;
  if (facts_.metrics_address) description->metrics_address = facts_.metrics_address();
  if (facts_.read_host) {
    const HostFigures host = facts_.read_host();
    description->host_available_bytes = host.available_bytes;
    description->psi_memory_some_ratio = host.psi_memory_some_ratio;
  }
}

Result<DaemonDescription> ControlServer::Describe() {
  auto part = calls_.Ask<PartOfEngine>([this]() -> Result<PartOfEngine> { return TakePart(); });
  if (!part) return std::unexpected(part.error());
  return Whole(*std::move(part));
}

Result<NodeObservation> ControlServer::Observe() {
  struct Taken {
    PartOfEngine part;
    std::vector<ObservedJob> jobs;  // By id.
  };
  auto taken = calls_.Look<Taken>([this]() -> Result<Taken> {
    Taken now{.part = TakePart(), .jobs = {}};
    now.jobs.reserve(parts_.jobs.registry().jobs().size());
    for (const auto& [id, job] : parts_.jobs.registry().jobs()) {
      now.jobs.push_back({.id = static_cast<uint64_t>(id),
                          .name = job.name,
                          .uid = job.uid,
                          .reserved = job.reserved,
                          .named = job.named,
                          .world_size = job.world_size});
    }
    return now;
  });
  if (!taken) return std::unexpected(taken.error());
  NodeObservation observed{.daemon = Whole(std::move(taken->part)), .jobs = {}};
  observed.jobs.reserve(taken->jobs.size());
  // Both are in the order of the ids. One that was opened after the figures were taken is seen the next time.
  auto view = observed.daemon.engine.jobs.begin();
  const auto end = observed.daemon.engine.jobs.end();
  for (ObservedJob& job : taken->jobs) {
    view = std::find_if(view, end, [&job](const auto& each) { return static_cast<uint64_t>(each.id) >= job.id; });
    if (view == end || static_cast<uint64_t>(view->id) != job.id) continue;
    observed.jobs.push_back({.id = job.id,
                             .name = std::move(job.name),
                             .uid = job.uid,
                             .owner = {},
                             .reserved = job.reserved,
                             .named = job.named,
                             .world_size = job.world_size,
                             .ranks = {},
                             .token = {},
                             .counters = view->counters,
                             .node_bytes = std::move(view->node_bytes)});
  }
  return observed;
}

Result<Drained> ControlServer::Drain(const Caller& caller, const std::string& job, std::chrono::milliseconds timeout) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return names_.Find(caller, job, [&](const std::string& written) { return drain_.Drain(caller, written, timeout); });
}

Status ControlServer::Undrain(const Caller& caller) { return drain_.Undrain(caller); }

Status ControlServer::DrainDevice(const Caller& caller, uint16_t device, bool draining) {
  if (!caller.admin) return NotAdmin("drain a device");
  return calls_.Ask<void>([this, device, draining]() -> Status {
    if (device >= facts_.devices.size()) {
      return Fail(Code::kNotFound, fmt::format("no device {}; there are {}", device, facts_.devices.size()));
    }
    if (auto set = parts_.jobs.engine().SetDeviceDraining(device, draining); !set) return set;
    snapshot_rate_.EndTick();  // Who asks next is to see it.
    parts_.events.Emit("drain", nullptr,
                       fmt::format("device {} ({}) {}", device, facts_.devices[device].path,
                                   draining ? "is being emptied" : "is used again"));
    return {};
  });
}

Status ControlServer::RetryDevice(const Caller& caller, uint16_t device) {
  if (!caller.admin) return NotAdmin("have quarantined places tried again");
  return calls_.Ask<void>([this, device]() -> Status {
    if (device >= facts_.devices.size()) {
      return Fail(Code::kNotFound, fmt::format("no device {}; there are {}", device, facts_.devices.size()));
    }
    if (auto retried = parts_.jobs.engine().RetryDevice(device); !retried) return retried;
    snapshot_rate_.EndTick();
    (void)Figures();  // Later ones alone are new.
    faults_[device].Acknowledge();
    parts_.events.Emit("retry", nullptr,
                       fmt::format("device {} ({}): its quarantined places are tried again when nothing else is left, "
                                   "and its errors up to now make tierd degraded no more",
                                   device, facts_.devices[device].path));
    return {};
  });
}

Result<std::vector<std::string>> ControlServer::PurgeDevice(const Caller& caller, const std::string& uuid) {
  if (!caller.admin) return std::unexpected(NotAdmin("purge a missing device").error());
  using Jobs = std::vector<std::string>;
  return calls_.AskLater<Jobs>([this, caller, uuid](const EngineCalls::Answer<Jobs>& answer) {
    const auto done = [this, answer](const Result<Jobs>& jobs) {
      snapshot_rate_.EndTick();
      answer(jobs);
    };
    if (Status begun = parts_.jobs.PurgeDevice(uuid, fmt::format("by request of uid {}", caller.uid), done); !begun) {
      answer(std::unexpected(begun.error()));
    }
  });
}

Result<std::shared_ptr<void>> ControlServer::Watch(const Caller& caller, std::function<void(const Event&)> callback) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return parts_.events.Watch(caller, WithOwners(std::move(callback)));
}

Result<std::shared_ptr<void>> ControlServer::WatchFrom(const Caller& caller, uint64_t since,
                                                       std::function<void(const Event&)> callback) {
  if (Status known = CheckCaller(caller); !known) return std::unexpected(std::move(known.error()));
  return parts_.events.Watch(caller, WithOwners(std::move(callback)), since);
}

std::vector<Event> ControlServer::RecentEvents(const Caller& caller, uint64_t since) {
  if (!CheckCaller(caller)) return {};
  std::vector<Event> events = parts_.events.Recent(caller, since);
  if (parts_.owners != nullptr) std::ranges::for_each(events, [&](Event& event) { NameOwner(*parts_.owners, &event); });
  return events;
}

}  // namespace tier::session
