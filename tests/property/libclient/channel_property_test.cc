// A Channel and its peer in one thread, both driven by one seed: no request is lost, doubled or changed, every answer
// reaches the one who asked, no wake-up is lost, and credits are what the requests hold. A failure prints the seed;
// replay with RC_PARAMS="seed=<seed>" or by calling Program with it.
#include "libclient/client/channel.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/property/libclient/ring_peer.h"

namespace tier::client {
namespace {

using proto::Op;

class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed), peer_(seed + 1), waiter_(peer_, seed + 2) {
    const ChannelOptions options{.spin = SpinMode::kNever, .waiter = &waiter_};
    channel_ = std::make_unique<Channel>(peer_.region(), peer_.engine(), peer_.doorbell(), options);
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Step();
      Check();
    }
    TakeAll();
    while (peer_.answered().size() < sequence_) {
      peer_.WakeBySelf();
      peer_.Step();
    }
    channel_->Poll();
    Check();
    RC_ASSERT(failures_told_ == FailedReleases());
  }
  void End() {
    Submit(Credit::kCall);
    for (uint64_t i = Draw(3); i > 0; --i) peer_.Step();
    channel_->End(Code::kRevoked, "the end of the program");
    const auto late = channel_->Submit({.op = Op::kFlush});
    RC_ASSERT(!late && late.error().code == Code::kRevoked);
    RC_ASSERT(!channel_->SubmitDetached({.op = Op::kRelease}));
    for (Pending* pending : open_) {
      const bool published = peer_.answered().contains(pending->order().sequence);
      RC_ASSERT(channel_->Wait(pending).has_value() == published);
      if (published) CheckAnswer(*pending);
      channel_->Finish(pending);
    }
    Check();
  }

 private:
  struct Sent {
    Op op;
    uint32_t flags = 0;
    bool can_wait = false;
    std::vector<std::byte> body;  // Items or text.
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }

  void Step() {
    switch (Draw(10)) {
      case 0:
      case 1: return Submit(Credit::kCall);
      case 2:
      case 3: return Submit(Credit::kStarted);
      case 4:
      case 5: return Release();
      case 6: return WaitForOne();
      case 7: return channel_->Poll();
      case 8: return (void)peer_.Step();
      default: return WaitForAny();
    }
  }

  // Bursts fill the ring and the credits.
  void Submit(Credit credit) {
    const bool burst = Draw(20) == 0;
    for (uint64_t count = burst ? 1 + Draw(600) : 1; count > 0; --count) {
      const Sent sent = DrawRequest();
      const Submission submission = SubmissionOf(sent);
      const uint32_t before = Used(credit);
      const bool waits = credit == Credit::kCall && Draw(2) == 0;
      const bool quiet = !waits && Draw(2) == 0;
      const auto put = waits   ? channel_->Submit(submission)
                       : quiet ? channel_->TrySubmitQuietly(submission, credit, &group_)
                               : channel_->TrySubmit(submission, credit, &group_);
      unrung_ = quiet && put && *put != nullptr;  // Whatever finds no room rings, and so does what is not quiet.
      if (!put) {
        RC_ASSERT(waits && put.error().code == Code::kTimeout);
        return;
      }
      if (*put == nullptr) {
        RC_ASSERT(before == QuotaOf(credit) || peer_.unread() > 0u);
        return;
      }
      RC_ASSERT(before < QuotaOf(credit) && (*put)->order().sequence == sequence_ + 1);
      sent_[++sequence_] = sent;
      open_.push_back(*put);
    }
    if (unrung_ && Draw(2) == 0) Ring();
  }

  void Ring() {
    channel_->RingForSubmitted();
    unrung_ = false;
  }

  void Release() {
    const bool burst = Draw(20) == 0;
    for (uint64_t count = burst ? 1 + Draw(600) : 1; count > 0; --count) {
      Sent sent{.op = Op::kRelease, .can_wait = Draw(2) == 0};
      sent.body.resize((1 + Draw(3)) * sizeof(proto::RequestItem));
      const auto put = channel_->TrySubmitDetached(SubmissionOf(sent));
      RC_ASSERT(put.has_value());
      unrung_ = false;
      if (!*put) return;
      sent_[++sequence_] = sent;
    }
  }

  Sent DrawRequest() {
    Sent sent{.op = Op::kFlush, .flags = static_cast<uint32_t>(Draw(2))};
    const uint64_t kind = Draw(8);
    if (kind == 0) sent.op = Op::kStat;
    if (kind == 1) sent.op = Op::kIntern;
    const uint64_t items = Draw(50) == 0 ? proto::kItemsPerRequestMax : Draw(5);
    sent.body.resize(sent.op == Op::kIntern ? 1 + Draw(200) : items * sizeof(proto::RequestItem));
    for (auto& byte : sent.body) byte = static_cast<std::byte>(random_());
    return sent;
  }

  static Submission SubmissionOf(const Sent& sent) {
    Submission submission{.op = sent.op, .flags = sent.flags, .timeout_ms = 10, .can_wait = sent.can_wait};
    if (sent.op == Op::kIntern) {
      submission.text = {reinterpret_cast<const char*>(sent.body.data()), sent.body.size()};
    } else {
      submission.items = {reinterpret_cast<const proto::RequestItem*>(sent.body.data()),
                          sent.body.size() / sizeof(proto::RequestItem)};
    }
    return submission;
  }

  void WaitForOne() {
    if (open_.empty()) return;
    if (unrung_) Ring();
    const auto chosen = std::next(open_.begin(), static_cast<ptrdiff_t>(Draw(open_.size())));
    const bool patient = Draw(2) == 0;
    const auto deadline = patient ? Clock::time_point::max() : waiter_.Now() + std::chrono::microseconds(Draw(300));
    const auto waited = channel_->Wait(*chosen, deadline);
    RC_ASSERT(waited || (!patient && waited.error().code == Code::kTimeout));
    if (waited) Take(chosen);
  }

  void WaitForAny() {
    if (unrung_) Ring();
    const uint64_t seen = group_.events.load();
    const auto deadline = waiter_.Now() + std::chrono::microseconds(Draw(300));
    const bool reached = channel_->WaitGroup(group_, seen, deadline);
    RC_ASSERT(reached == (group_.events.load() != seen));
  }

  void TakeAll() {
    if (unrung_) Ring();
    while (!open_.empty()) {
      RC_ASSERT(channel_->Wait(open_.front()).has_value());
      Take(open_.begin());
    }
  }

  void Take(std::list<Pending*>::iterator chosen) {
    CheckAnswer(**chosen);
    channel_->Finish(*chosen);
    open_.erase(chosen);
  }

  void CheckAnswer(const Pending& pending) {
    const auto& answer = peer_.answered().at(pending.order().sequence);
    RC_ASSERT(pending.done() && pending.code() == answer.code);
    if (answer.code != Code::kOk) {
      RC_ASSERT(pending.ToStatus().error().message == answer.detail);
      return;
    }
    RC_ASSERT(pending.value() == answer.value);
    if (pending.order().op == Op::kStat) RC_ASSERT(pending.Tensor()->size == answer.value);
  }

  uint32_t Used(Credit credit) const {
    uint32_t used = 0;
    for (const Pending* pending : open_) used += pending->order().credit == credit ? 1 : 0;
    return used;
  }

  // What the peer has read is what was sent, once each, in order.
  void Check() {
    const Status intact = channel_->CheckInvariants();
    if (!intact) RC_FAIL(intact.error().message);
    RC_ASSERT(!channel_->ended() || channel_->end_reason().code == Code::kRevoked);
    for (; checked_ < peer_.received().size(); ++checked_) {
      const auto& request = peer_.received()[checked_];
      RC_ASSERT(request.header.sequence == checked_ + 1);
      CheckRequest(request, sent_.at(request.header.sequence));
    }
    CheckDoorbell();
    CountFailures();
  }

  // A peer that sleeps and was not rung has nothing to read but releases that can wait, and not many of them.
  void CheckDoorbell() {
    if (!peer_.asleep() || peer_.rung() || unrung_) return;
    const uint64_t unread = sequence_ - peer_.received().size();
    RC_ASSERT(unread == 0 || peer_.patient());
    RC_ASSERT(unread <= QuotaOf(Credit::kRelease) / 2 && peer_.unread() <= proto::kRequestEntries / 2);
    for (uint64_t i = 0; i < unread; ++i) RC_ASSERT(sent_.at(sequence_ - i).can_wait);
  }

  static void CheckRequest(const RingPeer::Request& request, const Sent& sent) {
    const size_t count = sent.op == Op::kIntern ? sent.body.size() : sent.body.size() / sizeof(proto::RequestItem);
    RC_ASSERT(request.header.op == static_cast<uint16_t>(sent.op) && request.header.flags == sent.flags);
    RC_ASSERT(request.header.item_count == count);
    const size_t start = sent.op == Op::kIntern ? sizeof(proto::RequestItem) : 0;  // Text: from the second entry on.
    RC_ASSERT(std::equal(sent.body.begin(), sent.body.end(), request.body.begin() + static_cast<ptrdiff_t>(start)));
  }

  // Each failed release is told once: by its own sentence, or in the count behind the first's.
  void CountFailures() {
    while (const auto failure = channel_->TakeReleaseFailure()) {
      RC_ASSERT(failure->code == Code::kStale);
      const size_t more = failure->message.find(" (and ");
      failures_told_ += 1 + (more == std::string::npos ? 0 : std::stoul(failure->message.substr(more + 6)));
    }
  }

  uint64_t FailedReleases() const {
    uint64_t failed = 0;
    for (const auto& [sequence, sent] : sent_) {
      failed += sent.op == Op::kRelease && peer_.answered().at(sequence).code != Code::kOk ? 1 : 0;
    }
    return failed;
  }

  std::mt19937_64 random_;
  RingPeer peer_;
  PeerWaiter waiter_;
  std::unique_ptr<Channel> channel_;
  Group group_;
  uint64_t sequence_ = 0;          // Of the last request put on the ring.
  std::map<uint64_t, Sent> sent_;  // By sequence.
  std::list<Pending*> open_;       // Not finished.
  size_t checked_ = 0;             // Requests received and compared.
  bool unrung_ = false;            // The last request was submitted quietly.
  uint64_t failures_told_ = 0;
};

