#include "libclient/swap/tensor_order.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace tier::swap {
namespace {

using Kind = TensorOrder::Kind;
using Ticket = TensorOrder::Ticket;

// The rules of tensor_order.h, word for word and in quadratic time.
class Model {
 public:
  struct Operation {
    Ticket ticket;
    Kind kind;
    uint32_t flags;
    std::vector<uint64_t> tensors;  // None: every one.
  };

  bool MayBegin(const Operation& operation) const {
    return std::ranges::none_of(operations_, [&](const Operation& other) { return HoldsUp(other, operation); });
  }
  bool FollowsSwap(const Operation& operation) const {
    return std::ranges::any_of(operations_, [&](const Operation& other) {
      return HoldsUp(other, operation) && (other.kind != Kind::kRequest || FollowsSwap(other));
    });
  }
  bool HasSwap(uint64_t tensor, uint32_t flags) const {
    return std::ranges::any_of(operations_, [&](const Operation& other) {
      return other.kind != Kind::kRequest && other.flags == flags && std::ranges::count(other.tensors, tensor) > 0;
    });
  }
  std::vector<Operation>& operations() { return operations_; }

 private:
  bool HoldsUp(const Operation& earlier, const Operation& operation) const {
    if (earlier.ticket >= operation.ticket) return false;
    if (operation.tensors.empty()) return true;
    if (earlier.tensors.empty()) return MayBegin(earlier);
    if (earlier.flags != operation.flags) return false;
    if (earlier.kind == Kind::kReadingSwap && operation.kind == Kind::kReadingSwap) return false;
    return std::ranges::find_first_of(earlier.tensors, operation.tensors) != earlier.tensors.end();
  }

  std::vector<Operation> operations_;  // Not over, by ascending tickets.
};

class Both {
 public:
  void AddAny() {
    const auto kind = *rc::gen::element(Kind::kReadingSwap, Kind::kWritingSwap, Kind::kRequest);
    const uint32_t flags = *rc::gen::element(0u, proto::kFlagShared, proto::kFlagNoWait) & proto::kFlagShared;
    // A swap names one tensor; a request several, some twice, or none.
    const size_t count = kind == Kind::kRequest ? *rc::gen::inRange<size_t>(0, 4) : 1;
    std::vector<uint64_t> tensors;
    while (tensors.size() < count) tensors.push_back(*rc::gen::inRange<uint64_t>(1, 5));
    std::vector<proto::RequestItem> items(count);
    for (size_t i = 0; i < count; ++i) items[i].tensor = tensors[i];
    model_.operations().push_back({order_.Add(kind, flags, items), kind, flags, tensors});
  }
  void RemoveAny() {
    auto& operations = model_.operations();
    if (operations.empty()) return;
    const auto victim = operations.begin() + *rc::gen::inRange<ptrdiff_t>(0, std::ssize(operations));
    RC_ASSERT(order_.Remove(victim->ticket));
    RC_ASSERT(!order_.Remove(victim->ticket));
    operations.erase(victim);
  }
  void Compare() {
    const Status intact = order_.CheckInvariants();
    if (!intact) RC_FAIL(intact.error().message);
    RC_ASSERT(order_.size() == model_.operations().size() && size_.load() == order_.size());
    for (const auto& operation : model_.operations()) {
      RC_ASSERT(order_.MayBegin(operation.ticket) == model_.MayBegin(operation));
      RC_ASSERT(order_.FollowsSwap(operation.ticket) == model_.FollowsSwap(operation));
    }
    for (uint64_t tensor = 1; tensor < 5; ++tensor) {
      RC_ASSERT(order_.HasSwap(tensor, 0) == model_.HasSwap(tensor, 0));
      RC_ASSERT(order_.HasSwap(tensor, proto::kFlagShared) == model_.HasSwap(tensor, proto::kFlagShared));
    }
  }
  // Ends whatever may begin, any of them first, until none is left.
  void DrainInAnyOrder() {
    auto& operations = model_.operations();
    while (!operations.empty()) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < operations.size(); ++i) {
        if (order_.MayBegin(operations[i].ticket)) ready.push_back(i);
      }
      RC_ASSERT(!ready.empty());
      const size_t next = ready[*rc::gen::inRange<size_t>(0, ready.size())];
      RC_ASSERT(order_.Remove(operations[next].ticket));
      operations.erase(operations.begin() + static_cast<ptrdiff_t>(next));
    }
    RC_ASSERT(order_.size() == 0u);
  }

 private:
  std::atomic<uint64_t> size_{0};
  TensorOrder order_{size_};
  Model model_;
};

