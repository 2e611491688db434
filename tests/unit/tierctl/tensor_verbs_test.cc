// Which tensors of a job are listed.
#include "tools/tierctl/tensor_verbs.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

// So many, of which these are torn.
v1::ListTensorsResponse Tensors(uint64_t count, const std::vector<uint64_t>& torn) {
  v1::ListTensorsResponse answer;
  for (uint64_t id = 0; id < count; ++id) answer.add_tensors()->set_id(id);
  for (const uint64_t id : torn) answer.mutable_tensors(static_cast<int>(id))->set_torn(true);
  return answer;
}

TEST(KeepTorn, FindsTheOneBehindThousandsOfOthers) {
  auto answer = Tensors(5000, {3000});
  EXPECT_FALSE(KeepTorn(&answer, 1000));
  ASSERT_EQ(answer.tensors_size(), 1);
  EXPECT_EQ(answer.tensors(0).id(), 3000u);
}

TEST(KeepTorn, CountsOnlyTheTornOnesAgainstTheMaximum) {
  auto answer = Tensors(10, {1, 4, 9});
  EXPECT_FALSE(KeepTorn(&answer, 3));
  EXPECT_EQ(answer.tensors_size(), 3);
  EXPECT_TRUE(KeepTorn(&answer, 2));
  ASSERT_EQ(answer.tensors_size(), 2);
  EXPECT_EQ(answer.tensors(1).id(), 4u);
}

TEST(KeepTorn, LeavesNothingWhereAllAreWhole) {
  auto answer = Tensors(3, {});
  EXPECT_FALSE(KeepTorn(&answer, 1));
  EXPECT_EQ(answer.tensors_size(), 0);
}

}  // namespace
}  // namespace tier::tierctl