RC_GTEST_PROP(ChannelProperty, DeliversEachRequestAndEachAnswerOnce, (uint64_t seed)) { Program(seed).Run(150); }

TEST(ChannelProperty, SeveralQuietRequestsAreRungForOnce) {
  RingPeer peer(1);
  PeerWaiter waiter(peer, 2);
  Channel channel(peer.region(), peer.engine(), peer.doorbell(), {.spin = SpinMode::kNever, .waiter = &waiter});
  while (!peer.asleep()) peer.Step();
  for (int i = 0; i < 3; ++i) {
    const auto put = channel.TrySubmitQuietly({.op = Op::kFlush}, Credit::kCall, nullptr);
    ASSERT_TRUE(put && *put != nullptr);
  }
  EXPECT_FALSE(peer.rung());
  channel.RingForSubmitted();
  EXPECT_TRUE(peer.rung());
  while (peer.received().size() < 3) ASSERT_TRUE(peer.Step());
  while (!peer.asleep()) peer.Step();
  channel.RingForSubmitted();
  EXPECT_FALSE(peer.rung()) << "nothing was submitted since";
}

RC_GTEST_PROP(ChannelProperty, EveryCallEndsWithTheSession, (uint64_t seed)) {
  Program program(seed);
  program.Run(30);
  program.End();
}

}  // namespace
}  // namespace tier::client
