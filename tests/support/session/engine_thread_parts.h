// EngineThreadParts: a fixture with the parts of the engine thread, driven by hand on the test's own; sessions have no
// sockets.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/session/engine_loop.h"
#include "daemon/session/spin_policy.h"
#include "tests/support/session/manual_clock.h"
#include "tests/support/session/ring_client.h"
#include "tests/support/session/session_world.h"

namespace tier::session::testing {

class CountingTokens final : public TokenSource {
 public:
  uint64_t Random() override { return ++last_; }

 private:
  uint64_t last_ = 0;
};

class NoNotices final : public SessionNotices {
 public:
  void SendWindow(tiering::SessionId, const memory::WindowShape&,
                  std::shared_ptr<const proto::FileDescriptor>) override {}
  void SendWindowReturn(tiering::SessionId, WindowIndex) override {}
  void EndProcess(tiering::SessionId session, const std::string&) override {
    killed.push_back(static_cast<uint64_t>(session));
  }
  void SendEnd(tiering::SessionId session, Code, const std::string&) override {
    ended.push_back(static_cast<uint64_t>(session));
  }
  std::vector<uint64_t> ended;
  std::vector<uint64_t> killed;
};

class EngineThreadParts : public ::testing::Test {
 protected:
  EngineThreadParts() {
    engine_.Connect(table_);
    table_.Connect(job_service_, notices_);
  }
  // A session without a socket.
  std::unique_ptr<RingClient> Attach(uint64_t session, const std::string& job, uint32_t uid = 1000) {
    auto region = MakeSessionRegion(1, static_cast<tiering::SessionId>(session)).value();
    auto client = std::make_unique<RingClient>(region.descriptor.get());
    AttachRequest request = MakeRequest(session, uid, job, std::move(region.mapping));
    bells_[client.get()] = proto::FileDescriptor(::dup(request.doorbell.get()));
    EXPECT_TRUE(AttachNow(table_, std::move(request)));
    return client;
  }
  // The answer of an attach that has not to wait for its job.
  Result<Attached> AttachNow(SessionTable& table, AttachRequest request) {
    Result<Attached> answer = Fail(Code::kTimeout, "not answered");
    table.Attach(std::move(request), clock_.now, [&](Result<Attached> attached) { answer = std::move(attached); });
    return answer;
  }
  static AttachRequest MakeRequest(uint64_t session, uint32_t uid, const std::string& job, proto::Mapping region) {
    return {.session = static_cast<tiering::SessionId>(session),
            .uid = uid,
            .open = {.name = job},
            .region = std::move(region),
            .doorbell = proto::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  }
  // A request, and the bell where the client has to ring. False: its ring is full.
  bool SendOne(RingClient& client) {
    const proto::RequestItem item{.tensor = 1};
    if (!client.Send(proto::Op::kFree, {&item, 1})) return false;
    if (MustRing(client)) Ring(client);
    return true;
  }
  static bool MustRing(RingClient& client) { return client.request_control().consumer_waiting.load() != 0; }
  // And time passes, so that the next pass hears it.
  void Ring(RingClient& client) {
    EXPECT_EQ(::eventfd_write(bells_.at(&client).get(), 1), 0);
    clock_.now = clock_.now + kBellInterval;
  }

  ManualClock clock_;
  base::Mailbox mailbox_;
  Poller poller_;
  FakeWindows windows_;
  CountingTokens tokens_;
  FakeEngine engine_;
  EventLog events_;
  EnginePageOwner page_ = EnginePageOwner::Make(1).value();
  JobRegistry registry_{{.jobs_per_uid_max = 2000}, tokens_};
  JobService job_service_{engine_, registry_, events_};
  NoNotices notices_;
  std::map<RingClient*, proto::FileDescriptor> bells_;
  SessionTable table_{{.sessions_max = 2000}, poller_, windows_};
  EngineLoop loop_{{.engine = engine_,
                    .sessions = table_,
                    .jobs = job_service_,
                    .mailbox = mailbox_,
                    .page = page_,
                    .poller = poller_,
                    .clock = clock_},
                   SpinPolicy(SpinMode::kNever, 1)};
};

}  // namespace tier::session::testing
