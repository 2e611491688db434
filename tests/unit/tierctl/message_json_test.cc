// Messages as JSON: what programs may rely on.
#include "tools/tierctl/message_json.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

TEST(MessageJson, NamesOfSixtyFourBitsAreStringsAndFiguresAreNumbers) {
  v1::Tensor tensor;
  tensor.set_id(4787868879654501842u);
  tensor.set_space(~uint64_t{0});
  tensor.set_size_bytes(uint64_t{1} << 50);
  const Json document = ToJson(tensor);
  EXPECT_EQ(document["id"], "4787868879654501842");
  EXPECT_EQ(document["space"], "18446744073709551615");
  EXPECT_EQ(document["size_bytes"], uint64_t{1} << 50);
  v1::Stall stall;
  stall.set_space(7);
  stall.set_session(7);
  EXPECT_EQ(ToJson(stall)["space"], "7");
  EXPECT_EQ(ToJson(stall)["session"], "7") << "the same thing";
  v1::NodeStatus status;
  status.set_epoch(~uint64_t{0});
  EXPECT_EQ(ToJson(status)["epoch"], "18446744073709551615");
}

TEST(MessageJson, WhatWasNotAskedForOrIsNotThereIsLeftOut) {
  v1::Job job;
  EXPECT_FALSE(ToJson(job).contains("token"));
  job.set_token("secret");
  EXPECT_EQ(ToJson(job)["token"], "secret");
  v1::Device device;
  EXPECT_FALSE(ToJson(device).contains("smart")) << "a message too";
  device.mutable_smart()->add_warnings("spare");
  EXPECT_EQ(ToJson(device)["smart"]["warnings"][0], "spare");
  v1::PoolWindow window;
  EXPECT_FALSE(ToJson(window).contains("numa_node"));
  window.set_numa_node(0);
  EXPECT_EQ(ToJson(window)["numa_node"], 0);
  EXPECT_EQ(ToJson(window)["index"], 0) << "a field of zero is there";
}

TEST(MessageJson, AnEnumeratorIsItsWord) {
  v1::Device device;
  EXPECT_EQ(ToJson(device)["state"], "unspecified");
  device.set_state(v1::DEVICE_STATE_ONLINE);
  EXPECT_EQ(ToJson(device)["state"], "online");
  device.set_state(static_cast<v1::DeviceState>(99));
  EXPECT_EQ(ToJson(device)["state"], "unknown") << "of a newer daemon";
  EXPECT_EQ(WordOf(v1::IO_MODE_IO_URING), "io_uring");
  EXPECT_EQ(WordOf(v1::POOL_OWNER_KIND_OTHER_USERS), "other_users");
}

TEST(MessageJson, TimesAreAsInTheJsonOfProtobuf) {
  v1::Event event;
  EXPECT_EQ(ToJson(event)["event_time"], "1970-01-01T00:00:00Z");
  event.mutable_event_time()->set_seconds(1'763'985'601);
  event.mutable_event_time()->set_nanos(7'000'000);
  EXPECT_EQ(ToJson(event)["event_time"], "2025-11-24T12:00:01.007Z");
  v1::NodeStatus status;
  EXPECT_EQ(ToJson(status)["uptime"], "0s");
  status.mutable_uptime()->set_seconds(3);
  status.mutable_uptime()->set_nanos(500'000'000);
  EXPECT_EQ(ToJson(status)["uptime"], "3.500s");
}

TEST(MessageJson, ATimeThatNoCalendarHasIsStillADocument) {
  v1::Event event;
  event.mutable_event_time()->set_seconds(INT64_MAX);
  event.mutable_event_time()->set_nanos(-1);
  EXPECT_EQ(Json::parse(RenderJson(ToJson(event)))["event_time"], "InvalidTime");
}

TEST(MessageJson, WhatIsRepeatedIsAnArrayOfItsKind) {
  v1::NodeStatus status;
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
  const google::protobuf::FileDescriptor& file = *v1::NodeStatus::descriptor()->file();
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
  EXPECT_EQ(RenderJson({{"removed", "train"}}, -1), R"({"json_version":3,"removed":"train"})");
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
