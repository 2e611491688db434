// A ControlApi without a daemon: answers from fields that a test sets, and keeps what it was asked.
// Thread-safe, as the contract asks.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/owner_table.h"

namespace tier::test {

class FakeControlApi final : public session::ControlApi {
 public:
  Result<session::JobDescription> OpenJob(const session::Caller& caller,
                                          const session::OpenJobRequest& request) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    opened.push_back(request);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    session::JobDescription job;
    job.id = opened.size();
    job.name = request.name;
    job.uid = caller.uid;
    job.token = std::string(64, 'a');
    job.counters.guarantee_bytes = job.counters.own_guarantee_bytes = request.guarantee_bytes;
    job.counters.ssd_guarantee_bytes = request.ssd_guarantee_bytes;
    job.counters.ssd_limit_bytes = request.ssd_limit_bytes;
    jobs.push_back(job);
    return job;
  }
  Status CloseJob(const session::Caller& caller, const std::string& name, const session::JobClosing&) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    const auto removed = std::erase_if(jobs, [&](const auto& job) { return job.name == name; });
    if (removed == 0) return Fail(Code::kNotFound, "no job " + name);
    return {};
  }
  Result<session::JobDescription> SetJob(const session::Caller&, const std::string& name,
                                         const tiering::TermsChange& change) override {
    const std::lock_guard lock(mutex_);
    for (auto& job : jobs) {
      if (job.name != name) continue;
      tiering::JobCounters& has = job.counters;
      has.guarantee_bytes = change.guarantee_bytes.value_or(has.guarantee_bytes);
      has.own_guarantee_bytes = has.guarantee_bytes;
      has.limit_bytes = change.limit_bytes.value_or(has.limit_bytes);
      has.ssd_guarantee_bytes = change.ssd_guarantee_bytes.value_or(has.ssd_guarantee_bytes);
      has.ssd_limit_bytes = change.ssd_limit_bytes.value_or(has.ssd_limit_bytes);
      return job;
    }
    return Fail(Code::kNotFound, "no job " + name);
  }
  Result<std::vector<session::JobDescription>> ListJobs(const session::Caller& caller) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    return jobs;
  }
  std::string NameOwners(const session::Caller&, std::string text) const override { return text; }
  uint64_t epoch() const override { return description.epoch; }
  Result<std::vector<session::StoredManifestDescription>> ListStoredManifests(const session::Caller&,
                                                                              const std::string& after,
                                                                              size_t max) override {
    const std::lock_guard lock(mutex_);
    std::vector<session::StoredManifestDescription> listed = stored;
    std::erase_if(listed, [&after](const auto& each) { return each.QualifiedName() <= after; });
    if (listed.size() > max) listed.resize(max);
    return listed;
  }
  Result<std::vector<session::UnopenedReservationDescription>> ListUnopenedReservations(const session::Caller&,
                                                                                        const std::string& after,
                                                                                        size_t max) override {
    const std::lock_guard lock(mutex_);
    auto listed = unopened;
    std::erase_if(listed, [&after](const auto& each) { return each.QualifiedName() <= after; });
    if (listed.size() > max) listed.resize(max);
    return listed;
  }
  Result<tiering::TensorPage> ListTensors(const session::Caller&, const std::string&, uint32_t from,
                                          size_t max) override {
    const std::lock_guard lock(mutex_);
    const size_t begin = std::min<size_t>(from, tensors.size());
    const size_t end = std::min(begin + max, tensors.size());
    return tiering::TensorPage{
        .tensors = {tensors.begin() + static_cast<long>(begin), tensors.begin() + static_cast<long>(end)},
        .next = end == tensors.size() ? 0 : static_cast<uint32_t>(end)};
  }
  Result<session::DaemonDescription> Describe() override {
    if (on_describe) on_describe();
    const std::lock_guard lock(mutex_);
    if (stopping) return Fail(Code::kDisconnected, "tierd is stopping");
    return description;
  }
  Result<session::NodeObservation> Observe() override {
    auto daemon = Describe();
    if (!daemon) return std::unexpected(daemon.error());
    return session::NodeObservation{.daemon = *std::move(daemon), .jobs = jobs};
  }
  Result<session::PoolDescription> DescribePool(const session::Caller& caller) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    return pool;
  }
  Result<session::QuotaReport> ListQuotas(const session::Caller& caller) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    return quota_report;
  }
  Status SetQuota(const session::Caller& caller, const session::QuotaTarget& target,
                  const session::QuotaFields& fields) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    quotas_set.emplace_back(target, fields);
    return {};
  }
  Status ClearQuota(const session::Caller& caller, const session::QuotaTarget& target) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    quotas_cleared.push_back(target);
    return {};
  }
  Result<session::StallReport> ListStalls(const session::Caller& caller, const std::string& job) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (std::ranges::none_of(jobs, [&](const auto& each) { return each.name == job; }))
      return Fail(Code::kNotFound, "no job " + job);
    return stalls;
  }
  Result<session::SettingsReport> ListOptions(const session::Caller& caller) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    return settings;
  }
  Result<session::OptionState> SetOption(const session::Caller& caller, const std::string& name,
                                         const std::string& value) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    return session::OptionState{.name = name, .running = value, .by_default = {}, .in_file = {}, .help = {}};
  }
  Result<session::OwnerSocket> OpenSocket(const session::Caller& caller, const std::string& owner) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    const auto uid = static_cast<uint32_t>(session::kOwnerUidFirst + sockets.size());
    sockets.push_back({.owner = owner, .uid = uid, .directory = "/run/tierd/owners/" + owner, .open = true});
    return sockets.back();
  }
  Status CloseSocket(const session::Caller& caller, const std::string& owner, bool purge) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    for (session::OwnerSocket& socket : sockets) socket.open &= socket.owner != owner;
    if (purge) std::erase_if(sockets, [&owner](const auto& socket) { return socket.owner == owner; });
    return {};
  }
  Result<std::vector<session::OwnerSocket>> ListSockets(const session::Caller& caller) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    return sockets;
  }
  Result<session::Drained> Drain(const session::Caller& caller, const std::string& job,
                                 std::chrono::milliseconds timeout) override {
    if (on_drain) on_drain();
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    drained.emplace_back(job, timeout);
    return session::Drained{.stays_in_ram = stays_in_ram};
  }
  Status Undrain(const session::Caller& caller) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    ++undrained;
    return {};
  }
  Status DrainDevice(const session::Caller&, uint16_t device, bool) override {
    if (device != 0) return Fail(Code::kNotFound, "no device " + std::to_string(device));
    return {};
  }
  Result<std::vector<std::string>> PurgeDevice(const session::Caller& caller, const std::string& uuid) override {
    const std::lock_guard lock(mutex_);
    callers.push_back(caller);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    purged.push_back(uuid);
    return purged_jobs;
  }
  Status RetryDevice(const session::Caller&, uint16_t device) override {
    if (device != 0) return Fail(Code::kNotFound, "no device " + std::to_string(device));
    return {};
  }
  Result<std::shared_ptr<void>> Watch(const session::Caller&,
                                      std::function<void(const session::Event&)> callback) override {
    const std::lock_guard lock(mutex_);
    if (refusal.code != Code::kOk) return std::unexpected(refusal);
    watchers.push_back(std::move(callback));
    const auto entry = std::prev(watchers.end());
    return std::shared_ptr<void>(nullptr, [this, entry](void*) {
      const std::lock_guard inner(mutex_);
      watchers.erase(entry);
    });
  }
  Result<std::shared_ptr<void>> WatchFrom(const session::Caller& caller, uint64_t since,
                                          std::function<void(const session::Event&)> callback) override {
    for (const session::Event& event : RecentEvents(caller, since)) callback(event);
    return Watch(caller, std::move(callback));
  }
  std::vector<session::Event> RecentEvents(const session::Caller&, uint64_t since) override {
    const std::lock_guard lock(mutex_);
    std::vector<session::Event> behind = recent;
    std::erase_if(behind, [since](const session::Event& event) { return event.sequence <= since; });
    return behind;
  }
  void Emit(const session::Event& event) {
    const std::lock_guard lock(mutex_);
    for (const auto& watcher : watchers) watcher(event);
  }
  size_t watcher_count() {
    const std::lock_guard lock(mutex_);
    return watchers.size();
  }

  // Called first, without the lock: may block. Set before the server starts to be used.
  std::function<void()> on_describe;
  std::function<void()> on_drain;
  Error refusal{Code::kOk, {}};
  bool stopping = false;  // Describe has no answer.
  session::DaemonDescription description;
  session::PoolDescription pool;
  std::vector<session::JobDescription> jobs;
  std::vector<session::StoredManifestDescription> stored;         // By qualified name.
  std::vector<session::UnopenedReservationDescription> unopened;  // So too.
  std::vector<tiering::TensorView> tensors;
  std::vector<session::Event> recent;
  std::vector<session::Caller> callers;
  std::vector<session::OpenJobRequest> opened;
  std::vector<std::pair<std::string, std::chrono::milliseconds>> drained;
  bool stays_in_ram = false;  // What Drain says.
  int undrained = 0;
  std::vector<std::string> purged;       // Devices.
  std::vector<std::string> purged_jobs;  // The answer.
  session::SettingsReport settings;
  session::StallReport stalls;
  session::QuotaReport quota_report;
  std::vector<std::pair<session::QuotaTarget, session::QuotaFields>> quotas_set;
  std::vector<session::QuotaTarget> quotas_cleared;
  std::vector<session::OwnerSocket> sockets;
  std::list<std::function<void(const session::Event&)>> watchers;

 private:
  std::mutex mutex_;
};

}  // namespace tier::test
