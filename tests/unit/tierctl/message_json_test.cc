// Messages as JSON: what programs may rely on.
#include "tools/tierctl/message_json.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

TEST(MessageJson, NamesOfSixtyFourBitsAreStringsAndFiguresAreNumbers) {
  v1::Tensor tensor;
  tensor.set_id(4787868879654501842u);
  tensor.set_space(~uint64_t{0});
  tensor.set_size(uint64_t{1} << 50);
  const Json document = ToJson(tensor);
  EXPECT_EQ(document["id"], "4787868879654501842");
  EXPECT_EQ(document["space"], "18446744073709551615");
  EXPECT_EQ(document["size"], uint64_t{1} << 50);
  v1::Status status;
  status.set_epoch(~uint64_t{0});
  EXPECT_EQ(ToJson(status)["epoch"], "18446744073709551615");
}

TEST(MessageJson, WhatWasNotAskedForOrIsNotThereIsLeftOut) {
  v1::Job job;
  EXPECT_FALSE(ToJson(job).contains("token"));
  job.set_token("secret");
  EXPECT_EQ(ToJson(job)["token"], "secret");
  v1::PoolWindow window;
  EXPECT_FALSE(ToJson(window).contains("numa_node"));
  window.set_numa_node(0);
  EXPECT_EQ(ToJson(window)["numa_node"], 0);
  EXPECT_EQ(ToJson(window)["index"], 0) << "a field of zero is there";
}

TEST(MessageJson, EachDocumentSaysItsVersionFirst) {
  EXPECT_EQ(RenderJson({{"removed", "train"}}, -1), R"({"json_version":1,"removed":"train"})");
}

TEST(MessageJson, NothingOfItSteersATerminal) {
  v1::Tensor tensor;
  tensor.set_key("a\033[2J\x7f\xc2\x9b\u202e\"\n");
  const std::string text = RenderJson(ToJson(tensor), -1);
  for (const char c : text) ASSERT_TRUE(c >= ' ' && c <= '~') << text;
  EXPECT_EQ(Json::parse(text)["key"], tensor.key());
  const std::string broken = RenderJson({{"path", "/dev/\xff"}}, -1);
  EXPECT_EQ(Json::parse(broken)["path"], "/dev/\ufffd") << "no UTF-8, and still a document";
}

}  // namespace
}  // namespace tier::tierctl
