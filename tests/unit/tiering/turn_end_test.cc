// The end of a turn: first the extents that the turn freed become free, then replies are published, then transfers are
// submitted.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/tiering/engine.h"
#include "tests/support/storage/fake_transfer.h"
#include "tests/support/tiering/fake_windows.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using proto::RequestItem;

// An engine whose replies and submits are written down in the order in which they come.
class TurnEnd : public ::testing::Test, public ReplySink {
 protected:
  TurnEnd() : windows_({.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB}) {
    extents_.AddDevice(64);
    transfers_.WatchSubmits([this] { Note("submit"); });
    engine_ = std::make_unique<Engine>(EngineOptions{}, EnginePorts{windows_, extents_, transfers_, nullptr, *this});
    EXPECT_TRUE(engine_->OpenJob(JobId{1}, {.key = "0/a"}).has_value());
    EXPECT_TRUE(engine_->OpenSession(kSession, JobId{1}).has_value());
  }

  void OnReply(SessionId, const Reply& reply) override {
    EXPECT_EQ(reply.code, Code::kOk) << reply.detail;
    if (!reply.spans.empty()) lease_ = reply.spans.front().lease;
    answered_ = reply.sequence;
    Note("reply");
  }
  void OnWindow(SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(SessionId, WindowIndex) override {}
  void OnSessionEnded(SessionId, Code, const std::string&) override {}

  void Send(Op op, const RequestItem& item) {
    engine_->Submit(kSession, {.sequence = ++sequence_, .op = op, .items = {&item, 1}, .text = {}});
  }
  void Turn() { engine_->Turn(now_ = now_ + std::chrono::microseconds(1)); }
  void Ask(Op op, const RequestItem& item) {
    Send(op, item);
    for (int turn = 0; turn < 1000 && answered_ != sequence_; ++turn) Turn();
    ASSERT_EQ(answered_, sequence_);
  }
  void Put(uint64_t tensor) {
    Ask(Op::kCreate, {tensor, 0, 0, kBlockSize});
    Ask(Op::kRelease, {0, 0, 0, lease_});
  }

  storage::ExtentStore extents_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::string> order_;

 private:
  static constexpr SessionId kSession{2};
  void Note(const std::string& what) { order_.push_back(extents_.total().pending == 0 ? what : what + " too early"); }

  memory::testing::FakeWindowSource windows_;
  storage::testing::FakeTransferPort transfers_;
  base::TimePoint now_;
  uint64_t sequence_ = 0;
  uint64_t answered_ = 0;
  uint64_t lease_ = 0;
};

TEST_F(TurnEnd, PublishesRepliesBeforeItSubmitsTransfers) {
  Put(1);
  Ask(Op::kFlush, {1, 0, 0, 0});
  Put(2);
  order_.clear();
  Send(Op::kFree, {1, 0, 0, 0});   // Frees an extent, and is answered in this turn …
  Send(Op::kFlush, {2, 0, 0, 0});  // … in which this one starts a write.
  EXPECT_EQ(extents_.total().pending, kBlockSize);
  Turn();
  EXPECT_EQ(order_, (std::vector<std::string>{"reply", "submit"}));
}

}  // namespace
}  // namespace tier::tiering::testing
