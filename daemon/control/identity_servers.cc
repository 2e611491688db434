#include "daemon/control/identity_servers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include <grpcpp/health_check_service_interface.h>

#include "daemon/base/check.h"
#include "daemon/session/passed_descriptors.h"
#include "proto/start_thread.h"

namespace tier::control {
namespace {

constexpr auto kStopGrace = std::chrono::seconds(2);
constexpr int kServerThreads =
    16;  // The first one of a process starts 11 (gRPC 1.51, 2026-11-24), and calls start more.

// 0: not open (any more).
uint64_t InodeOf(int fd) {
  struct stat about{};
  return ::fstat(fd, &about) == 0 ? about.st_ino : 0;
}

// Whether the system gives the threads that a new server needs, the first one most: gRPC ends the process where it
// cannot start one. Others may take them in between, so this is no promise; it turns a lasting lack of threads into a
// refusal.
Status CheckThreads() {
  std::vector<std::thread> threads;
  std::promise<void> all_asked_for;
  const std::shared_future<void> end = all_asked_for.get_future().share();
  Status given;
  for (int i = 0; i < kServerThreads && given; ++i) {
    auto thread = proto::StartThread("tierd-check", proto::BlockedSignals::kAsynchronous, [end] { end.wait(); });
    if (thread) {
      threads.push_back(std::move(*thread));
    } else {
      given = std::unexpected(std::move(thread.error()));
    }
  }
  all_asked_for.set_value();
  for (std::thread& thread : threads) thread.join();
  return given;
}

}  // namespace

Result<IdentityServers::Entry*> IdentityServers::Find(const Identity& identity) {
  const auto found =
      std::find_if(servers_.begin(), servers_.end(), [&](const Entry& e) { return e.identity == identity; });
  if (found != servers_.end()) {
    servers_.splice(servers_.begin(), servers_, found);
    return &servers_.front();
  }
  if (auto threads = CheckThreads(); !threads) return std::unexpected(std::move(threads.error()));
  if (CountOf(identity.admin) >= max_) {
    if (Status evicted = Evict(identity.admin); !evicted) return std::unexpected(std::move(evicted.error()));
  }
  Entry entry{.identity = identity,
              .connections = {},
              .relay = nullptr,
              .service = std::make_unique<ControlService>(api_, identity.uid, identity.admin),
              .acceptor = nullptr,
              .server = nullptr,
              .end_by = {}};
  entry.server = MakeServer(&entry);
  if (entry.server == nullptr) return Fail(Code::kNoMemory, "gRPC can make no server for its user");
  TellHealth(entry, serving_);
  servers_.push_front(std::move(entry));
  return &servers_.front();
}

size_t IdentityServers::CountOf(bool admin) const {
  const auto is_such = [admin](const Entry& e) { return e.identity.admin == admin; };
  return static_cast<size_t>(std::ranges::count_if(servers_, is_such));
}

Status IdentityServers::Evict(bool admin) {
  if (evicted_.size() + ending_.size() >= kEvictedMax) {
    return Fail(Code::kNoMemory, std::to_string(kEvictedMax) + " servers of other users have not ended yet: try again");
  }
  if (ending_threads_ == nullptr) {
    auto started = base::Workers::Start(kEndingThreads, "tierd-end");
    if (!started) return std::unexpected(std::move(started.error()));
    ending_threads_ = std::move(*started);
  }
  const auto is_such = [admin](const Entry& e) { return e.identity.admin == admin; };
  const auto last = std::find_if(servers_.rbegin(), servers_.rend(), is_such);
  TIER_CHECK(last != servers_.rend(), "none of {} servers can make room", max_);
  last->end_by = std::chrono::system_clock::now() + kStopGrace;
  evicted_.splice(evicted_.end(), servers_, std::prev(last.base()));
  const bool posted = ending_threads_->TryPost([this] { EndOneEvicted(); });
  TIER_CHECK(posted, "{} servers are to be ended", evicted_.size());
  return {};
}

// None is there where End or Stop has taken it. Two of one identity are two entries of ending_.
void IdentityServers::EndOneEvicted() {
  std::list<Entry> oldest;
  {
    const MutexLock lock(mutex_);
    if (evicted_.empty()) return;
    oldest.splice(oldest.end(), evicted_, evicted_.begin());
    ending_.push_back(oldest.front().identity);
  }
  const Identity identity = oldest.front().identity;
  oldest.front().server->Shutdown(oldest.front().end_by);
  oldest.clear();
  const MutexLock lock(mutex_);
  ending_.erase(std::ranges::find(ending_, identity));
  ended_.NotifyAll();
}

std::unique_ptr<grpc::Server> IdentityServers::MakeServer(Entry* entry) {
  grpc::ResourceQuota quota("identity");
  quota.SetMaxThreads(kThreadsPerIdentityMax).Resize(kBufferBytesPerIdentityMax);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  entry->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  builder.RegisterService(entry->service.get());
  return builder.BuildAndStart();
}

// Of the daemon ("") and of the one service: a load balancer, or a probe, may ask for either.
void IdentityServers::TellHealth(const Entry& entry, bool serving) {
  grpc::HealthCheckServiceInterface* const health = entry.server->GetHealthCheckService();
  TIER_CHECK(health != nullptr, "the health service is not enabled");
  for (const std::string& service : {std::string(), std::string(v1::ControlService::service_full_name())})
    health->SetServingStatus(service, serving);
}

void IdentityServers::SetServing(bool serving) {
  const MutexLock lock(mutex_);
  serving_ = serving;
  for (const Entry& entry : servers_) TellHealth(entry, serving);
}

size_t IdentityServers::count() const {
  const MutexLock lock(mutex_);
  return servers_.size();
}

bool IdentityServers::HasRoom(Entry* entry) {
  std::erase_if(entry->connections, [](const Handed& h) { return InodeOf(h.fd) != h.inode; });
  return entry->connections.size() < kConnectionsPerIdentityMax;
}

// What gRPC is to read: the socket itself, or the relay's.
Result<proto::FileDescriptor> IdentityServers::ForServer(Entry* entry, proto::FileDescriptor* socket) {
  if (session::DescriptorsRefused(socket->get())) return std::move(*socket);
  if (entry->relay == nullptr) {
    auto relay = StreamRelay::Start();
    if (!relay) return std::unexpected(std::move(relay.error()));
    entry->relay = std::move(*relay);
  }
  return entry->relay->Add(socket);
}

Status IdentityServers::Adopt(const Identity& identity, int listener_fd, proto::FileDescriptor* socket) {
  const MutexLock lock(mutex_);
  const auto found = Find(identity);
  if (!found) return std::unexpected(found.error());
  Entry* const entry = *found;
  if (!HasRoom(entry)) {
    return Fail(Code::kNoMemory, "uid " + std::to_string(identity.uid) + " has " +
                                     std::to_string(kConnectionsPerIdentityMax) + " connections, the limit");
  }
  auto adopted = ForServer(entry, socket);
  if (!adopted) return std::unexpected(std::move(adopted.error()));
  entry->connections.push_back({adopted->get(), InodeOf(adopted->get())});
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener_fd;
  parameters.fd = adopted->Release();  // gRPC closes it.
  entry->acceptor->HandleNewConnection(&parameters);
  return {};
}

void IdentityServers::End(const Identity& identity) {
  std::list<Entry> ended;
  const auto take = [&](std::list<Entry>* from) {
    for (auto entry = from->begin(); entry != from->end();) {
      const auto next = std::next(entry);
      if (entry->identity == identity) ended.splice(ended.end(), *from, entry);
      entry = next;
    }
  };
  {
    const MutexLock lock(mutex_);
    take(&servers_);
    take(&evicted_);
  }
  Shutdown(std::move(ended));
  const MutexLock lock(mutex_);
  while (std::ranges::find(ending_, identity) != ending_.end()) ended_.Wait(mutex_);
}

void IdentityServers::Shutdown(std::list<Entry> ended) {
  const auto deadline = std::chrono::system_clock::now() + kStopGrace;
  for (Entry& entry : ended) entry.server->Shutdown(deadline);
}

void IdentityServers::Stop() {
  std::list<Entry> ended;
  std::unique_ptr<base::Workers> threads;
  {
    const MutexLock lock(mutex_);
    ended.swap(servers_);
    ended.splice(ended.end(), evicted_);
    threads = std::move(ending_threads_);
  }
  Shutdown(std::move(ended));
  threads.reset();  // Once those that they end have ended.
}

}  // namespace tier::control
