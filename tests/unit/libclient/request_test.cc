// Calls on whole tensors, and calls that are started and waited for later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

using RequestTest = ClientTest;
using proto::Op;

TEST_F(RequestTest, TheSameKeyGivesTheSameId) {
  Start();
  uint64_t first = 0, second = 0, other = 0;
  EXPECT_TIER_OK(tier_intern(client_, "layer.0/weight", 14, &first));
  EXPECT_TIER_OK(tier_intern(client_, "layer.0/weight", 14, &second));
  EXPECT_TIER_OK(tier_intern(client_, "größe", 7, &other));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_TIER_OK(tier_intern(client_, std::string(1024, 'k').c_str(), 1024, &other));
}

TEST_F(RequestTest, KeysThatAreNoTextNeverReachTheDaemon) {
  Start();
  uint64_t id = 0;
  for (const std::string& key :
       {std::string("\xff"), std::string("a\0b", 3), std::string("\xc0\xaf"), std::string("\xe0\x80\x80"),
        std::string("\xed\xa0\x80"), std::string("\xe2\x82"), std::string("\xf4\x90\x80\x80")}) {
    EXPECT_TIER_ERROR(tier_intern(client_, key.data(), key.size(), &id), TIER_INVALID, "UTF-8");
  }
  EXPECT_TIER_ERROR(tier_intern(client_, "x", 0, &id), TIER_INVALID, "1 to 1024");
  EXPECT_TIER_ERROR(tier_intern(client_, std::string(1025, 'k').c_str(), 1025, &id), TIER_INVALID, "1025");
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(Op::kIntern)].load(), 0u);
}

TEST_F(RequestTest, ListsOfAnyLengthAreSentInParts) {
  Start();
  std::vector<uint64_t> tensors(2500);
  EXPECT_TIER_OK(tier_flush(client_, tensors.data(), tensors.size(), 0));
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(Op::kFlush)].load(), 3u);
  EXPECT_TIER_ERROR(tier_free_batch(client_, tensors.data(), tensors.size(), 0), TIER_NOT_FOUND, "no tensor 0");
  EXPECT_TIER_ERROR(tier_persist(client_, tensors.data(), tensors.size(), 0), TIER_INVALID, "one manifest");
  EXPECT_TIER_ERROR(tier_persist(client_, nullptr, 0, 0), TIER_DENIED, "keeps nothing");
}

TEST_F(RequestTest, FreeOfNothingIsNothing) {
  Start();
  EXPECT_TIER_OK(tier_free_batch(client_, nullptr, 0, 0));
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(Op::kFree)].load(), 0u);
  EXPECT_TIER_OK(tier_flush(client_, nullptr, 0, 0));  // Of nothing named: of everything.
  EXPECT_EQ(daemon_->counters().requests[static_cast<size_t>(Op::kFlush)].load(), 1u);
  EXPECT_TIER_OK(tier_drop(client_, nullptr, 0, 0));
  EXPECT_TIER_OK(tier_accept(client_, 3, 0));
}

TEST_F(RequestTest, TensorShowsSizeAndState) {
  Start();
  tier_lease* const lease = Create(3, 777);
  tier_tensor_view view{};
  view.struct_size = sizeof view;
  EXPECT_TIER_OK(tier_tensor(client_, 3, 0, &view));
  EXPECT_EQ(view.size, 777u);
  EXPECT_EQ(view.sealed, 0);
  tier_seal(lease);
  EXPECT_TIER_OK(tier_tensor(client_, 3, 0, &view));
  EXPECT_EQ(view.sealed, 1);
  EXPECT_TIER_ERROR(tier_tensor(client_, 4, 0, &view), TIER_NOT_FOUND, "no tensor 4");
}

TEST_F(RequestTest, PrefetchSendsRanges) {
  Start();
  const tier_range ranges[2] = {{1, 0, 0, 55}, {2, 4096, 4096, 55}};
  EXPECT_TIER_OK(tier_prefetch(client_, ranges, 2, 0));
  EXPECT_TIER_OK(tier_prefetch(client_, nullptr, 0, 0));
}

TEST_F(RequestTest, AStartedAcquireIsPolledInSlices) {
  Start();
  tier_seal(Create(1, 4096));
  daemon_->Hold(Op::kAcquire);
  const tier_range range{1, 0, 0, 0};
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &range, 1, 0, 0, &lease, &op));
  EXPECT_EQ(tier_poll(op, 1), 0);
  EXPECT_EQ(tier_done(op), 0);
  EXPECT_TIER_ERROR(tier_wait(op, 1, nullptr), TIER_TIMEOUT, "it goes on");
  daemon_->Resume();
  EXPECT_EQ(tier_poll(op, 10'000), 1);
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  EXPECT_EQ(Bytes(lease).size(), 4096u);
  EXPECT_EQ(Stats().acquires, 2u) << "it and the create";
  tier_release(lease, 0);
}

TEST_F(RequestTest, ACancelledAcquireGivesBackWhatItIsGranted) {
  Start();
  tier_seal(Create(1, 4096));
  daemon_->Hold(Op::kAcquire);
  const tier_range range{1, 0, 0, 0};
  tier_lease* lease = nullptr;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_acquire_start(client_, &range, 1, TIER_WRITE, 0, &lease, &op));
  tier_cancel(op);
  EXPECT_EQ(tier_done(op), 1);
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_TIMEOUT, "cancelled");
  daemon_->Await([&] { return daemon_->held() == 1; });
  daemon_->Resume();
  daemon_->Await([&] { return daemon_->counters().untouched.load() == 1 && daemon_->leases_open() == 0; });
  EXPECT_EQ(Stats().leases_open, 0u);
  EXPECT_EQ(Stats().acquires, 1u) << "the create";
}

TEST_F(RequestTest, StartedCallsBringTheirRefusals) {
  Start();
  const uint64_t tensor = 5;
  tier_op* op = nullptr;
  ASSERT_TIER_OK(tier_free_start(client_, &tensor, 1, 0, &op));
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_NOT_FOUND, "no tensor 5");
  ASSERT_TIER_OK(tier_flush_start(client_, nullptr, 0, 0, &op));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  ASSERT_TIER_OK(tier_persist_start(client_, nullptr, 0, 0, &op));
  EXPECT_TIER_ERROR(tier_wait(op, 0, nullptr), TIER_DENIED, "keeps nothing");
  const tier_range range{8, 0, 0, 4096};
  tier_lease* lease = nullptr;
  ASSERT_TIER_OK(tier_create_start(client_, &range, 1, 0, 0, &lease, &op));
  EXPECT_TIER_OK(tier_wait(op, 0, nullptr));
  tier_seal(lease);
  EXPECT_TIER_ERROR(tier_wait(nullptr, 0, nullptr), TIER_INVALID, "NULL");
}

}  // namespace
}  // namespace tier::session_fake
