// SessionWorld: the whole session layer around a FakeEngine, as the daemon puts it together: an engine thread with its
// loop, a socket thread with its listener in a temporary directory. Tests talk to it as clients do.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "daemon/session/control_server.h"
#include "daemon/session/engine_loop.h"
#include "daemon/session/listener.h"
#include "tests/support/session/data_client.h"
#include "tests/support/session/fake_engine.h"

namespace tier::session::testing {

// Windows that are only descriptors.
class FakeWindows final : public memory::WindowSource {
 public:
  memory::WindowSizes window_sizes(WindowKind) const override { return {kWindowSizeMin, kWindowSizeMin}; }
  memory::WindowWishes wishes(const memory::WindowHolder&) const override { return {.next = kWindowSizeMin}; }
  uint32_t windows_max() const override { return 64; }
  uint32_t free_indices() const override { return 64; }
  uint64_t arena_limit_bytes() const override { return 64 * kWindowSizeMin; }
  uint64_t address_space_bytes() const override { return 128 * kWindowSizeMin; }
  uint64_t arena_max_bytes() const override { return 64 * kWindowSizeMin; }
  uint64_t arena_bytes() const override { return 0; }
  bool block_windows_take_slots() const override { return true; }
  Result<memory::StartedWindow> StartCreate(memory::OwnerId, WindowKind, uint64_t, int) override {
    return Fail(Code::kNoMemory, "no windows here");
  }
  void Retire(WindowIndex) override {}
  void Poll(std::vector<memory::WindowEvent>*) override {}
  std::shared_ptr<const proto::FileDescriptor> Descriptor(WindowIndex) const override { return file_; }

 private:
  std::shared_ptr<const proto::FileDescriptor> file_ =
      std::make_shared<const proto::FileDescriptor>(proto::CreateMemoryFile("fake-window", kPageSize).value());
};

struct SessionWorldOptions {
  SessionTableOptions table;
  JobRegistryOptions jobs;
  std::chrono::milliseconds handshake_timeout{60'000};
  SpinMode spin = SpinMode::kNever;
  bool descriptors_refused = true;  // False: clients can send some, as with kernels before 6.16.
  PidfdSource pidfd_source = PidfdSource::kSocket;
  UnreadLimits unread;
  uint32_t attaches_per_uid_per_second = 100'000;
  std::function<void(const std::string&)> on_warning;  // Socket thread.
  const base::Clock* clock = nullptr;                  // Instead of the machine's.
  QuotaBook* quotas = nullptr;
  std::function<void(const std::string&)> apply_quotas_later;  // As ControlServerParts has it.
  OwnerTable* owners = nullptr;                                // With them the sockets of owners are served.
  ReservationFile* reservations = nullptr;
  UserDirectory* users = nullptr;  // The system's.
  bool is_private = false;
  std::string socket_directory;  // As DaemonFacts has it. Empty: a drain ends with this world.
  size_t devices = 1;
  std::function<void(const std::string&)> on_degraded;              // Engine thread, as ControlServerParts has it.
  std::string ssd_mode = "full";                                    // As DaemonFacts has it.
  std::function<bool(uint32_t, std::function<void()>)> learn_user;  // As ListenerOptions has it.
  SettingsAccess settings{};
};

class SessionWorld {
 public:
  explicit SessionWorld(const SessionWorldOptions& options = {});
  ~SessionWorld();

  const std::string& socket_path() const { return socket_path_; }
  FakeEngine engine;  // Touch it only through OnEngine.
  EventLog events;

  // Runs on the engine thread and waits for it.
  template <typename F>
  auto OnEngine(F&& function) {
    using R = std::invoke_result_t<F>;
    std::promise<R> done;
    auto future = done.get_future();
    const bool posted = mailbox_.TryPost([&] {
      if constexpr (std::is_void_v<R>) {
        function();
        done.set_value();
      } else {
        done.set_value(function());
      }
    });
    TIER_CHECK(posted, "mailbox");
    return future.get();
  }
  // Waits for the end of the turn that follows what OnEngine has run: the fake engine acts in its turns.
  void WaitForTurn() {
    const uint64_t turns = OnEngine([this] { return engine.turns; });
    while (OnEngine([this] { return engine.turns; }) == turns) std::this_thread::yield();
  }
  // Runs on the socket thread and waits for it.
  void OnSocketThread(const std::function<void()>& function) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      function();
      done.set_value();
    });
    done.get_future().get();
  }
  size_t sessions() {
    return OnEngine([this] { return table_->size(); });
  }
  // Waits until the engine thread sees `count` sessions; false after kWaitMs.
  bool WaitForSessions(size_t count);
  // Whether the listener holds no connection in any state.
  bool ListenerIsIdle() {
    bool idle = false;
    OnSocketThread([&] { idle = listener_->idle(); });
    return idle;
  }
  // As an orderly stop begins.
  void StopAccepting(const std::string& reason) {
    OnSocketThread([&] { listener_->StopAccepting(reason); });
  }
  // The sockets of owners, in a folder of this world. REQUIRES: options.owners.
  OwnerSockets& owner_sockets() { return *owner_sockets_; }
  std::vector<uint32_t> ended_owners;  // Whose connections to their control sockets were ended.
  // From here on the engine thread does nothing, and takes no more calls, until the guard goes. The guard goes first.
  std::shared_ptr<void> BlockEngine();
  // Closures that wait for the engine thread.
  size_t posted() const { return mailbox_.waiting(); }
  SessionTable& table() { return *table_; }
  JobService& jobs() { return *job_service_; }
  ControlServer& control() { return *control_; }
  EngineLoop& loop() { return *loop_; }
  std::vector<std::string> EngineLog() {
    return OnEngine([this] { return engine.log; });
  }

 private:
  OwnerSocketCalls CallsOfOwners();

  std::string directory_;
  std::string socket_path_;
  base::SteadyClock steady_clock_;
  const base::Clock& clock_;
  base::Mailbox mailbox_;
  EngineRest rest_;
  Poller poller_;
  FakeWindows windows_;
  KernelTokenSource tokens_;
  EnginePageOwner page_;
  std::unique_ptr<SessionTable> table_;
  std::unique_ptr<JobRegistry> registry_;
  std::unique_ptr<JobService> job_service_;
  std::unique_ptr<EngineLoop> loop_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<Listener> listener_;
  std::map<uint32_t, proto::FileDescriptor> control_sockets_;  // Of owners.
  std::unique_ptr<OwnerSockets> owner_sockets_;
  std::unique_ptr<ControlServer> control_;
  std::thread engine_thread_;
  std::thread socket_thread_;
};

}  // namespace tier::session::testing
