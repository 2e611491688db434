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

TEST(MessageJson, WhatIsRepeatedIsAnArrayOfItsKind) {
  v1::Status status;
  EXPECT_EQ(ToJson(status)["degraded_by"], Json::array());
  status.add_degraded_by("torn tensors: 3");
  status.add_devices()->set_path("/dev/nvme0n1");
  EXPECT_EQ(ToJson(status)["degraded_by"], Json::array({"torn tensors: 3"}));
  EXPECT_EQ(ToJson(status)["devices"][0]["path"], "/dev/nvme0n1");
  v1::Job job;
  job.add_ranks(2);
  EXPECT_EQ(ToJson(job)["ranks"], Json::array({2}));
}

// Of the kinds that the messages repeat none is left out.
TEST(MessageJson, EveryRepeatedFieldOfEveryMessageHasAKind) {
  const google::protobuf::FileDescriptor& file = *v1::Status::descriptor()->file();
  for (int i = 0; i < file.message_type_count(); ++i) {
    for (int k = 0; k < file.message_type(i)->field_count(); ++k) {
      const auto& field = *file.message_type(i)->field(k);
      using Field = google::protobuf::FieldDescriptor;
      const bool known = field.cpp_type() == Field::CPPTYPE_MESSAGE || field.cpp_type() == Field::CPPTYPE_STRING ||
                         field.cpp_type() == Field::CPPTYPE_INT32;
      EXPECT_TRUE(!field.is_repeated() || known) << field.full_name();
    }
  }
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
