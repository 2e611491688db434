// See daemon_side.h.
#include "tests/sim/daemon_side.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering::sim {
namespace {

constexpr uint64_t kEpoch = 1;
constexpr uint32_t kSessionsMax = 4096;

}  // namespace

DaemonSide::DaemonSide(const memory::WindowSource& windows, const base::TimePoint& now, DaemonEvents& events)
    : events_(events),
      clock_(now),
      page_(session::EnginePageOwner::Make(kEpoch).value()),
      registry_({.jobs_per_uid_max = kSessionsMax}, tokens_),
      jobs_(*this, registry_, log_),
      table_({.sessions_max = kSessionsMax}, poller_, windows),
      loop_({.engine = *this,
             .sessions = table_,
             .jobs = jobs_,
             .mailbox = mailbox_,
             .page = page_,
             .poller = poller_,
             .clock = clock_},
            session::SpinPolicy(session::SpinMode::kNever, 1)) {}

DaemonSide::~DaemonSide() = default;

void DaemonSide::Connect(Engine& engine) {
  TIER_CHECK(engine_ == nullptr, "connected twice");
  engine_ = &engine;
  table_.Connect(jobs_, *this);
}

// In the daemon such a call is a closure in the mailbox, which wakes the loop.
void DaemonSide::WakeUp() {
  if (std::exchange(asleep_, false)) loop_.EndSleep();
}

void DaemonSide::ChangeQuota(uint32_t uid, const UserQuota& quota) {
  WakeUp();
  quotas_[uid] = quota;
  engine_->SetQuota(uid, quota);
}

Status DaemonSide::OpenJob(JobId job, const JobOptions& options) {
  JobOptions of_user = options;
  if (const auto quota = quotas_.find(options.uid); quota != quotas_.end()) of_user.quota = quota->second;
  return engine_->OpenJob(job, of_user);
}

void DaemonSide::Attach(SessionId session, uint32_t uid, const session::OpenJobRequest& open, AttachDone done) {
  WakeUp();
  auto region = session::MakeSessionRegion(kEpoch, session);
  if (!region) return done(std::unexpected(region.error()));
  proto::FileDescriptor doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  session::AttachRequest request{.session = session,
                                 .uid = uid,
                                 .open = open,
                                 .region = std::move(region->mapping),
                                 .doorbell = proto::FileDescriptor(::dup(doorbell.get()))};
  const auto given = std::make_shared<AttachedSession>();
  given->region = std::move(region->descriptor);
  given->doorbell = std::move(doorbell);
  table_.Attach(std::move(request), clock_.Now(),
                [given, done = std::move(done)](const Result<session::Attached>& attached) {
                  if (!attached) return done(std::unexpected(attached.error()));
                  given->job = attached->job;
                  given->token = attached->token;
                  done(std::move(*given));
                });
}

void DaemonSide::Detach(SessionId session, const std::string& reason) {
  WakeUp();
  table_.Detach(session, reason);
}

void DaemonSide::GiveWindowBack(SessionId session, WindowIndex window) {
  WakeUp();
  table_.WindowReturned(session, window);
}

void DaemonSide::CloseJob(uint64_t job, const std::string& reason, bool purge) {
  WakeUp();
  jobs_.Close(JobId{job}, reason, purge);
}

void DaemonSide::Pass(bool interrupted, bool may_sleep) {
  if (asleep_) {
    const bool late = wake_at_ && clock_.Now() >= *wake_at_;
    if (poller_.Wait(base::Duration{0}) == 0 && !late && !interrupted) return;
    WakeUp();
  }
  if (loop_.RunOnce() || !may_sleep) return;
  std::optional<base::Duration> longest;
  asleep_ = loop_.StartSleep(&longest);
  wake_at_.reset();
  if (longest) wake_at_ = clock_.Now() + *longest;
}

void DaemonSide::Submit(SessionId session, const Request& request) {
  events_.OnSubmit(session, request.sequence);
  engine_->Submit(session, request);
}

bool DaemonSide::Turn(base::TimePoint now) {
  const bool happened = engine_->Turn(now);
  events_.OnTurnEnd();
  return happened;
}

void DaemonSide::OnReply(SessionId session, const Reply& reply) {
  events_.OnAnswer(session, reply);
  table_.OnReply(session, reply);
}

}  // namespace tier::tiering::sim
