#include "tests/support/session/session_world.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/session/hostile_descriptor.h"

namespace tier::session::testing {

namespace {

std::string MakeScratchDirectory() {
  std::string path = (std::filesystem::temp_directory_path() / "tier-session-XXXXXX").string();
  TIER_CHECK(::mkdtemp(path.data()) != nullptr, "{}", path);
  TIER_CHECK(::chmod(path.c_str(), 0755) == 0, "{}", path);  // Tests of other uids connect.
  return path;
}

SessionTableOptions TableOptionsOf(const SessionWorldOptions& options) {
  SessionTableOptions table = options.table;
  table.owners = options.owners;
  return table;
}

ListenerOptions ListenerOptionsOf(const SessionWorldOptions& options, const FakeWindows& windows) {
  ListenerOptions listener;
  listener.epoch = 77;
  listener.window_size = windows.window_sizes(WindowKind::kBlock).most;
  listener.address_space_size = windows.address_space_bytes();
  listener.windows_max = windows.windows_max();
  listener.daemon_version = "tierd test";
  listener.handshake_timeout = options.handshake_timeout;
  listener.pidfd_source = options.pidfd_source;
  listener.unread = options.unread;
  listener.attaches_per_uid_per_second = options.attaches_per_uid_per_second;
  listener.on_warning = options.on_warning;
  listener.learn_user = options.learn_user;
  listener.owners = options.owners;
  return listener;
}

DaemonFacts FactsFor(const SessionWorldOptions& options) {
  DaemonFacts facts{.version = "test",
                    .ssd_mode = options.ssd_mode,
                    .is_private = options.is_private,
                    .socket_directory = options.socket_directory};
  facts.devices.resize(options.devices);
  for (size_t i = 0; i < options.devices; ++i) facts.devices[i].index = static_cast<uint16_t>(i);
  return facts;
}

}  // namespace

SessionWorld::SessionWorld(const SessionWorldOptions& options)
    : directory_(MakeScratchDirectory()),
      socket_path_(directory_ + "/tierd.sock"),
      clock_(options.clock != nullptr ? *options.clock : steady_clock_),
      page_(EnginePageOwner::Make(77).value()) {
  table_ = std::make_unique<SessionTable>(TableOptionsOf(options), poller_, windows_);
  engine.Connect(*table_);
  registry_ = std::make_unique<JobRegistry>(options.jobs, tokens_);
  job_service_ = std::make_unique<JobService>(engine, *registry_, events, options.quotas, options.owners);
  loop_ = std::make_unique<EngineLoop>(EngineLoopParts{.engine = engine,
                                                       .sessions = *table_,
                                                       .jobs = *job_service_,
                                                       .mailbox = mailbox_,
                                                       .page = page_,
                                                       .poller = poller_,
                                                       .clock = clock_,
                                                       .rest = &rest_},
                                       SpinPolicy(options.spin, 1));
  const ListenerOptions listener = ListenerOptionsOf(options, windows_);
  listener_ = std::make_unique<Listener>(
      listener, ListenerParts{.io = io_, .mailbox = mailbox_, .sessions = *table_, .page = page_, .clock = clock_});
  table_->Connect(*job_service_, *listener_);
  if (options.owners != nullptr)
    owner_sockets_ = std::make_unique<OwnerSockets>(directory_ + "/owners", *options.owners, CallsOfOwners());
  DaemonFacts facts = FactsFor(options);
  facts.spin_pauses = [this] { return loop_->spin_pauses(); };
  control_ = std::make_unique<ControlServer>(facts, ControlServerParts{.mailbox = mailbox_,
                                                                       .jobs = *job_service_,
                                                                       .sessions = *table_,
                                                                       .events = events,
                                                                       .clock = clock_,
                                                                       .quotas = options.quotas,
                                                                       .settings = options.settings,
                                                                       .apply_quotas_later = options.apply_quotas_later,
                                                                       .rest = &rest_,
                                                                       .owners = options.owners,
                                                                       .sockets = owner_sockets_.get(),
                                                                       .users = options.users,
                                                                       .reservations = options.reservations,
                                                                       .on_degraded = options.on_degraded});
  proto::FileDescriptor listening = ListenAt(socket_path_, 0666).value();
  if (!options.descriptors_refused) AllowDescriptors(listening.get());
  listener_->Start(std::move(listening));
  if (owner_sockets_ != nullptr) (void)owner_sockets_->Reopen();
  engine_thread_ = std::thread([this] { loop_->Run(); });
  socket_thread_ = std::thread([this] { io_.run(); });
}

SessionWorld::~SessionWorld() {
  owner_sockets_.reset();
  io_.stop();
  socket_thread_.join();
  loop_->Stop();
  (void)mailbox_.TryPost([] {});
  engine_thread_.join();
  listener_->CloseAll();
  std::filesystem::remove_all(directory_);
}

// No one answers at the control socket.
OwnerSocketCalls SessionWorld::CallsOfOwners() {
  OwnerSocketCalls calls;
  calls.listen = [this](uint32_t uid, proto::FileDescriptor listening) {
    auto socket = std::make_shared<proto::FileDescriptor>(std::move(listening));
    boost::asio::post(io_, [this, uid, socket] { listener_->StartFor(uid, std::move(*socket)); });
  };
  calls.stop = [this](uint32_t uid) { boost::asio::post(io_, [this, uid] { listener_->StopFor(uid); }); };
  calls.listen_control = [this](uint32_t uid, const std::string& path) -> Status {
    auto socket = ListenAt(path, 0666);
    if (!socket) return std::unexpected(socket.error());
    control_sockets_.insert_or_assign(uid, std::move(*socket));
    return {};
  };
  calls.stop_control = [this](uint32_t uid) { control_sockets_.erase(uid); };
  calls.end_control = [this](uint32_t uid) { ended_owners.push_back(uid); };
  return calls;
}

std::shared_ptr<void> SessionWorld::BlockEngine() {
  auto go_on = std::make_shared<std::promise<void>>();
  std::promise<void> blocked;
  const bool posted = mailbox_.TryPost([&blocked, end = go_on->get_future()]() mutable {
    blocked.set_value();
    end.wait();
  });
  TIER_CHECK(posted, "mailbox");
  blocked.get_future().get();
  while (mailbox_.TryPost([] {})) continue;
  return {nullptr, [this, go_on](void*) {
            go_on->set_value();
            while (mailbox_.waiting() > 0) std::this_thread::yield();
          }};
}

bool SessionWorld::WaitForSessions(size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  while (std::chrono::steady_clock::now() < deadline) {
    if (sessions() == count) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace tier::session::testing
