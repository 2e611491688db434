// A broken invariant of libtier's own: it aborts where mistakes are looked for, and elsewhere ends the client alone.
#include "libclient/client/invariant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "libclient/abi/handle.h"
#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using client::Credit;
using proto::Op;

class InvariantTest : public ClientTest {
 protected:
  // What no caller can do: gives one answered request back twice.
  void BreakAnInvariant() {
    auto& channel = client_->session->channel();
    client::Pending* const pending = channel.TrySubmit({.op = Op::kStep}, Credit::kCall, nullptr).value();
    ASSERT_TRUE(channel.Wait(pending));
    channel.Finish(pending);
    channel.Finish(pending);
  }
};

TEST_F(InvariantTest, InAReleaseBuildEveryCallAnswersDisconnectedWithTheSentence) {
  client::SetAbortOnBrokenInvariant(false);
  Start({.windows = 20});
  daemon_->Hold(Op::kFlush);
  daemon_->Hold(Op::kStat);
  std::thread waiting([&] {
    EXPECT_TIER_ERROR(tier_flush(client_, nullptr, 0, 0), TIER_DISCONNECTED, "libtier broke a rule of its own");
  });
  daemon_->Await([&] { return daemon_->held() == 1; });  // Behind the swap it would not be sent.
  const auto content = Random(5 * kMiB, 1);
  tier_op* swap = nullptr;
  ASSERT_TIER_OK(tier_swap_out(client_, 1, content.data(), content.size(), nullptr, &swap));
  daemon_->Await([&] { return daemon_->held() == 2; });
  BreakAnInvariant();
  waiting.join();
  EXPECT_TIER_ERROR(tier_wait(swap, 0, nullptr), TIER_DISCONNECTED, "channel.cc");
  EXPECT_TIER_ERROR(tier_step(client_, 1), TIER_DISCONNECTED, "finished twice");
  EXPECT_THAT(tier_last_error(), ::testing::HasSubstr("connect again"));
  tier_close(std::exchange(client_, nullptr));
  client::SetAbortOnBrokenInvariant(true);
  tier_client* const again = Connect(*daemon_);
  EXPECT_TIER_OK(tier_step(again, 1));
  tier_close(again);
}

// What no caller can do: starts a swap that CheckRequest would have refused.
TEST_F(InvariantTest, InAReleaseBuildACopyThatDoesNotExistEndsTheClientAlone) {
  client::SetAbortOnBrokenInvariant(false);
  Start({.windows = 20});
  auto content = Random(5 * kMiB, 1);
  const swap::CopyRequest request{.tensor = 1,
                                  .memory = content.data(),
                                  .size = content.size(),
                                  .memory_type = copy::ElementType::kBf16,
                                  .tensor_type = copy::ElementType::kFp16};
  ASSERT_FALSE(swap::CheckRequest(request));
  const auto swap = client_->scheduler->Start(request, nullptr).value();
  ASSERT_TRUE(client_->scheduler->AwaitEnd(*swap, client::Clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(client_->scheduler->OutcomeOf(*swap).error().code, Code::kDisconnected);
  EXPECT_TIER_ERROR(tier_step(client_, 1), TIER_DISCONNECTED, "from type 2 to type 3");
  EXPECT_THAT(tier_last_error(), ::testing::HasSubstr("libtier broke a rule of its own"));
  client::SetAbortOnBrokenInvariant(true);
}

TEST(InvariantDeathTest, InTestsAndDebugBuildsTheProcessAborts) {
  ASSERT_TRUE(client::AbortsOnBrokenInvariant());
  EXPECT_DEATH((void)client::BrokenInvariant("libclient/swap/x.cc", 12, "used >= bytes", "7 bytes used"),
               "libtier broke a rule of its own \\(x.cc:12: used >= bytes; 7 bytes used\\)");
}

}  // namespace
}  // namespace tier::session_fake