RC_GTEST_PROP(TensorOrder, AgreesWithItsRules, ()) {
  Both both;
  const int steps = *rc::gen::inRange(1, 40);
  for (int i = 0; i < steps; ++i) {
    if (*rc::gen::inRange(0, 3) > 0) {
      both.AddAny();
    } else {
      both.RemoveAny();
    }
    both.Compare();
  }
  both.DrainInAnyOrder();
}

class TensorOrderTest : public ::testing::Test {
 protected:
  Ticket Add(Kind kind, std::initializer_list<uint64_t> tensors, uint32_t flags = 0) {
    std::vector<proto::RequestItem> items;
    for (const uint64_t tensor : tensors) items.push_back({.tensor = tensor});
    return order_.Add(kind, flags, items);
  }
  std::atomic<uint64_t> size_{0};
  TensorOrder order_{size_};
};

TEST_F(TensorOrderTest, ReadsOfATensorRunSideBySideButNotPastAFree) {
  const Ticket first = Add(Kind::kReadingSwap, {1});
  EXPECT_TRUE(order_.MayBegin(Add(Kind::kReadingSwap, {1})));
  const Ticket free = Add(Kind::kRequest, {1});
  const Ticket late = Add(Kind::kReadingSwap, {1});
  EXPECT_FALSE(order_.MayBegin(free));
  EXPECT_FALSE(order_.MayBegin(late)) << "it was asked for behind the free";
  ASSERT_TRUE(order_.Remove(first));
  EXPECT_FALSE(order_.MayBegin(free));
}

TEST_F(TensorOrderTest, AFlushOfEverythingHoldsUpOthersOnlyWhenItWaitsForNoSwap) {
  const Ticket swap = Add(Kind::kWritingSwap, {1});
  const Ticket flush = Add(Kind::kRequest, {});
  const Ticket other = Add(Kind::kRequest, {2});
  EXPECT_FALSE(order_.MayBegin(flush));
  EXPECT_TRUE(order_.FollowsSwap(flush));
  EXPECT_TRUE(order_.MayBegin(other));
  ASSERT_TRUE(order_.Remove(swap));
  EXPECT_TRUE(order_.MayBegin(flush));
  EXPECT_FALSE(order_.FollowsSwap(flush));
  EXPECT_FALSE(order_.MayBegin(other)) << "the flush waits for room alone, and was asked for first";
}

TEST_F(TensorOrderTest, ARequestBehindAnotherThatWaitsForASwapFollowsTheSwap) {
  const Ticket swap = Add(Kind::kWritingSwap, {1});
  const Ticket free = Add(Kind::kRequest, {1, 2});
  const Ticket acquire = Add(Kind::kRequest, {2});
  EXPECT_FALSE(order_.MayBegin(acquire));
  EXPECT_TRUE(order_.FollowsSwap(acquire));
  ASSERT_TRUE(order_.Remove(swap));
  EXPECT_FALSE(order_.MayBegin(acquire));
  EXPECT_FALSE(order_.FollowsSwap(acquire)) << "the free waits for room alone";
  ASSERT_TRUE(order_.Remove(free));
  EXPECT_TRUE(order_.MayBegin(acquire));
}

TEST_F(TensorOrderTest, NamespacesAreApart) {
  Add(Kind::kWritingSwap, {1});
  EXPECT_TRUE(order_.MayBegin(Add(Kind::kWritingSwap, {1}, proto::kFlagShared)));
  EXPECT_FALSE(order_.MayBegin(Add(Kind::kRequest, {}, proto::kFlagShared))) << "everything is of both";
}

}  // namespace
}  // namespace tier::swap
