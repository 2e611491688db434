#include "daemon/session/control_server.h"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/control_settings.h"
#include "daemon/session/not_admin.h"
#include "daemon/session/quota_use.h"

namespace tier::session {
namespace {

constexpr const char* kDrainedRefusal =
    "this node is being drained (tierctl drain): it takes no new job or process until an administrator runs tierctl "
    "undrain; jobs that run go on";

}  // namespace

ControlServer::ControlServer(DaemonFacts facts, const ControlServerParts& parts)
    : facts_(std::move(facts)), parts_(parts), started_(parts.clock.Now()), devices_seen_(facts_.devices.size()) {}

template <typename T>
Result<T> ControlServer::Ask(std::function<Result<T>()> ask) {
  return AskLater<T>([ask = std::move(ask)](const Answer<T>& answer) { answer(ask()); });
}

template <typename T>
Result<T> ControlServer::AskLater(std::function<void(const Answer<T>&)> ask) {
  TIER_CHECK(ask != nullptr, "nothing to ask");
  // Shared: the answer may come when the caller no longer waits for it.
  auto answer = std::make_shared<std::promise<Result<T>>>();
  auto future = answer->get_future();
  const Answer<T> give = [answer](Result<T> result) { answer->set_value(std::move(result)); };
  if (!parts_.mailbox.TryPost([ask = std::move(ask), give] { ask(give); })) {
    return Fail(Code::kTimeout,
                fmt::format("the engine has {} calls waiting, its limit: try again", parts_.mailbox.waiting()));
  }
  if (future.wait_for(kAnswerTimeout) != std::future_status::ready) {
    return Fail(Code::kTimeout, fmt::format("the engine did not answer within {} s", kAnswerTimeout.count()));
  }
  return future.get();
}

JobDescription ControlServer::Describe(const Job& job, const tiering::JobCounters& counters) {
  JobDescription description = {.id = static_cast<uint64_t>(job.id),
                                .name = job.name,
                                .uid = job.uid,
                                .named = job.named,
                                .world_size = job.world_size,
                                .ranks = {},
                                .token = job.token,
                                .counters = counters};
  for (const Member& member : job.members) description.ranks.push_back(member.rank);
  std::sort(description.ranks.begin(), description.ranks.end());
  return description;
}

Result<JobDescription> ControlServer::OpenJob(const Caller& caller, const OpenJobRequest& request) {
  if (auto valid = ValidateOpenJob(request); !valid) return std::unexpected(std::move(valid.error()));
  if (request.owner && !caller.admin) return NotAdmin("open a job for another user");
  const uint32_t owner = request.owner.value_or(caller.uid);
  if (parts_.quotas != nullptr) parts_.quotas->Learn(owner);
  return AskLater<JobDescription>([this, owner, request](const Answer<JobDescription>& answer) {
    const auto opened = parts_.jobs.Open(owner, request, std::nullopt, parts_.clock.Now());
    if (!opened) return answer(std::unexpected(opened.error()));
    parts_.jobs.WhenOpen((*opened)->id, [this, id = (*opened)->id, answer](const Status& status) {
      if (!status) return answer(std::unexpected(status.error()));
      answer(Describe(*parts_.jobs.registry().Find(id), parts_.jobs.engine().Counters(id)));
    });
  });
}

Status ControlServer::CloseJob(const Caller& caller, const std::string& name, bool purge) {
  return Ask<void>([this, caller, name, purge]() -> Status {
    const auto job = parts_.jobs.registry().FindFor(caller, name);
    if (!job && job.error().code != Code::kNotFound) return std::unexpected(job.error());
    if (!job || purge) {
      const std::vector<StoredManifestDescription> stored = StoredManifestsNamed(caller, name);
      if (!job) return RemoveStored(caller, name, stored, purge);
      if (Status clear = CheckPurge(**job, name, stored); !clear) return clear;
    }
    parts_.jobs.Close((*job)->id, fmt::format("closed by request of uid {}", caller.uid), purge);
    return {};
  });
}

// A purge of a live job must not delete what another user, or an earlier run, has persisted under the same name.
Status ControlServer::CheckPurge(const Job& job, const std::string& name,
                                 const std::vector<StoredManifestDescription>& stored) {
  const std::string key = job.EngineKey();
  const auto is_owners = [&job](const StoredManifestDescription& each) { return each.uid == job.uid; };
  if (name != key && !std::ranges::all_of(stored, is_owners)) {
    return Fail(Code::kInvalid,
                fmt::format("several owners have a job '{0}', live or persisted: write uid/{0}", job.name));
  }
  const auto earlier =
      parts_.jobs.engine().StoredManifests(key, 1);  // Also where the caller, a token's holder, may not list it.
  if (earlier.empty() || earlier.front().key != key) return {};
  return Fail(Code::kInvalid,
              fmt::format("job '{}' is live, and what is persisted under its name is an earlier run's: remove the live "
                          "one first, without --purge, or wait until it has ended",
                          job.name));
}

Status ControlServer::RemoveStored(const Caller& caller, const std::string& name,
                                   const std::vector<StoredManifestDescription>& stored, bool purge) {
  if (stored.size() > 1) {
    return Fail(Code::kInvalid, fmt::format("{} owners have a job '{}': write uid/{}", stored.size(), name, name));
  }
  if (!purge && !stored.empty()) {
    return Fail(Code::kNotFound, fmt::format("job '{}' is not open; only tierctl job remove --purge deletes what it "
                                             "persisted",
                                             name));
  }
  if (!purge || !JobRegistry::MaySeeOf(caller, caller.uid)) {
    return Fail(Code::kNotFound, fmt::format("no job '{}' that this caller may control", name));
  }
  // One that is not listed may be closing, or on its way out already: the engine knows.
  std::pair owner(caller.uid, name);
  if (const auto qualified = caller.admin ? ParseQualifiedName(name) : std::nullopt) owner = *qualified;
  if (!stored.empty()) owner = {stored.front().uid, stored.front().name};
  return parts_.jobs.DeleteStoredManifest(owner.first, owner.second, fmt::format("by request of uid {}", caller.uid));
}

std::vector<StoredManifestDescription> ControlServer::StoredManifestsFor(const Caller& caller, size_t max) {
  if (!JobRegistry::MaySeeOf(caller, caller.uid)) return {};
  const std::string prefix = caller.admin ? std::string() : fmt::format("{}/", caller.uid);
  std::vector<StoredManifestDescription> visible;
  for (const tiering::StoredManifest& stored : parts_.jobs.engine().StoredManifests(prefix, max)) {
    const auto owner = ParseQualifiedName(stored.key);
    if (!owner) continue;
    visible.push_back({.uid = owner->first,
                       .name = owner->second,
                       .ssd_bytes = stored.ssd_bytes,
                       .damage = stored.damage,
                       .lost_devices = stored.lost_devices});
  }
  return visible;
}

// "uid/name" names one; a name alone may be that of several.
std::vector<StoredManifestDescription> ControlServer::StoredManifestsNamed(const Caller& caller,
                                                                           const std::string& name) {
  std::vector<StoredManifestDescription> named;
  for (StoredManifestDescription& stored : StoredManifestsFor(caller, SIZE_MAX)) {
    if (fmt::format("{}/{}", stored.uid, stored.name) == name) return {std::move(stored)};
    if (stored.name == name) named.push_back(std::move(stored));
  }
  return named;
}

std::vector<StoredManifestDescription> ControlServer::ListStoredManifests(const Caller& caller,
                                                                          const std::string& after, size_t max) {
  using Stored = std::vector<StoredManifestDescription>;
  auto stored = Ask<Stored>([this, caller]() -> Result<Stored> {
                  return StoredManifestsFor(caller, SIZE_MAX);
                }).value_or(Stored{});
  std::erase_if(stored, [&after](const StoredManifestDescription& each) { return each.QualifiedName() <= after; });
  if (stored.size() > max) stored.resize(max);
  return stored;
}

Result<JobDescription> ControlServer::SetJob(const Caller& caller, const std::string& name,
                                             const tiering::TermsChange& change) {
  return Ask<JobDescription>([=, this]() -> Result<JobDescription> {
    const auto found = parts_.jobs.registry().FindFor(caller, name);
    if (!found) return std::unexpected(found.error());
    const Job& job = **found;
    if (auto set = parts_.jobs.engine().SetJob(job.id, change); !set) {
      return std::unexpected(std::move(set.error()));
    }
    JobDescription description = Describe(job, parts_.jobs.engine().Counters(job.id));
    const tiering::JobCounters& has = description.counters;
    parts_.events.Emit(
        "job_changed", &job,
        fmt::format("job '{}' has guarantee {} and limit {} bytes of RAM, {} and {} bytes of SSD", job.name,
                    has.guarantee_bytes, has.limit_bytes, has.ssd_guarantee_bytes, has.ssd_limit_bytes));
    return description;
  });
}

std::vector<JobDescription> ControlServer::ListJobs(const Caller& caller) {
  const auto jobs = Ask<std::vector<JobDescription>>([this, caller]() -> Result<std::vector<JobDescription>> {
    // Not from the shared figures: a caller decides by these what it may have now.
    std::vector<JobDescription> visible;
    for (const auto& [id, job] : parts_.jobs.registry().jobs()) {
      if (JobRegistry::MaySee(caller, job)) visible.push_back(Describe(job, parts_.jobs.engine().Counters(id)));
    }
    return visible;
  });
  return jobs.value_or(std::vector<JobDescription>{});
}

Result<tiering::TensorPage> ControlServer::ListTensors(const Caller& caller, const std::string& job, uint32_t from,
                                                       size_t max) {
  TIER_CHECK(max > 0, "an empty page would never end a list");
  // A page of the engine's at a time: it serves others in between.
  tiering::TensorPage listed{.tensors = {}, .next = from};
  do {
    // Once the list is full, one more tensor tells that there is another page.
    const bool full = listed.tensors.size() == max;
    const auto page =
        Ask<tiering::TensorPage>([this, caller, job, next = listed.next,
                                  wanted = full ? 1 : max - listed.tensors.size()]() -> Result<tiering::TensorPage> {
          const auto found = parts_.jobs.registry().FindFor(caller, job);
          if (!found) return std::unexpected(found.error());
          return parts_.jobs.engine().Tensors((*found)->id, next, wanted);
        });
    if (!page) return std::unexpected(page.error());
    if (full && !page->tensors.empty()) return listed;
    listed.tensors.insert(listed.tensors.end(), page->tensors.begin(), page->tensors.end());
    listed.next = page->next;
  } while (listed.next != 0);
  return listed;
}

Result<StallReport> ControlServer::ListStalls(const Caller& caller, const std::string& name) {
  return Ask<StallReport>([this, caller, name]() -> Result<StallReport> {
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
  });
}

const tiering::EngineSnapshot& ControlServer::Figures() {
  const base::TimePoint now = parts_.clock.Now();
  if (snapshot_rate_.MayTake(now)) {
    figures_ = parts_.jobs.engine().Snapshot();
    snapshot_rate_.NoteTaken(parts_.clock.Now() - now);
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
  using Taken = std::shared_ptr<const PoolSnapshot>;
  const auto taken = Ask<Taken>([this]() -> Result<Taken> { return Pool(); });
  if (!taken) return std::unexpected(taken.error());
  return PartOf(**taken, caller);
}

Result<QuotaReport> ControlServer::ListQuotas(const Caller& caller) {
  if (parts_.quotas == nullptr) return QuotaReport{};
  parts_.quotas->Learn(caller.uid);
  auto report = Ask<QuotaReport>([this, caller]() -> Result<QuotaReport> {
    return QuotaReport{.quotas = {}, .uses = UsesFor(caller, parts_.jobs, *parts_.quotas)};
  });
  if (report && caller.admin) report->quotas = parts_.quotas->List();
  return report;
}

Status ControlServer::ApplyQuotas(const std::string& what) {
  // A quota of a group is none of a user whose groups were not looked up, as none was needed before.
  using Uids = std::set<uint32_t>;
  const auto owners = Ask<Uids>([this]() -> Result<Uids> { return parts_.jobs.Owners(); });
  if (!owners) return std::unexpected(owners.error());
  for (const uint32_t uid : *owners) parts_.quotas->Learn(uid);
  return Ask<void>([this, what]() -> Status {
    parts_.jobs.ApplyQuotas();
    parts_.events.EmitForAdministrators("quota_changed", what, "an administrator changed a quota");
    return {};
  });
}

Status ControlServer::SetQuota(const Caller& caller, const QuotaTarget& target, const QuotaFields& fields) {
  if (!caller.admin) return NotAdmin("set a quota");
  if (parts_.quotas == nullptr) return Fail(Code::kDenied, "this daemon has no quotas");
  if (Status set = parts_.quotas->Set(target, fields); !set) return set;
  return ApplyQuotas(fmt::format("uid {} set a quota of {}: {}", caller.uid, QuotaText(target), QuotaText(fields)));
}

Status ControlServer::ClearQuota(const Caller& caller, const QuotaTarget& target) {
  if (!caller.admin) return NotAdmin("clear a quota");
  if (parts_.quotas == nullptr) return Fail(Code::kDenied, "this daemon has no quotas");
  if (Status cleared = parts_.quotas->Clear(target); !cleared) return cleared;
  return ApplyQuotas(fmt::format("uid {} cleared the quota of {}", caller.uid, QuotaText(target)));
}

Result<SettingsReport> ControlServer::ListOptions(const Caller& caller) {
  return session::ListOptions(parts_.settings, caller);
}

Result<OptionState> ControlServer::SetOption(const Caller& caller, const std::string& name, const std::string& value) {
  return session::SetOption(parts_.settings, caller, name, value);
}

DaemonDescription ControlServer::Condition(const tiering::EngineSnapshot& snapshot) const {
  DaemonDescription d;
  d.ssd_mode = facts_.ssd_mode;
  d.ssd_mode_reason = facts_.ssd_mode_reason;
  if (facts_.memory_mode) d.memory_mode = facts_.memory_mode();
  if (facts_.memory_mode_reason) d.memory_mode_reason = facts_.memory_mode_reason();
  d.engine.torn_count = snapshot.torn_count;
  d.engine.missing = snapshot.missing;
  d.devices = facts_.devices;
  for (size_t i = 0; i < std::min(d.devices.size(), snapshot.devices.size()); ++i)
    d.devices[i].now = snapshot.devices[i];
  return d;
}

DaemonDescription ControlServer::PartOfEngine() {
  const tiering::EngineSnapshot& figures = Figures();
  DaemonDescription d = Condition(figures);
  d.engine = figures;
  if (d.memory_mode.empty()) d.memory_mode = "unpinned";
  d.huge_page_mode = facts_.huge_page_mode ? facts_.huge_page_mode() : "small";
  if (facts_.prefault) d.prefault = facts_.prefault();
  if (facts_.shortage) d.shortage = facts_.shortage();
  for (DeviceDescription& device : d.devices) {
    if (facts_.smart) device.smart = facts_.smart(device.path);
    if (facts_.drive_writes_per_day) device.drive_writes_per_day = facts_.drive_writes_per_day(device.index);
  }
  return d;
}

void ControlServer::AddOtherParts(DaemonDescription* description) const {
  description->version = facts_.version;
  description->epoch = facts_.epoch;
  description->pid = ::getpid();
  const base::Duration uptime = parts_.clock.Now() - started_;
  description->uptime_seconds = std::chrono::duration<double>(uptime).count();
  description->io_mode = facts_.io_mode;
  description->spin_mode = facts_.spin_mode;
  if (facts_.spin_pauses) description->spin_pauses = facts_.spin_pauses();
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
  auto description = Ask<DaemonDescription>([this]() -> Result<DaemonDescription> { return PartOfEngine(); });
  if (description) AddOtherParts(&*description);
  return description;
}

Result<NodeObservation> ControlServer::Observe() {
  auto observed = Ask<NodeObservation>([this]() -> Result<NodeObservation> {
    NodeObservation node{.daemon = PartOfEngine(), .jobs = {}};
    node.jobs.reserve(parts_.jobs.registry().jobs().size());
    for (const auto& [id, job] : parts_.jobs.registry().jobs()) {
      node.jobs.push_back({.id = static_cast<uint64_t>(id),
                           .name = job.name,
                           .uid = job.uid,
                           .named = job.named,
                           .world_size = job.world_size});
    }
    return node;
  });
  if (!observed) return observed;
  AddOtherParts(&observed->daemon);
  // Both are in the order of the ids. One that was opened after the figures were taken is seen the next time.
  auto view = observed->daemon.engine.jobs.begin();
  const auto end = observed->daemon.engine.jobs.end();
  std::erase_if(observed->jobs, [&](JobDescription& job) {
    view = std::find_if(view, end, [&job](const auto& each) { return static_cast<uint64_t>(each.id) >= job.id; });
    if (view == end || static_cast<uint64_t>(view->id) != job.id) return true;
    job.counters = view->counters;
    return false;
  });
  return observed;
}

// Engine thread.
void ControlServer::StartDrain(const Caller& caller, const std::string& name, uint32_t timeout_ms,
                               SessionFlush::Done done) {
  const auto group = std::make_shared<SessionFlush::Group>(std::move(done));
  if (!name.empty()) {
    const auto job = parts_.jobs.registry().FindFor(caller, name);
    if (!job) return group->Fail(job.error());
    parts_.events.Emit("drain", *job, fmt::format("job '{}' is being drained", name));
    return parts_.sessions.Flush((*job)->id, timeout_ms, group);
  }
  if (!caller.admin) return group->Fail(NotAdmin("drain the daemon").error());
  drained_.store(true, std::memory_order_relaxed);
  parts_.jobs.CloseAdmission(kDrainedRefusal);
  parts_.events.Emit("draining", nullptr, "the node is being drained: no new job or process is taken");
  for (const auto& [id, job] : parts_.jobs.registry().jobs()) parts_.sessions.Flush(id, timeout_ms, group);
}

Status ControlServer::Drain(const Caller& caller, const std::string& job, std::chrono::milliseconds timeout) {
  auto answer = std::make_shared<std::promise<Status>>();
  auto future = answer->get_future();
  const auto timeout_ms = static_cast<uint32_t>(std::clamp<int64_t>(timeout.count(), 1, UINT32_MAX));
  const auto start = [this, caller, job, timeout_ms, answer] {
    StartDrain(caller, job, timeout_ms, [answer](const Status& status) { answer->set_value(status); });
  };
  if (!parts_.mailbox.TryPost(start)) return Fail(Code::kTimeout, "the engine has too many calls waiting: try again");
  if (future.wait_for(timeout + kDrainSlack) != std::future_status::ready) {
    return Fail(Code::kTimeout, fmt::format("not everything was written within {} ms", timeout.count()));
  }
  return future.get();
}

Status ControlServer::Undrain(const Caller& caller) {
  if (!caller.admin) return NotAdmin("undrain the daemon");
  return Ask<void>([this]() -> Status {
    if (stopping_.load(std::memory_order_relaxed)) return Fail(Code::kDisconnected, "tierd is being stopped");
    parts_.jobs.OpenAdmission();
    if (drained_.exchange(false, std::memory_order_relaxed)) {
      parts_.events.Emit("undrained", nullptr, "new jobs and processes are taken again");
    }
    return {};
  });
}

Status ControlServer::DrainDevice(const Caller& caller, uint16_t device, bool draining) {
  if (!caller.admin) return NotAdmin("drain a device");
  return Ask<void>([this, device, draining]() -> Status {
    if (device >= facts_.devices.size()) {
      return Fail(Code::kNotFound, fmt::format("no device {}; there are {}", device, facts_.devices.size()));
    }
    if (auto set = parts_.jobs.engine().SetDeviceDraining(device, draining); !set) return set;
    parts_.events.Emit("drain", nullptr,
                       fmt::format("device {} ({}) {}", device, facts_.devices[device].path,
                                   draining ? "is being emptied" : "is used again"));
    return {};
  });
}

Status ControlServer::RetryDevice(const Caller& caller, uint16_t device) {
  if (!caller.admin) return NotAdmin("have quarantined places tried again");
  return Ask<void>([this, device]() -> Status {
    if (device >= facts_.devices.size()) {
      return Fail(Code::kNotFound, fmt::format("no device {}; there are {}", device, facts_.devices.size()));
    }
    if (auto retried = parts_.jobs.engine().RetryDevice(device); !retried) return retried;
    parts_.events.Emit("retry", nullptr,
                       fmt::format("device {} ({}): its quarantined places are tried again when nothing else is left",
                                   device, facts_.devices[device].path));
    return {};
  });
}

Result<std::vector<std::string>> ControlServer::PurgeDevice(const Caller& caller, const std::string& uuid) {
  if (!caller.admin) return std::unexpected(NotAdmin("purge a missing device").error());
  using Jobs = std::vector<std::string>;
  return AskLater<Jobs>([this, caller, uuid](const Answer<Jobs>& answer) {
    const auto done = [answer](const Result<Jobs>& jobs) { answer(jobs); };
    if (Status begun = parts_.jobs.PurgeDevice(uuid, fmt::format("by request of uid {}", caller.uid), done); !begun) {
      answer(std::unexpected(begun.error()));
    }
  });
}

Result<std::shared_ptr<void>> ControlServer::Watch(const Caller& caller, std::function<void(const Event&)> callback) {
  return parts_.events.Watch(caller, std::move(callback));
}

Result<std::shared_ptr<void>> ControlServer::WatchFrom(const Caller& caller, uint64_t since,
                                                       std::function<void(const Event&)> callback) {
  return parts_.events.Watch(caller, std::move(callback), since);
}

std::vector<Event> ControlServer::RecentEvents(const Caller& caller, uint64_t since) {
  return parts_.events.Recent(caller, since);
}

// As it stands when it is looked at: one that was suspect for some milliseconds is not worth a line.

}  // namespace tier::session
